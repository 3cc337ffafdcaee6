"""Substitution of variables `${name}` in the strings of a description.

An execution is substituted in two steps: at submission with the variables known then, at launch with the rest. All
other strings are substituted once, at submission.

`$${name}` means the same as `${name}` for the variables in `DOUBLED`, and the literal text `${name}` for all others;
`$$$${name}` is always the literal text. Literal texts keep their escape until the last step of a string. Values
inserted before the last step are escaped the same way, so that no part of a value is ever taken for a variable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from qcg.pilotjob.description.iteration import Iteration, RowSource, text_of
from qcg.pilotjob.description.limits import Budget, job_budget
from qcg.pilotjob.description.model import Execution, JobDescription, ModelOptions, Remote

AT_LAUNCH = frozenset({"root_wd", "ncores", "nnodes", "nlist", "attempt"})
OF_ITERATION = frozenset({"it", "itval", "its", "it_start", "it_stop"})
AT_SUBMISSION = frozenset({"rcnt", "uniq", "sname", "date", "time", "dateTime", "jname"})
DOUBLED = AT_LAUNCH | OF_ITERATION | {"jname"}
"""Variables that can also be written `$${name}`: versions up to 0.14 substituted them in a second step."""

_ESCAPE = r"(\$\$\$|\$)?"
_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
_MEMBER = r"(?:row|itval)\.[^{}$\n]{1,200}?"
"""A member of the value of an iteration: `row.temperature`. Names of columns are free text."""
_REFERENCE = re.compile(rf"{_ESCAPE}\$\{{\s*({_WORD}|{_MEMBER})\s*\}}")
_LITERAL = "$$$"
"""Escape before `${name}` that makes it literal text."""

# Most references are substituted at launch; matching only the others saves a call for each of them.
_EARLY_REFERENCE = re.compile(rf"{_ESCAPE}\$\{{\s*({'|'.join(sorted(AT_SUBMISSION | OF_ITERATION))}|{_MEMBER})\s*\}}")
_UNESCAPED = re.compile(rf"\$\{{\s*(?:{_WORD}|{_MEMBER})\s*\}}")


class SubmissionContext(Struct, frozen=True):
    """The values of the variables of one submission."""

    rcnt: int
    """Number of the request."""
    at: datetime
    """Time of the submission."""
    sname: str
    """Name of the cluster."""
    uniq: str
    """Unique id of the request; each job and each iteration appends its number."""

    def variables(self) -> dict[str, str]:
        """The variables of the submission, without those that depend on the job."""
        return {
            "rcnt": str(self.rcnt),
            "sname": self.sname,
            "date": self.at.strftime("%Y-%m-%d"),
            "time": self.at.strftime("%H:%M:%S"),
            "dateTime": self.at.strftime("%Y-%m-%d %H:%M:%S"),
        }


class Values(Protocol):
    """The values of variables: a mapping, or an object that computes them on demand."""

    def get(self, name: str, default: str, /) -> str: ...


def substitute(text: str, values: Values, budget: Budget | None = None) -> str:
    """The last step of a string: known variables are replaced, unknown ones stay, literal texts lose their escape."""
    if "${" not in text:
        return text
    references, rest = _split_cached(text) if len(text) <= _LONGEST_CACHED else _split(text)
    parts: list[str] = []
    added = 0
    for before, name, reference in references:
        value = values.get(name, reference)
        added += len(value)
        parts += (before, value)
    if budget is not None:
        budget.spend(added)
    parts.append(rest)
    return "".join(parts)


def _split(text: str) -> tuple[list[tuple[str, str, str]], str]:
    """Split a text into references (the text before it, its name, its spelling), and the text after the last one."""
    references = []
    before, end = "", 0
    for match in _REFERENCE.finditer(text):
        before += text[end : match.start()]
        end = match.end()
        escape, name = match[1] or "", match[2]
        written = match[0][len(escape) :]
        if _is_literal(escape, name):
            before += written
        else:
            references.append((before, name, written))
            before = ""
    return references, before + text[end:]


# Cached because the strings of an iterated job are substituted for each iteration.
_split_cached = lru_cache(maxsize=1024)(_split)
_LONGEST_CACHED = 1024


def substitute_early(text: str, variables: Mapping[str, str], budget: Budget | None = None) -> str:
    """A step before the last one: known variables are replaced by escaped values, everything else stays."""
    if "${" not in text:
        return text

    def value(match: re.Match[str]) -> str:
        if match[2] not in variables or _is_literal(match[1], match[2]):
            return match[0]
        if budget is not None:
            budget.spend(len(variables[match[2]]))
        # A dollar sign before the reference and a brace in the value would form another reference.
        dollar = text[match.start() - 1 : match.start()] == "$"
        return _escaped(f"${variables[match[2]]}")[1:] if dollar else _escaped(variables[match[2]])

    return _EARLY_REFERENCE.sub(value, text)


def _is_literal(escape: str | None, name: str) -> bool:
    """Whether a reference with this escape before it is literal text."""
    return bool(escape) and (escape == _LITERAL or name not in DOUBLED)


def _escaped(value: str) -> str:
    """Escape a value so that the last step restores it unchanged."""
    return _UNESCAPED.sub(_escape, value) if "${" in value else value


def _escape(match: re.Match[str]) -> str:
    return _LITERAL + match[0]


def substitute_submission(execution: Execution, variables: Mapping[str, str], budget: Budget) -> Execution:
    """The first step of an execution, at submission."""
    return rewrite(execution, lambda text: substitute_early(text, variables, budget))


def resolve_execution(execution: Execution, values: Values) -> Execution:
    """The last step of an execution, at launch."""
    budget = job_budget()
    return rewrite(execution, lambda text: substitute(text, values, budget))


def substitute_everywhere(value: Any, variables: Mapping[str, str], budget: Budget) -> Any:
    """The last step of every string inside a free JSON value."""
    if isinstance(value, str):
        return substitute(value, variables, budget)
    if isinstance(value, list):
        return [substitute_everywhere(item, variables, budget) for item in value]
    if isinstance(value, dict):
        return {
            substitute(key, variables, budget): substitute_everywhere(item, variables, budget)
            for key, item in value.items()
        }
    return value


_OF_INDEX: dict[str, Callable[[Iteration, int], str]] = {
    "it": lambda iteration, index: str(index),
    "itval": lambda iteration, index: text_of(iteration.value(index)),
    "its": lambda iteration, index: str(len(iteration)),
    "it_start": lambda iteration, index: str(iteration.start),
    "it_stop": lambda iteration, index: str(iteration.stop),
}


def index_variables(iteration: Iteration, index: int) -> dict[str, str]:
    """The variables of one iteration whose value is known without files."""
    known = {name: value(iteration, index) for name, value in _OF_INDEX.items()}
    value = iteration.value(index)
    if isinstance(value, dict):
        known.update({f"itval.{key}": text_of(inner) for key, inner in value.items()})
    return known


def iteration_variable(name: str, description: JobDescription, index: int, rows: RowSource | None = None) -> str | None:
    """The value of a variable that is known when the iteration with this index starts; None for other names.

    `rows`: reads the rows of parameter files. Raises RowError when a row cannot be read."""
    iteration = description.iteration
    if iteration is None:
        return None
    if name == "uniq":
        return f"{description.uniq}-{index}"
    value = _OF_INDEX.get(name)
    if value is None or (name == "itval" and iteration.rows is not None):
        return iteration.variable(name, index, rows)
    return value(iteration, index)


def launch_variables(root_wd: str, ncores: int, nodes: list[str]) -> dict[str, str]:
    """The variables that follow from the granted resources; `nodes` has the name of each node once."""
    return {"root_wd": root_wd, "ncores": str(ncores), "nnodes": str(len(nodes)), "nlist": ",".join(nodes)}


def references(text: str) -> list[str]:
    """The names of the variables in a string, without literal texts."""
    if "${" not in text:
        return []
    return [name for escape, name in _REFERENCE.findall(text) if not _is_literal(escape, name)]


def count_references(execution: Execution, name: str) -> int:
    """The number of references to a variable in an execution."""
    found = 0

    def look(text: str) -> str:
        nonlocal found
        found += references(text).count(name)
        return text

    rewrite(execution, look)
    return found


def rewrite(execution: Execution, change: Callable[[str], str]) -> Execution:
    """Apply `change` to every string with a variable. Called at every launch; most executions have none."""
    # One search in the encoded execution is faster than a search in each string.
    if b"${" not in _encode(execution):
        return execution
    changed = _changes(execution, _TEXTS, _LISTS, change)
    if execution.env:
        changed["env"] = {change(key): change(value) for key, value in execution.env.items()}
    if execution.model_opts != _NO_OPTIONS:
        options = _changes(execution.model_opts, _OPTION_TEXTS, _OPTION_LISTS, change)
        changed["model_opts"] = replace(execution.model_opts, **options)
    return replace(execution, **changed)


def texts_with_variables(execution: Execution, remote: Remote | None = None) -> list[str]:
    """All strings with a variable in which `rewrite`, and `rewrite_remote` for `remote`, substitute."""
    texts: list[str] = []

    def note(text: str) -> str:
        if "${" in text:
            texts.append(text)
        return text

    rewrite(execution, note)
    if remote is not None:
        rewrite_remote(remote, note)
    return texts


def rewrite_remote(remote: Remote, change: Callable[[str], str]) -> Remote:
    """Apply `change` to the directives, inputs and outputs of a job on a remote host."""
    return replace(
        remote,
        directives={change(key): change(value) for key, value in remote.directives.items()},
        inputs=tuple([change(text) for text in remote.inputs]),
        outputs=tuple([change(text) for text in remote.outputs]),
    )


_encode = msgspec.msgpack.Encoder().encode
_TEXTS = ("exec", "script", "wd", "stdin", "stdout", "stderr", "venv")
_LISTS = ("args", "modules")
_OPTION_TEXTS = ("mpirun",)
_OPTION_LISTS = ("mpirun_args", "srun_args")
_NO_OPTIONS = ModelOptions()


def _changes(
    record: Execution | ModelOptions, texts: tuple[str, ...], lists: tuple[str, ...], change: Callable[[str], str]
) -> dict[str, Any]:
    changed: dict[str, Any] = {
        name: change(text) for name in texts if (text := getattr(record, name)) is not None and "${" in text
    }
    for name in lists:
        if words := getattr(record, name):
            changed[name] = tuple([change(word) for word in words])
    return changed
