"""Conversion of the ways to write the iterations of a job, with checks for contradictions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Any

from qcg.pilotjob.description.errors import Problem, join_path, quoted
from qcg.pilotjob.description.forms import IterationForm, SimpleForm, StandardForm
from qcg.pilotjob.description.iteration import HEADS, Iteration, RowFile
from qcg.pilotjob.description.normalize import check_storable
from qcg.pilotjob.description.variables import AT_LAUNCH, AT_SUBMISSION, OF_ITERATION, substitute

MAX_ITERATIONS = 100_000_000

_PLACEHOLDER = Iteration(0, 1)
"""Result for an iteration with problems, so that no follow-up problems are reported."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TAKEN = AT_LAUNCH | AT_SUBMISSION | OF_ITERATION | HEADS | {"attempt"}


class RowsWanted(Exception):
    """A parameter file must be read before a job can be parsed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class KnownFiles:
    """The parameter files of a submission that have been read so far: each with its rows, or why it cannot be used."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        """`variables`: those of the submission, for the paths of files."""
        self._variables = variables
        self._files: dict[str, RowFile | list[str]] = {}

    def add(self, path: str, found: RowFile | list[str]) -> None:
        self._files[path] = found

    def find(self, written: str) -> RowFile | list[str]:
        """The file that a job names; raises RowsWanted when it has not been read."""
        path = substitute(written, self._variables)
        if path not in self._files:
            raise RowsWanted(path)
        return self._files[path]


def iteration_of(
    form: StandardForm | SimpleForm, files: KnownFiles, path: str, problems: list[Problem]
) -> Iteration | None:
    """The iterations of a job; None if it has none. Raises RowsWanted for a file that is not in `files`."""
    if form.iterate is not None:
        if form.iteration is not None:
            problems.append(Problem(path, '"iteration" and "iterate" exclude each other; give one of them'))
        start, stop, step = (*form.iterate, 1)[:3]
        return _range(start, stop, step, f"{path}.iterate", problems)
    given = form.iteration
    if given is None:
        return None
    path = f"{path}.iteration"
    if isinstance(given, int):
        return _range(0, given, 1, path, problems)
    if isinstance(given, list):
        return _values(given, path, problems)
    return _of_object(given, files, path, problems)


def _of_object(form: IterationForm, files: KnownFiles, path: str, problems: list[Problem]) -> Iteration:
    kinds = [key for key in ("values", "indices", "file", "product", "zip") if getattr(form, key) is not None]
    if kinds and (form.start is not None or form.stop is not None or form.step is not None):
        sentence = f'"{kinds[0]}" excludes "start", "stop" and "step"; give one or the other'
        problems.append(Problem(path, sentence))
    if len(kinds) > 1:
        problems.append(Problem(path, f'"{kinds[0]}" and "{kinds[1]}" exclude each other; give one of them'))
        return _PLACEHOLDER
    if form.values is not None:
        return _values(form.values, f"{path}.values", problems)
    if form.indices is not None:
        return _listed(form.indices, f"{path}.indices", problems)
    if form.file is not None:
        return _rows(form.file, files, f"{path}.file", problems)
    if form.product is not None:
        return _named(form.product, f"{path}.product", problems, crossed=True)
    if form.zip is not None:
        return _named(form.zip, f"{path}.zip", problems, crossed=False)
    if form.stop is None:
        problems.append(Problem(path, 'give "stop", "values", "indices", "file", "product" or "zip"'))
        return _PLACEHOLDER
    return _range(form.start or 0, form.stop, 1 if form.step is None else form.step, path, problems)


def _range(start: int, stop: int, step: int, path: str, problems: list[Problem]) -> Iteration:
    if step == 0:
        problems.append(Problem(path, "the step must not be 0"))
        return _PLACEHOLDER
    count = len(range(start, stop, step))
    if count == 0:
        problems.append(Problem(path, f"there is no iteration from {start} up to {stop} in steps of {step}"))
        return _PLACEHOLDER
    return Iteration(start, stop, step) if _are_few(count, path, problems) else _PLACEHOLDER


def _are_few(count: int, path: str, problems: list[Problem]) -> bool:
    if count <= MAX_ITERATIONS:
        return True
    problems.append(Problem(path, f"{count} iterations are too many for one job; at most {MAX_ITERATIONS} are allowed"))
    return False


def _values(values: list[Any], path: str, problems: list[Problem]) -> Iteration:
    if not _can_be_values(values, path, problems):
        return _PLACEHOLDER
    return Iteration(0, len(values), 1, tuple(values))


def _can_be_values(values: list[Any], path: str, problems: list[Problem]) -> bool:
    if not values:
        problems.append(Problem(path, "there is no iteration in an empty list"))
        return False
    return check_storable(values, path, problems)


def _listed(indices: list[int], path: str, problems: list[Problem]) -> Iteration:
    if not indices:
        problems.append(Problem(path, "there is no iteration in an empty list"))
        return _PLACEHOLDER
    first, last = indices[0], indices[-1]
    step = indices[1] - first if len(indices) > 1 else 1
    # Equal distances make a range, which takes no memory.
    if step and indices == list(evenly := range(first, last + (1 if step > 0 else -1), step)):
        return Iteration(evenly.start, evenly.stop, evenly.step)
    if len(set(indices)) < len(indices):
        seen: set[int] = set()
        for number, index in enumerate(indices):
            if index in seen:
                problems.append(Problem(f"{path}[{number}]", f"the index {index} is given twice"))
                return _PLACEHOLDER
            seen.add(index)
    return Iteration(min(indices), max(indices) + 1, listed=tuple(indices))


def _rows(written: str, files: KnownFiles, path: str, problems: list[Problem]) -> Iteration:
    if not written:
        problems.append(Problem(path, "is empty"))
        return _PLACEHOLDER
    found = files.find(written)
    if isinstance(found, list):
        problems.extend(Problem(path, sentence) for sentence in found)
        return _PLACEHOLDER
    return Iteration(0, found.rows, rows=found) if _are_few(found.rows, path, problems) else _PLACEHOLDER


def _named(given: dict[str, list[Any]], path: str, problems: list[Problem], *, crossed: bool) -> Iteration:
    found = len(problems)
    if not given:
        problems.append(Problem(path, 'names no values; write {"NAME": [VALUE, VALUE]}'))
    for name, values in given.items():
        where = join_path(path, name)
        if not _NAME.fullmatch(name):
            problems.append(Problem(where, "a name has letters, digits and _, and does not begin with a digit"))
        elif name in _TAKEN:
            problems.append(Problem(where, f"${{{name}}} is a variable of every job; choose another name"))
        _can_be_values(values, where, problems)
    lengths = {name: len(values) for name, values in given.items()}
    if not crossed and len(set(lengths.values())) > 1:
        counts = ", ".join(f"{quoted(name)} {count}" for name, count in lengths.items())
        problems.append(Problem(path, f"the names must have equally many values ({counts}); product combines them all"))
    if len(problems) > found:
        return _PLACEHOLDER
    count = prod(lengths.values()) if crossed else next(iter(lengths.values()))
    if not _are_few(count, path, problems):
        return _PLACEHOLDER
    return Iteration(0, count, names={name: tuple(values) for name, values in given.items()}, crossed=crossed)
