"""Iterations from a command line in the manner of GNU parallel: `-- prog {} ::: a b`, `::: 'command a' 'command b'`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from qcg.pilotjob.cli.job_from_argv import JobOptionError

VALUES, LINKED = ":::", ":::+"
FROM_FILES = frozenset({"::::", "::::+"})
"""Separators of GNU parallel before files of values."""
_PLACE = re.compile(r"(?<!\$)\{(\d{0,4})\}")
"""`{}` or `{2}`, and not `${2}` of a shell script."""
_PART = re.compile(r"(?<!\$)\{\d{0,4}(\.|//|/\.|/)\}")
"""`{.}`, `{/}`, `{//}` and `{/.}` of GNU parallel, also as `{1.}`."""
_PARTS_IN_SHELL = {
    ".": ("without its ending", 'PROGRAM "${1%.*}"'),
    "/": ("without its directory", 'PROGRAM "${1##*/}"'),
    "//": ("that is its directory", 'PROGRAM "$(dirname "$1")"'),
    "/.": ("without its directory and ending", 'name=${1##*/}; PROGRAM "${name%.*}"'),
}


class Sweep(NamedTuple):
    """A job with an iteration for each combination of values."""

    program: list[str]
    """The program with its arguments; empty where the values are shell commands themselves."""
    script: str | None
    """The shell command of an iteration, where there is no program."""
    iteration: dict[str, Any]


class Words(NamedTuple):
    """The words of a command line, split at its separators."""

    options: list[str]
    program: list[str]
    values: list[str]
    """Everything from the first separator of values on."""


def split_words(words: Sequence[str]) -> Words:
    """Split `OPTIONS -- PROGRAM ::: VALUES`; the program or the values may be missing. Raises JobOptionError."""
    unknown = next((word for word in words if word in FROM_FILES), None)
    if unknown is not None:
        raise JobOptionError(
            f"{unknown} is not supported; write --each FILE for the rows of a .csv or .jsonl file, or --commands FILE"
            " for one shell command a line"
        )
    first = next((place for place, word in enumerate(words) if word in (VALUES, LINKED)), len(words))
    before, values = list(words[:first]), list(words[first:])
    if "--" not in before:
        return Words(before, [], values)
    dashes = before.index("--")
    return Words(before[:dashes], before[dashes + 1 :], values)


def sweep_of(program: Sequence[str], values: Sequence[str]) -> Sweep:
    """The job for a program and values that begin with a separator; raises JobOptionError."""
    separators = [word for word in values if word in (VALUES, LINKED)]
    if values[0] == LINKED:
        raise JobOptionError(f"{LINKED} goes with the values before it; begin with {VALUES}")
    lists: list[list[str]] = []
    for word in values:
        if word in (VALUES, LINKED):
            lists.append([])
        else:
            lists[-1].append(word)
    if not all(lists):
        raise JobOptionError(f"there are no values after {separators[lists.index([])]}")
    if len(lists) == 1:
        return _sweep(program, ["itval"], {"values": lists[0]})
    if len(set(separators[1:])) > 1:
        raise JobOptionError(f"{VALUES} combines values and {LINKED} pairs them; use one or the other")
    names = [f"arg{number}" for number in range(1, len(lists) + 1)]
    if separators[1] == LINKED and len({len(one) for one in lists}) > 1:
        counts = ", ".join(str(len(one)) for one in lists)
        raise JobOptionError(f"{LINKED} pairs values, so all lists must have equally many; these have {counts}")
    kind = "zip" if separators[1] == LINKED else "product"
    return _sweep(program, names, {kind: dict(zip(names, lists, strict=True))})


def commands_sweep(lines: Sequence[str]) -> Sweep:
    """The job for shell commands, one for each line; empty lines and comments are left out."""
    commands = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not commands:
        raise JobOptionError("there is no command in it")
    return _sweep([], ["itval"], {"values": commands})


def _sweep(program: Sequence[str], names: Sequence[str], iteration: dict[str, Any]) -> Sweep:
    variables = [f"${{{name}}}" for name in names]
    if not program:
        return Sweep([], " ".join(variables), iteration)
    part = next(filter(None, map(_PART.search, program)), None)
    if part is not None:
        what, instead = _PARTS_IN_SHELL[part[1]]
        raise JobOptionError(f"{part[0]} is not supported; for the value {what}: -- sh -c '{instead}' sh {{}}")
    if any(_PLACE.search(word) for word in program):
        return Sweep(
            [_PLACE.sub(lambda match: _inserted(match[1], variables), word) for word in program], None, iteration
        )
    return Sweep([*program, *variables], None, iteration)


def _inserted(number: str, variables: Sequence[str]) -> str:
    """The variables for `{}`, or the one for `{2}`."""
    if not number:
        return " ".join(variables)
    if not 1 <= int(number) <= len(variables):
        raise JobOptionError(
            f"{{{number}}} means the values after {VALUES} number {number}, and there are {len(variables)}"
        )
    return variables[int(number) - 1]
