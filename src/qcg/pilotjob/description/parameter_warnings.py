"""Warnings about parameters of iterations that a job does not use, or refers to in a form that is no variable."""

from __future__ import annotations

import re

import msgspec
from msgspec.structs import replace

from qcg.pilotjob.description.errors import one_line
from qcg.pilotjob.description.iteration import HEADS, Iteration
from qcg.pilotjob.description.model import Execution, JobDescription
from qcg.pilotjob.description.variables import references, texts_with_variables

_INDEX = frozenset({"it", "itval", "uniq"})
"""Variables from which a program may find its parameters itself."""
_IN_BRACES = re.compile(r"(?<!\$)\{(\w+)\}")
"""`{T}`, and not `${T}`."""
_encode = msgspec.msgpack.Encoder().encode


def parameter_warnings(job: JobDescription) -> list[str]:
    """A warning about parameters of a file, a product or a zip that no string of the job refers to; or else one for
    each of them that is an argument in the form `{T}`."""
    iteration = job.iteration
    if iteration is None:
        return []
    names = _names(iteration)
    if not names:
        return []
    if _uses_any(job, names):
        head = "row." if iteration.rows is not None else ""
        return [
            f"{{{name}}} is no variable and stays as it is; did you mean ${{{head}{name}}}?"
            for name in _in_braces(job.execution.args)
            if name in names
        ]
    name = _meant(job.execution, names)
    if iteration.rows is None:
        kind = "product" if iteration.crossed else "zip"
        return [f"no parameter of the {kind} is used; write ${{{name}}} for the value of {name}"]
    file = one_line(iteration.rows.path.rpartition("/")[2])
    return [f"no parameter of {file} is used; write ${{row.{name}}} for the value of column {name}"]


def blanks_around_values(iteration: Iteration) -> list[str]:
    """A warning about blanks next to the commas of a file, which belong to the values."""
    if iteration.rows is None or not iteration.rows.padded:
        return []
    file = one_line(iteration.rows.path.rpartition("/")[2])
    name = one_line(iteration.rows.padded)
    return [f"values of column {name} of {file} begin or end with blanks, which are kept; remove blanks next to commas"]


def _names(iteration: Iteration) -> tuple[str, ...]:
    if iteration.rows is not None:
        return tuple(filter(None, iteration.rows.columns))
    return tuple(iteration.names or ())


def _uses_any(job: JobDescription, names: tuple[str, ...]) -> bool:
    """Whether a string refers to a parameter. An index in the name of an output file selects no parameters."""
    own = frozenset(names) if job.iteration is not None and job.iteration.rows is None else frozenset()
    wanted = HEADS | own
    if any(wanted.intersection(_heads(text)) for text in texts_with_variables(job.execution, job.remote)):
        return True
    inner = replace(job.execution, stdout=None, stderr=None)
    return any(_INDEX.intersection(_heads(text)) for text in texts_with_variables(inner, job.remote))


def _in_braces(args: tuple[str, ...]) -> list[str]:
    """Words in braces in arguments. Arguments with blanks are left out: they may be programs in other languages."""
    words = [arg for arg in args if "{" in arg and not any(map(str.isspace, arg))]
    return list(dict.fromkeys(name for word in words for name in _IN_BRACES.findall(word)))


def _heads(text: str) -> list[str]:
    return [name.partition(".")[0] for name in references(text)]


def _meant(execution: Execution, names: tuple[str, ...]) -> str:
    """The parameter whose name is in other braces, `{T}`, or behind a dollar sign, `$T`; else the first one."""
    encoded = _encode(execution)
    written = (name for name in names if f"{{{name}}}".encode() in encoded or f"${name}".encode() in encoded)
    return one_line(next(written, names[0]))
