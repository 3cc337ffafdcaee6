"""From what users write to the model: the public face of this room."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any

import msgspec

from qcg.pilotjob.description import normalize
from qcg.pilotjob.description.errors import DescriptionError, Problem, quoted
from qcg.pilotjob.description.forms import SYNONYMS, ExecutionForm, ResourcesForm, SimpleForm, StandardForm
from qcg.pilotjob.description.json_input import BACKSLASH, DOLLAR, InvalidJson, as_json, decode_untyped
from qcg.pilotjob.description.limits import Budget, ExpansionError, job_budget, submission_budget
from qcg.pilotjob.description.model import Iteration, JobDescription, Sharing
from qcg.pilotjob.description.names import final_after, final_name
from qcg.pilotjob.description.validation import find_nulls, find_problems, without_problems
from qcg.pilotjob.description.variables import (
    SubmissionContext,
    count_references,
    index_variables,
    references,
    substitute_everywhere,
    substitute_submission,
)

__all__ = ["SubmissionContext", "check_alone", "parse_in_steps", "parse_jobs", "simple_to_standard"]

ENOUGH = 10_000
"""Problems after which the rest of a submission is not looked at: a file that is wrong throughout is told so soon."""
MOST_EXPANDED = 1_000_000
STEP = 500
"""Jobs between two pauses."""

_decode_standard = msgspec.json.Decoder(StandardForm).decode
_decode_simple = msgspec.json.Decoder(SimpleForm).decode
_NUMBER = re.compile(r"^job\[0\]")
_GROUPS = re.compile(r"^job\[0\](?:\.(?:execution|resources|dependencies)\b)?")
_ANY_ARRIVAL = SubmissionContext(0, datetime(2000, 1, 1), "", "")
_OF_STANDARD = ("resources", "dependencies", "attributes")
_EXPANDING = frozenset({"it", "itval"})


def parse_jobs(
    jobs: Sequence[msgspec.Raw | bytes | dict[str, Any]], arrival: SubmissionContext, path: str = "jobs"
) -> list[JobDescription]:
    """The jobs of one submission, or a `DescriptionError` with all problems of all of them."""
    steps = parse_in_steps(jobs, arrival, path)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            described: list[JobDescription] = done.value
            return described


def parse_in_steps(
    jobs: Sequence[msgspec.Raw | bytes | dict[str, Any]], arrival: SubmissionContext, path: str = "jobs"
) -> Generator[None, None, list[JobDescription]]:
    """The same for those who have other things to do in between: it pauses every few milliseconds."""
    problems: list[Problem] = []
    described: list[JobDescription] = []
    places: dict[str, str] = {}
    variables = arrival.variables()
    budget = submission_budget()
    for number, job in enumerate(jobs):
        where = f"{path}[{number}]"
        for description in _read_job(job, variables, budget, f"{arrival.uniq}-{number}", where, problems):
            if description.name in places:
                sentence = f"{quoted(description.name)} is already the name of {places[description.name]}"
                problems.append(Problem(f"{where}.name", sentence))
            else:
                places[description.name] = where
            described.append(description)
            if len(described) % STEP == 0:
                yield
        if number % STEP == 0:
            yield
        if len(problems) >= ENOUGH:
            problems.append(Problem(where, "after so many problems the rest was not looked at"))
            break
    if problems:
        raise DescriptionError(problems)
    return described


def simple_to_standard(attributes: dict[str, Any]) -> dict[str, Any]:
    """The standard form of a job in the simple form, with short notations written out.

    Only the structure is checked; `parse_jobs` on the result checks the rest.
    """
    problems: list[Problem] = []
    try:
        form = _decode(as_json(attributes), "job", problems, only_simple=True)
    except InvalidJson as unreadable:
        raise DescriptionError([Problem("job", f"the job {unreadable}")]) from None
    if form is None:
        raise DescriptionError(problems)
    given: dict[str, Any] = msgspec.to_builtins(form)
    for key in ("args", "after"):
        if isinstance(given.get(key), str):
            given[key] = [given[key]]
    for key in ("numCores", "numNodes"):
        if isinstance(given.get(key), int):
            given[key] = {"exact": given[key]}
    if isinstance(given.get("iteration"), int):
        given["iteration"] = {"start": 0, "stop": given["iteration"]}
    elif isinstance(given.get("iteration"), list):
        given["iteration"] = {"values": given["iteration"]}
    standard: dict[str, Any] = {"name": given["name"]}
    standard |= {key: given[key] for key in ("iteration", "iterate") if key in given}
    standard["execution"] = {key: given[key] for key in ExecutionForm.__struct_encode_fields__ if key in given}
    resources = {key: given[key] for key in ResourcesForm.__struct_encode_fields__ if key in given}
    if resources:
        standard["resources"] = resources
    if "after" in given:
        standard["dependencies"] = {"after": given["after"]}
    return standard


def check_alone(job: dict[str, Any], *, simple: bool) -> None:
    """One job in the standard form, outside a submission. Problems are told where its author wrote them, which may have
    been in the simple form."""
    try:
        parse_jobs([job], _ANY_ARRIVAL, path="job")
    except DescriptionError as error:
        groups = _GROUPS if simple else _NUMBER
        raise DescriptionError([Problem(groups.sub("job", one.path), one.sentence) for one in error.problems]) from None


def _read_job(
    job: msgspec.Raw | bytes | dict[str, Any],
    variables: dict[str, str],
    budget: Budget,
    uniq: str,
    where: str,
    problems: list[Problem],
) -> Iterable[JobDescription]:
    """The job, or the jobs that it expands to; none of any use when problems were added."""
    try:
        text = as_json(job)
        form = _decode(text, where, problems)
    except InvalidJson as unreadable:
        problems.append(Problem(where, f"the job {unreadable}"))
        return ()
    if form is None:
        return ()
    template = _template(form, uniq, where, problems)
    after, after_path = _after(form, where)
    if template.iteration is not None and not _EXPANDING.isdisjoint(references(template.name)):
        return _expanded(template, template.iteration, after, variables, budget, uniq, where, after_path, problems)
    known = {**variables, "uniq": uniq} if DOLLAR in text or BACKSLASH in text else {}
    return (_finish(template, after, known, budget, where, after_path, problems),)


def _expanded(
    template: JobDescription,
    iteration: Iteration,
    after: list[str] | str | None,
    variables: dict[str, str],
    budget: Budget,
    uniq: str,
    where: str,
    after_path: str,
    problems: list[Problem],
) -> Iterator[JobDescription]:
    found = len(problems)
    template = _single(template, iteration, where, problems)
    if len(problems) > found:
        return
    for position, index in enumerate(iteration.indices()):
        if template.sharing is not None:
            sharing = msgspec.structs.replace(template.sharing, position=position)
            template = msgspec.structs.replace(template, sharing=sharing)
        known = {**variables, **index_variables(iteration, index), "uniq": f"{uniq}-{index}"}
        found = len(problems)
        finished = _finish(template, after, known, budget, where, after_path, problems)
        wrong = len(problems) > found
        yield finished
        if wrong:  # and the others would be in the same way
            return


def _decode(
    text: bytes, where: str, problems: list[Problem], only_simple: bool = False
) -> StandardForm | SimpleForm | None:
    """At the decoder's speed when the job is right; only a wrong one is walked through."""
    if BACKSLASH in text and rb"\u0000" in text:
        nulls = find_nulls(decode_untyped(text), where)
        if nulls:
            problems += nulls
            return None
    try:
        if only_simple:
            return _decode_simple(text)
        if text.find(b'"execution"') >= 0:
            return _decode_standard(text)
        form = _decode_simple(text)
        if form.exec is not None or form.script is not None:
            return form
        value = decode_untyped(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = decode_untyped(text)
    is_simple = only_simple or _is_simple(value)
    try:
        return _decode_simple(text) if is_simple else _decode_standard(text)
    except msgspec.ValidationError as error:
        expected = SimpleForm if is_simple else StandardForm
        found = find_problems(value, expected, where) or [Problem(where, f"the job is not right: {error}")]
        problems += [*found, *_further_problems(value, expected, where, found)]
    return None


def _is_simple(value: Any) -> bool:
    """Whether the simple form is meant, where not every key is spelt right."""
    if not isinstance(value, dict) or "execution" in value:
        return False
    if "exec" in value or "script" in value:
        return True
    standard, simple = StandardForm.__struct_encode_fields__, SimpleForm.__struct_encode_fields__
    others = [key for key in value if key not in standard]
    nearest = [SYNONYMS[key] for key in others if key in SYNONYMS]
    nearest += [near for key in others for near in get_close_matches(key[:100], (*simple, "execution"), n=1)]
    if "execution" in nearest or not value.keys().isdisjoint(_OF_STANDARD):
        return False
    return bool(nearest) or not others


def _further_problems(
    value: Any, expected: type[StandardForm | SimpleForm], where: str, found: list[Problem]
) -> list[Problem]:
    """What else is wrong, in places where nothing was found yet: a slip must not hide others until it is mended."""
    try:
        right = msgspec.convert(without_problems(value, expected), expected)
    except msgspec.ValidationError:
        return []
    further: list[Problem] = []
    template = _template(right, "", where, further)
    after, after_path = _after(right, where)
    _finish(template, after, {"uniq": ""}, submission_budget(), where, after_path, further)
    # What was left out is missed around it: that is no news.
    return [
        problem for problem in further if not any(f"{other.path}.".startswith(f"{problem.path}.") for other in found)
    ]


def _template(form: StandardForm | SimpleForm, uniq: str, where: str, problems: list[Problem]) -> JobDescription:
    """All but the substitution."""
    if isinstance(form, SimpleForm):
        execution = normalize.execution_of(form, where, problems)
        iteration = normalize.iteration_of(form, where, problems)
        needs = normalize.resources_of(form, execution.model, iteration, where, problems)
    else:
        execution = normalize.execution_of(form.execution, f"{where}.execution", problems)
        iteration = normalize.iteration_of(form, where, problems)
        needs = normalize.resources_of(form.resources, execution.model, iteration, f"{where}.resources", problems)
    attributes = (form.attributes if isinstance(form, StandardForm) else None) or {}
    if attributes and not normalize.check_storable(attributes, f"{where}.attributes", problems):
        attributes = {}
    # In the order of its fields, here and where executions are made: naming them takes longer than all the rest.
    return JobDescription(form.name, execution, *needs, iteration, (), attributes, "" if iteration is None else uniq)


def _after(form: StandardForm | SimpleForm, where: str) -> tuple[list[str] | str | None, str]:
    if isinstance(form, SimpleForm):
        return form.after, f"{where}.after"
    return (None if form.dependencies is None else form.dependencies.after), f"{where}.dependencies.after"


def _single(template: JobDescription, iteration: Iteration, where: str, problems: list[Problem]) -> JobDescription:
    """The template of the jobs that each index becomes: no longer iterations of one job."""
    sharing = template.sharing
    if len(iteration) > MOST_EXPANDED:
        sentence = f"{len(iteration)} jobs are too many; without ${{it}} in the name they are iterations of one job"
        problems.append(Problem(f"{where}.name", sentence))
    if sharing is not None:
        sharing = Sharing(sharing.name, sharing.of, sharing.parts, len(iteration))
    return msgspec.structs.replace(template, iteration=None, sharing=sharing, uniq="")


def _finish(
    template: JobDescription,
    after: list[str] | str | None,
    variables: dict[str, str],
    budget: Budget,
    where: str,
    after_path: str,
    problems: list[Problem],
) -> JobDescription:
    """The submission's step of the variables; `variables` is empty where nothing of the job can name one. `budget` is
    that of the submission."""
    try:
        return _substituted(template, after, variables, job_budget(budget), where, after_path, problems)
    except ExpansionError as error:
        problems.append(Problem(where, str(error)))
        return template


def _substituted(
    template: JobDescription,
    after: list[str] | str | None,
    variables: dict[str, str],
    budget: Budget,
    where: str,
    after_path: str,
    problems: list[Problem],
) -> JobDescription:
    """`uniq` of an iteration is not known before it starts."""
    name = final_name(template.name, variables, budget, where, problems)
    known = {**variables, "jname": name} if variables else {}
    final = final_after(after, known, budget, template.iteration is not None, after_path, problems)
    if not known:
        return msgspec.structs.replace(template, after=final) if final else template
    attributes = template.attributes and substitute_everywhere(template.attributes, known, budget)
    if template.iteration is not None:
        del known["uniq"]
    execution = substitute_submission(template.execution, known, budget)
    if template.iteration is not None and template.iteration.values is not None:
        # Put in at the start of each iteration; here, so that it is told at once when the longest is too long.
        job_budget().spend(max(map(len, template.iteration.values)) * count_references(execution, "itval"))
    return msgspec.structs.replace(template, name=name, execution=execution, after=final, attributes=attributes)
