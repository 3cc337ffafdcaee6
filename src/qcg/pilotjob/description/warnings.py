"""Warnings about descriptions that are valid but probably not intended."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from qcg.pilotjob.description.column_references import has_column, unclosed_references
from qcg.pilotjob.description.errors import one_line, quoted, suggestion
from qcg.pilotjob.description.iteration import HEADS, MISSING, Iteration, member
from qcg.pilotjob.description.model import Execution, JobDescription
from qcg.pilotjob.description.parameter_warnings import blanks_around_values, parameter_warnings
from qcg.pilotjob.description.shell_words import names_no_shell_reads
from qcg.pilotjob.description.variables import (
    AT_LAUNCH,
    AT_SUBMISSION,
    OF_ITERATION,
    references,
    texts_with_variables,
)

_TELLS_ITERATIONS_APART = frozenset({"it", "itval", "row", "uniq"})
_KNOWN = tuple(sorted(AT_SUBMISSION | OF_ITERATION | AT_LAUNCH))


def warnings_for(job: JobDescription) -> list[str]:
    """All warnings about a job, as sentences."""
    return variable_warnings(job) + iteration_warnings(job)


def iteration_warnings(job: JobDescription) -> list[str]:
    """Warnings about output files shared by all iterations, and about parameters that are not used. The cost
    does not depend on the number of iterations."""
    if job.iteration is None:
        return []
    parameters = parameter_warnings(job)
    if parameters and variable_warnings(job):  # which names the variable that is probably meant
        parameters = []
    return (
        parameters
        + blanks_around_values(job.iteration)
        + _without_braces(job.execution)
        + _same_files(job.execution, job.iteration)
    )


def variable_warnings(job: JobDescription) -> list[str]:
    """Warnings about references that look like variables but are not substituted."""
    encoded = _encode(job.execution)
    if b"${" not in encoded or _WITH_ITERATIONS[job.iteration is not None].issuperset(_NAMES.findall(encoded)):
        return []
    texts = texts_with_variables(job.execution)
    own = _Assigned(texts, job.execution.env)
    unread = names_no_shell_reads(job.execution)
    without_value: list[str] = []
    unknown: list[str] = []
    found: list[str] = []
    named = (job.iteration.names or {}) if job.iteration is not None else {}
    for name in dict.fromkeys(name for text in texts for name in references(text)):
        head, dot, key = name.partition(".")
        if name in OF_ITERATION:
            if job.iteration is None and name not in own:
                without_value.append(f"${{{name}}}")
        elif dot:
            found += _about_member(head, key, job.iteration)
        elif name not in _KNOWN and name not in named:
            near = _with_head(name, job.iteration) or nearest_variable(name, *named)
            if near and name not in own:
                found.append(f"${{{name}}} is no variable and stays as it is; did you mean ${{{near}}}?")
            elif name in unread:
                unknown.append(f"${{{name}}}")
    for name, key in dict.fromkeys(dotted for text in texts for dotted in _DOTTED.findall(text)):
        near = name if name in _KNOWN else nearest_variable(name)
        if near is not None and name not in HEADS:
            found.append(f"${{{name}.{key}}} is no variable and stays as it is; ${{{near}}} is known as a whole only")
    found += unclosed_references(job)
    if unknown:
        are = "is no variable and stays as it is" if len(unknown) == 1 else "are no variables and stay as they are"
        found.append(
            f"{', '.join(unknown)} {are}: no shell reads args and paths; put the command into script if one should"
        )
    if without_value:
        have = "has" if len(without_value) == 1 else "have"
        found.append(
            f'{", ".join(without_value)} {have} no value in a job without iterations; give the job an "iteration"'
        )
    return found


def _without_braces(execution: Execution) -> list[str]:
    """A warning about `$it` in a script that does not assign it."""
    script = execution.script
    if script is None or "$it" not in script:
        return []
    own = _Assigned([script], execution.env)
    names = dict.fromkeys(name for name in _UNBRACED.findall(script) if name not in own)
    return [f"${name} is a variable of the shell without a value; write ${{{name}}}" for name in names]


def _with_head(name: str, iteration: Iteration | None) -> str | None:
    """`row.T` for a name `T` that is a column of the file, `itval.T` for one that is a key of the values."""
    if iteration is None:
        return None
    if iteration.rows is not None:
        return f"row.{name}" if name in iteration.rows.columns else None
    first = iteration.values[0] if iteration.values else None
    return f"itval.{name}" if isinstance(first, dict) and name in first else None


def _about_member(head: str, key: str, iteration: Iteration | None) -> list[str]:
    """A warning about `${row.KEY}` or `${itval.KEY}` where there is no such key."""
    written = f"${{{head}.{key}}}"
    if iteration is None or not iteration.has_values or (head == "row" and iteration.rows is None):
        needs = '"file"' if head == "row" else '"values" that are objects'
        return [f'{written} has no value and stays as it is; give the job an "iteration" with {needs}']
    if iteration.rows is not None:
        # An unknown `${row.KEY}` is an error.
        if head == "row" or has_column(iteration.rows, key):
            return []
        columns = tuple(filter(None, iteration.rows.columns))
        file = one_line(iteration.rows.path.rpartition("/")[2])
        return [f"{written} stays as it is: {file} has no column {quoted(key)}{suggestion(key, columns)}"]
    if iteration.names is not None:
        known = tuple(iteration.names)
        if key.partition(".")[0] in known:
            return []
        return [f"{written} stays as it is: there is no {quoted(key)}{suggestion(key, known)}"]
    values = iteration.values or ()
    lacking = [position for position, value in enumerate(values) if member(value, key) is MISSING]
    if not lacking:
        return []
    first = values[lacking[0]]
    hint = suggestion(key, tuple(first)) if isinstance(first, dict) else ""
    if len(lacking) == len(values):
        return [f"{written} stays as it is: no value has {quoted(key)}{hint}"]
    some = f"{len(lacking)} of {len(values)} values have no {quoted(key)}"
    return [f"{written} stays as it is: {some}, the first of them is value {lacking[0]}{hint}"]


# One search in the encoded execution is faster than a search in each string; most jobs contain only known variables.
_encode = msgspec.msgpack.Encoder().encode
_NAMES = re.compile(rb"\$\{\s*([^}]{0,20})")
_WITH_ITERATIONS = [
    {name.encode() for name in AT_LAUNCH | AT_SUBMISSION | more} for more in (frozenset(), OF_ITERATION)
]
"""Known variables of a job without iterations (first) and with iterations (second)."""
_DOTTED = re.compile(r"\$\{\s*([A-Za-z_][A-Za-z0-9_]*)\.([A-Za-z0-9_.-]{1,60})\s*\}")


_UNBRACED = re.compile(r"(?<![\\$])\$(it|itval)\b")


class _Assigned:
    """Variables of the job itself: from its environment, or assigned in its scripts."""

    def __init__(self, texts: list[str], environment: Iterable[str]) -> None:
        self._texts = texts
        self._names: set[str] | None = None
        self._environment = set(environment)
        self._reads_files = False

    def __contains__(self, name: str) -> bool:
        if self._names is None:
            self._names = {found for text in self._texts for found in _assigned_in(text)} | self._environment
            self._reads_files = any(_READS_FILES.search(text) for text in self._texts)
        return self._reads_files or name in self._names


_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Matches cannot overlap, so a search takes linear time.
_ASSIGNMENT = re.compile(r"\b([A-Za-z_][A-Za-z0-9_]*)\+?=|\b(?:for|select)\s+([A-Za-z_][A-Za-z0-9_]*)")
_DECLARATION = re.compile(r"\b(?:read|readarray|mapfile|local|declare|typeset|export|getopts|printf)\b([^;\n]*)")
_READS_FILES = re.compile(r"(?:^|[;&|\s])(?:\.|source|eval)\s", re.MULTILINE)


def _assigned_in(text: str) -> set[str]:
    """The variables that a script assigns, found by a simple text search."""
    names = {name for pair in _ASSIGNMENT.findall(text) for name in pair if name}
    names.update(name for words in _DECLARATION.findall(text) for name in _WORD.findall(words))
    return names


_ORDINARY = frozenset({"name", "list"})
"""Names that scripts often use for their own variables, so that no similar variable is suggested."""
_SHORT = frozenset({"it", "its", "date", "time"})
"""Variables similar to many words: only words of the same letters are taken for misspellings."""
_LONG = 6


@lru_cache(maxsize=1024)
def nearest_variable(name: str, *further: str) -> str | None:
    """The variable that a name is probably a misspelling of; names in capitals are environment variables.

    `further`: names of the job's own, besides the variables of every job."""
    if len(name) < 3 or len(name) > 2 * _LONG or name.isupper() or name in _ORDINARY:
        return None
    candidates = (*_KNOWN, *further)
    found = [(_distance(name.lower(), known.lower()), known) for known in candidates if _may_be(name, known)]
    near = [(distance, known) for distance, known in found if distance <= _allowed(name, known)]
    return min(near)[1] if near else None


def _may_be(name: str, known: str) -> bool:
    if abs(len(name) - len(known)) > _allowed(name, known):
        return False
    if known not in _SHORT:
        return True
    return set(name.lower()) <= set(known) and (len(name) != len(known) or sorted(name.lower()) == sorted(known))


def _allowed(name: str, known: str) -> int:
    return 2 if min(len(name), len(known)) >= _LONG else 1


def _distance(one: str, other: str) -> int:
    """The edit distance of two words, where swapping two neighbouring characters counts as one edit."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for row_number, character in enumerate(one, 1):
        before, last, row = row, before, [row_number]
        for position, wanted in enumerate(other, 1):
            best = min(before[position] + 1, row[-1] + 1, before[position - 1] + (character != wanted))
            if row_number > 1 and position > 1 and character == other[position - 2] and one[row_number - 2] == wanted:
                best = min(best, last[position - 2] + 1)
            row.append(best)
    return row[-1]


def _same_files(execution: Execution, iteration: Iteration) -> list[str]:
    """Each start empties the file."""
    iterations = len(iteration)
    if iterations == 1 or (execution.stdout is None and execution.stderr is None):
        return []
    telling = _TELLS_ITERATIONS_APART.union(iteration.names or ())
    named: dict[str, list[str]] = {}
    for stream, path in (("stdout", execution.stdout), ("stderr", execution.stderr)):
        if path is not None and not path.startswith("/dev/"):
            named.setdefault(path, []).append(stream)
    return [
        f"all {iterations} iterations write their {' and '.join(streams)} to the same file, {quoted(path)};"
        " put ${it} into its name"
        for path, streams in named.items()
        if telling.isdisjoint(name.partition(".")[0] for name in references(_full_path(execution, path)))
    ]


def _full_path(execution: Execution, path: str) -> str:
    return path if path.startswith("/") else f"{execution.wd or ''}/{path}"
