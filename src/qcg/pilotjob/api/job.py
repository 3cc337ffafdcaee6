"""Groups of job descriptions that are submitted together."""

from __future__ import annotations

import json
import math
import numbers
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qcg.pilotjob.api.errors import FileError, InvalidJobDescriptionError, JobNotDefinedError
from qcg.pilotjob.api.log import log
from qcg.pilotjob.description.args_in_one_string import one_argument_with_blanks
from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.forms import SimpleForm
from qcg.pilotjob.description.json_input import InvalidJson
from qcg.pilotjob.description.parse import check_single_job, simple_to_standard
from qcg.pilotjob.host.safe_open import read_input

JOB_TOP_ATTRS = frozenset(SimpleForm.__struct_encode_fields__)
"""The keys of the simple form."""


class Jobs:
    """Descriptions to be submitted together, each checked as it is added. The `add` methods return the group itself,
    so that calls can be chained."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, Any]] = {}

    def add(self, job_attrs: dict[str, Any] | None = None, **attrs: Any) -> Jobs:
        """Add a job in the simple form: `add(name="a", exec="/bin/date", numCores=2, after="b")`.

        Named arguments override the dictionary. A job without a name gets a generated one."""
        given = _described(job_attrs, attrs)
        try:
            self._append(simple_to_standard(given), simple=True)
        except DescriptionError as error:
            raise InvalidJobDescriptionError(str(error)) from None
        if warning := one_argument_with_blanks(given.get("args")):
            log.warning("job %r: args: %s", given["name"], warning)
        return self

    def add_std(self, job_attrs: dict[str, Any] | None = None, **std_attrs: Any) -> Jobs:
        """Add a job in the standard form, as in a request file."""
        try:
            return self._append(_described(job_attrs, std_attrs), simple=False)
        except DescriptionError as error:
            raise InvalidJobDescriptionError(str(error)) from None

    def remove(self, name: str) -> None:
        if name not in self._jobs:
            raise JobNotDefinedError(f"there is no job {name!r} in this group")
        del self._jobs[name]

    def clear(self) -> int:
        """Remove all jobs; returns their number."""
        count = len(self._jobs)
        self._jobs = {}
        return count

    def job_names(self) -> list[str]:
        return list(self._jobs)

    def ordered_job_names(self) -> list[str]:
        return list(self._jobs)

    def jobs(self) -> list[dict[str, Any]]:
        """The descriptions in the standard form."""
        return list(self._jobs.values())

    def ordered_jobs(self) -> list[dict[str, Any]]:
        return list(self._jobs.values())

    def load_from_file(self, file_path: str | Path) -> None:
        """Add the jobs of a file: a JSON array of descriptions in the standard form."""
        try:
            jobs = json.loads(read_input(file_path))
        except OSError as error:
            raise FileError(f"{file_path} cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise InvalidJobDescriptionError(f"{file_path} {InvalidJson.because(error)}") from None
        if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
            raise InvalidJobDescriptionError(f"{file_path} must hold an array of job descriptions")
        for job in jobs:
            self.add_std(job)

    def save_to_file(self, file_path: str | Path) -> None:
        try:
            Path(file_path).write_text(json.dumps(self.jobs(), indent=2))
        except OSError as error:
            raise FileError(f"{file_path} cannot be written: {error.strerror}") from None

    def _append(self, job: dict[str, Any], *, simple: bool) -> Jobs:
        name = job["name"]
        if name in self._jobs:
            raise InvalidJobDescriptionError(f"job {name!r} is already in this group")
        check_single_job(job, simple=simple)
        self._jobs[name] = job
        return self


def _described(job_attrs: dict[str, Any] | None, attrs: dict[str, Any]) -> dict[str, Any]:
    """Merge the two kinds of arguments; adds a generated name where none is given."""
    if job_attrs is not None and not isinstance(job_attrs, Mapping):
        raise InvalidJobDescriptionError(
            f"a job is a dictionary, or named arguments as in add(name='a', exec='date'), and not {job_attrs!r}"
        )
    job = {**(job_attrs or {}), **attrs}
    name = job.get("name")
    plain = {key: _plain(value, key) for key, value in job.items() if key != "name"}
    try:
        return {"name": uuid.uuid4().hex if name is None else str(name), **plain}
    except ValueError as error:
        raise InvalidJobDescriptionError(f"the name {InvalidJson.because(error)}") from None


def _plain(value: Any, path: str) -> Any:
    """Convert a value for JSON: paths become strings, and numbers of other libraries become plain numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidJobDescriptionError(f"{path}: JSON has no number {value}; give a finite one, or a string")
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner, f"{path}.{key}") for key, inner in value.items()}
    if isinstance(value, (set, frozenset)) and not path.rpartition(".")[2].startswith("after"):
        raise InvalidJobDescriptionError(f"{path}: {value!r} is a set, which has no order; give a list")
    if isinstance(value, (list, tuple, set, frozenset, range)):
        return [_plain(inner, f"{path}[{index}]") for index, inner in enumerate(value)]
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return _plain(float(value), path)
    if callable(tolist := getattr(value, "tolist", None)):  # an array or a scalar of NumPy
        return _plain(tolist(), path)
    raise InvalidJobDescriptionError(
        f"{path}: {value!r} cannot be part of a description; strings, numbers, paths, lists and dictionaries can"
    )
