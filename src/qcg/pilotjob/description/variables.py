"""`${name}` in the strings of a description.

Substitution goes value by value, so no character of a value can harm the rest. An execution is substituted twice: at
submission with what is known then, at launch with the rest. Everything else is substituted once, at submission.
`$${name}` stays until a string's last step makes it a literal `${name}`; values that are put in before the last step
are escaped the same way, so that nothing inside a value is ever taken for a variable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from qcg.pilotjob.description.model import Execution, Iteration, JobDescription, ModelOptions

_REFERENCE = re.compile(r"(\$?)\$\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}")

AT_LAUNCH = frozenset({"root_wd", "ncores", "nnodes", "nlist"})
OF_ITERATION = frozenset({"it", "itval", "its", "it_start", "it_stop"})
AT_SUBMISSION = frozenset({"rcnt", "uniq", "sname", "date", "time", "dateTime", "jname"})

# Most references wait for the launch; looking only for the others spares a call for each of them.
_EARLY_REFERENCE = re.compile(rf"(\$?)\$\{{\s*({'|'.join(sorted(AT_SUBMISSION | OF_ITERATION))})\s*\}}")


class Arrival(Struct, frozen=True):
    """What a submission tells its variables."""

    rcnt: int
    """Counts requests."""
    at: datetime
    sname: str
    """The name of the cluster."""
    uniq: str
    """Unique for the request; each job and each iteration adds its number."""

    def variables(self) -> dict[str, str]:
        return {
            "rcnt": str(self.rcnt),
            "sname": self.sname,
            "date": self.at.strftime("%Y-%m-%d"),
            "time": self.at.strftime("%H:%M:%S"),
            "dateTime": self.at.strftime("%Y-%m-%d %H:%M:%S"),
        }


def substitute(text: str, variables: Mapping[str, str]) -> str:
    """A string's last step: known variables get their values, unknown ones stay, `$${name}` becomes `${name}`."""
    if "${" not in text:
        return text

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        return variables.get(match[2], match[0])

    return _REFERENCE.sub(value, text)


def substitute_early(text: str, variables: Mapping[str, str]) -> str:
    """A step that is not the last: known variables get their values, everything else stays for later."""
    if "${" not in text:
        return text

    def value(match: re.Match[str]) -> str:
        if match[1] or match[2] not in variables:
            return match[0]
        return _REFERENCE.sub(r"$\g<0>", variables[match[2]])

    return _EARLY_REFERENCE.sub(value, text)


def substitute_submission(execution: Execution, variables: Mapping[str, str]) -> Execution:
    """The first of an execution's two steps."""
    return rewrite(execution, lambda text: substitute_early(text, variables))


def resolve_execution(execution: Execution, variables: Mapping[str, str]) -> Execution:
    """The last step, at launch: what comes out is what the job gets."""
    return rewrite(execution, lambda text: substitute(text, variables))


def substitute_everywhere(value: Any, variables: Mapping[str, str]) -> Any:
    """The last step for every string inside a free JSON value."""
    if isinstance(value, str):
        return substitute(value, variables)
    if isinstance(value, list):
        return [substitute_everywhere(item, variables) for item in value]
    if isinstance(value, dict):
        return {substitute(key, variables): substitute_everywhere(item, variables) for key, item in value.items()}
    return value


def index_variables(iteration: Iteration, index: int) -> dict[str, str]:
    """What the strings of one iteration can name of it."""
    return {
        "it": str(index),
        "itval": iteration.value(index),
        "its": str(len(iteration)),
        "it_start": str(iteration.start),
        "it_stop": str(iteration.stop),
    }


def iteration_variables(description: JobDescription, index: int) -> dict[str, str]:
    """What an execution still waits for when the iteration with this index starts; nothing without iterations."""
    if description.iteration is None:
        return {}
    return {**index_variables(description.iteration, index), "uniq": f"{description.uniq}-{index}"}


def launch_variables(root_wd: str, ncores: int, nodes: list[str]) -> dict[str, str]:
    """What is known once resources are granted. `nodes`: the names, each once."""
    return {"root_wd": root_wd, "ncores": str(ncores), "nnodes": str(len(nodes)), "nlist": ",".join(nodes)}


def references(text: str) -> list[str]:
    """The names of the variables in a string, escaped ones left out."""
    return [name for escape, name in _REFERENCE.findall(text) if not escape] if "${" in text else []


def rewrite(execution: Execution, change: Callable[[str], str]) -> Execution:
    """Change every string that may hold a variable. Runs at every launch; most executions stay as they are."""
    changed = _changes(execution, _TEXTS, _LISTS, change)
    if execution.env:
        env = execution.env
        if any("${" in key or "${" in value for key, value in env.items()):
            changed["env"] = {change(key): change(value) for key, value in env.items()}
    if execution.model_opts != _NO_OPTIONS:
        options = _changes(execution.model_opts, _OPTION_TEXTS, _OPTION_LISTS, change)
        if options:
            changed["model_opts"] = replace(execution.model_opts, **options)
    return replace(execution, **changed) if changed else execution


_TEXTS = ("exec", "script", "wd", "stdin", "stdout", "stderr", "venv")
_LISTS = ("args", "modules")
_OPTION_TEXTS = ("mpirun",)
_OPTION_LISTS = ("mpirun_args", "srun_args")
_NO_OPTIONS = ModelOptions()


def _changes(
    record: Execution | ModelOptions, texts: tuple[str, ...], lists: tuple[str, ...], change: Callable[[str], str]
) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for name in texts:
        text = getattr(record, name)
        if text is not None and "${" in text:
            changed[name] = change(text)
    for name in lists:
        for text in getattr(record, name):
            if "${" in text:
                changed[name] = tuple([change(text) for text in getattr(record, name)])
                break
    return changed
