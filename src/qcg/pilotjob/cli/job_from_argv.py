"""Builds a job description from a command line such as `-c 2 -- prog args`."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Sequence
from typing import Any

from qcg.pilotjob.description.limits import LONGEST_NAME

_AMOUNT = re.compile(r"(\d{1,9})(?:(-)(\d{0,9}))?", re.ASCII)
_NOT_FOR_NAMES = re.compile(r"[^\w.+-]+")


class JobOptionError(Exception):
    """An option of the job is wrong; the message says which."""


def job_from_arguments(
    program: Sequence[str],
    name: str,
    *,
    cores: str | None = None,
    nodes: str | None = None,
    wall_time: str | None = None,
    mem: str | None = None,
    gpus: float | None = None,
    named: Sequence[str] = (),
    after: Sequence[str] = (),
    afterany: Sequence[str] = (),
    afternotok: Sequence[str] = (),
    afterstart: Sequence[str] = (),
    env: Sequence[str] = (),
    iteration: int | dict[str, Any] | None = None,
    script: str | None = None,
    remote: dict[str, Any] | None = None,
    retry: str | None = None,
    priority: int | None = None,
    hold: bool = False,
    stream_output: bool = False,
    **files: str | None,
) -> dict[str, Any]:
    """The job description in the standard form. `named`: texts such as `license=1`. `script`: a shell command instead
    of a program. `remote`: the host and its files. `retry`: a number or an object, as JSON. `files`: wd, stdin, stdout
    and stderr."""
    execution: dict[str, Any] = (
        {"exec": program[0], "args": list(program[1:])} if script is None else {"script": script}
    )
    execution.update({key: path for key, path in files.items() if path is not None})
    if stream_output:
        _check_stream(files, remote)
        execution["output"] = "stream"
    if env:
        execution["env"] = dict(_variable(text) for text in env)
    job: dict[str, Any] = {"name": name, "execution": execution}
    nodes, cores = _split_nodes(nodes, cores)
    amounts = {"numCores": amount("--cores", cores), "numNodes": amount("--nodes", nodes)}
    node_resources = None if gpus is None else {"gpu": gpus}
    counters = _counters(named) if named else None
    resources: dict[str, Any] = {**amounts, "nodeCrs": node_resources, "mem": mem, "named": counters, "wt": wall_time}
    if any(resources.values()):
        job["resources"] = {key: value for key, value in resources.items() if value is not None}
    given = {"after": after, "afterany": afterany, "afternotok": afternotok, "afterstart": afterstart}
    names = {kind: [name for text in texts for name in text.split(",") if name] for kind, texts in given.items()}
    if any(names.values()):
        job["dependencies"] = {kind: listed for kind, listed in names.items() if listed}
    if iteration is not None:
        job["iteration"] = iteration
    if remote is not None:
        job["remote"] = remote
    policies = {"retry": None if retry is None else json.loads(retry), "priority": priority, "hold": hold or None}
    job.update({key: value for key, value in policies.items() if value is not None})
    return job


def input_pattern(pattern: str, here: str, wd: str) -> str:
    """A pattern of files relative to `here`, as the manager takes it: relative to its working directory `wd`."""
    relative = posixpath.relpath(posixpath.join(here, pattern), wd)
    if relative.split("/", 1)[0] == "..":
        raise JobOptionError(
            f"--input {pattern!r} is not below {wd}, the working directory of the manager, from which inputs are"
            " copied; copy it there, or make a link"
        )
    return f"{relative}/" if pattern.endswith("/") else relative


def _split_nodes(nodes: str | None, cores: str | None) -> tuple[str | None, str | None]:
    """`--nodes 2x4` is `--nodes 2 --cores 4`."""
    count, times, each = (nodes or "").partition("x")
    if not times:
        return nodes, cores
    if cores is not None:
        raise JobOptionError(f"--nodes {nodes} says how many cores the job has on each node: leave out --cores")
    return count, each


def amount(option: str, text: str | None) -> dict[str, int] | None:
    """An amount of resources: `4`, `2-4`, or `2-` for two and more."""
    if text is None:
        return None
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise JobOptionError(f"{option} {text!r} is not a number; write 4, 2-4, or 2- for two and more")
    first, dash, last = found.groups()
    if not int(first):
        raise JobOptionError(f"{option} {text!r}: must be at least 1")
    if not dash:
        return {"exact": int(first)}
    return {"min": int(first), "max": int(last)} if last else {"min": int(first)}


def generate_name(program: str, token: str) -> str:
    """A unique job name that starts with the name of the program."""
    base = _NOT_FOR_NAMES.sub("_", program.rpartition("/")[2]).strip("_") or "job"
    short = base.encode()[: LONGEST_NAME // 2].decode(errors="ignore")
    return f"{short}-{token}"


def _check_stream(files: dict[str, str | None], remote: dict[str, Any] | None) -> None:
    for key in ("stdout", "stderr"):
        if files.get(key) is not None:
            raise JobOptionError(f"--stream-output and --{key} exclude each other; give one of them")
    if remote is not None:
        raise JobOptionError(
            "--stream-output is not possible for jobs on remote hosts; leave it out, and copy files back with --output"
        )


def _counters(texts: Sequence[str]) -> dict[str, int]:
    from qcg.pilotjob.description.counters import parse_counter, sorted_counters  # here: few jobs need it
    from qcg.pilotjob.description.errors import DescriptionError

    try:
        return dict(sorted_counters(map(parse_counter, texts)))
    except DescriptionError as error:
        raise JobOptionError(f"--named: {error.problems[0].sentence}") from None


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise JobOptionError(f"--env {text!r} sets no variable; write NAME=VALUE")
    return name, value
