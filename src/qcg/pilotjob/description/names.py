"""Validation of job names and of references to other jobs in `after`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from qcg.pilotjob.description.errors import Problem, quoted
from qcg.pilotjob.description.limits import LONGEST_NAME, Budget
from qcg.pilotjob.description.variables import AT_LAUNCH, OF_ITERATION, references, substitute_early

SAME_INDEX = "${it}"

_BAD_IN_NAME = re.compile(r"""[\s:$'"`()\[\]{}\x00-\x1f\x7f]""")
_INDEX = re.compile(r"-?[0-9]{1,10}")
_SAME_INDEX = re.compile(r"\$?\$\{\s*it\s*\}")
_CHARACTERS = {
    ":": "a colon, which separates a job from its iteration",
    "$": "a dollar sign",
    **dict.fromkeys("'\"`", "a quote"),
    **dict.fromkeys("()[]{}", "a bracket"),
}


def final_name(given: str, variables: Mapping[str, str], budget: Budget, path: str, problems: list[Problem]) -> str:
    """The name of a job after variable substitution."""
    name = substitute_early(given, variables, budget)
    why = _name_error(name)
    if why is not None:
        problems.append(Problem(f"{path}.name", why))
    return name


def _name_error(name: str) -> str | None:
    if not name:
        return "the name is empty"
    if 4 * len(name) > LONGEST_NAME and len(name.encode()) > LONGEST_NAME:
        return f"the name {quoted(name)} has {len(name.encode())} bytes; at most {LONGEST_NAME} are allowed"
    bad = _BAD_IN_NAME.search(name)
    if bad is None:
        return None
    for variable in references(name):
        if variable in OF_ITERATION:
            return f"the name {quoted(name)} holds ${{{variable}}}, which needs iterations and ${{it}} in the name"
        if variable in AT_LAUNCH:
            return f"the name {quoted(name)} holds ${{{variable}}}, which is known only when the job starts"
        return f"the name {quoted(name)} holds the unknown variable ${{{variable}}}"
    return f"the name {quoted(name)} holds {_CHARACTERS.get(bad[0], 'white space or a control character')}"


def final_after(
    given: list[str] | str | None,
    variables: Mapping[str, str],
    budget: Budget,
    iterated: bool,
    path: str,
    problems: list[Problem],
) -> tuple[str, ...]:
    """The prerequisites of a job without duplicates: `job`, `job:3`, or `job:${it}` if it has iterations."""
    if not given:
        if given == "":
            problems.append(Problem(path, "is empty"))
        return ()
    if isinstance(given, str):
        return (_final_entry(substitute_early(given, variables, budget), iterated, path, problems),)
    entries = [
        _final_entry(substitute_early(entry, variables, budget), iterated, f"{path}[{number}]", problems)
        for number, entry in enumerate(given)
    ]
    return tuple(dict.fromkeys(entries))


def _final_entry(entry: str, iterated: bool, path: str, problems: list[Problem]) -> str:
    name, colon, index = entry.partition(":")
    if not entry:
        problems.append(Problem(path, "is empty"))
    elif "it" in references(name):
        sentence = (
            "${it} can be the index after a colon, as in job:${it}; elsewhere only if the job's own name holds it"
        )
        problems.append(Problem(path, sentence))
    elif why := _name_error(name):
        problems.append(Problem(path, why))
    elif _SAME_INDEX.fullmatch(index):
        if not iterated:
            problems.append(Problem(path, f"{quoted(entry)} means the same index, but this job has no iterations"))
        return f"{name}:{SAME_INDEX}"
    elif _INDEX.fullmatch(index):
        return f"{name}:{int(index)}"
    elif colon:
        problems.append(
            Problem(path, f"{quoted(entry)} names no iteration; write its index after the colon, as in job:3")
        )
    return entry
