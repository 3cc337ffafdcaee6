"""Parsing of job descriptions: from user input to `JobDescription`."""

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
from qcg.pilotjob.description.validation import find_nul_characters, find_problems, without_problems
from qcg.pilotjob.description.variables import (
    SubmissionContext,
    count_references,
    index_variables,
    references,
    substitute_everywhere,
    substitute_submission,
)

__all__ = ["SubmissionContext", "check_single_job", "parse_in_steps", "parse_jobs", "simple_to_standard"]

MAX_PROBLEMS = 10_000
"""Number of problems after which the rest of a submission is not checked."""
MAX_EXPANDED = 1_000_000
"""Jobs that one description with `${it}` in its name may expand to."""
STEP = 500
"""Jobs parsed between two pauses of `parse_in_steps`."""

_decode_standard = msgspec.json.Decoder(StandardForm).decode
_decode_simple = msgspec.json.Decoder(SimpleForm).decode
_NUMBER = re.compile(r"^job\[0\]")
_GROUPS = re.compile(r"^job\[0\](?:\.(?:execution|resources|dependencies)\b)?")
_ANY_CONTEXT = SubmissionContext(0, datetime(2000, 1, 1), "", "")
_OF_STANDARD = ("resources", "dependencies", "attributes")
_EXPANDING = frozenset({"it", "itval"})


def parse_jobs(
    jobs: Sequence[msgspec.Raw | bytes | dict[str, Any]], context: SubmissionContext, path: str = "jobs"
) -> list[JobDescription]:
    """Parse the jobs of one submission; raises `DescriptionError` with all problems of all jobs."""
    steps = parse_in_steps(jobs, context, path)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            described: list[JobDescription] = done.value
            return described


def parse_in_steps(
    jobs: Sequence[msgspec.Raw | bytes | dict[str, Any]], context: SubmissionContext, path: str = "jobs"
) -> Generator[None, None, list[JobDescription]]:
    """Like `parse_jobs`, as a generator that yields every few milliseconds, for use in an event loop."""
    problems: list[Problem] = []
    described: list[JobDescription] = []
    paths: dict[str, str] = {}
    variables = context.variables()
    budget = submission_budget()
    for number, job in enumerate(jobs):
        where = f"{path}[{number}]"
        for description in _read_job(job, variables, budget, f"{context.uniq}-{number}", where, problems):
            if description.name in paths:
                sentence = f"{quoted(description.name)} is already used by {paths[description.name]}"
                problems.append(Problem(f"{where}.name", sentence))
            else:
                paths[description.name] = where
            described.append(description)
            if len(described) % STEP == 0:
                yield
        if number % STEP == 0:
            yield
        if len(problems) >= MAX_PROBLEMS:
            problems.append(Problem(where, "too many problems; the rest was not checked"))
            break
    if problems:
        raise DescriptionError(problems)
    return described


def simple_to_standard(attributes: dict[str, Any]) -> dict[str, Any]:
    """Convert a job from the simple to the standard form, with abbreviations expanded.

    Only the syntax is checked; `parse_jobs` on the result checks the rest.
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


def check_single_job(job: dict[str, Any], *, simple: bool) -> None:
    """Check one job in the standard form, outside a submission; raises `DescriptionError`.

    `simple`: the user wrote it in the simple form, so problems are reported with the paths of that form.
    """
    try:
        parse_jobs([job], _ANY_CONTEXT, path="job")
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
    """Parse one job, which may expand to several; the result is not usable when problems were added."""
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
        if wrong:  # the other indices would have the same problem
            return


def _decode(
    text: bytes, where: str, problems: list[Problem], only_simple: bool = False
) -> StandardForm | SimpleForm | None:
    """Decode a job; only a job that the decoder rejects is walked through to find all its problems."""
    if BACKSLASH in text and rb"\u0000" in text:
        nulls = find_nul_characters(decode_untyped(text), where)
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
        found = find_problems(value, expected, where) or [Problem(where, f"the job is not valid: {error}")]
        problems += [*found, *_further_problems(value, expected, where, found)]
    return None


def _is_simple(value: Any) -> bool:
    """Guess whether the simple form is meant, although some keys may be misspelt."""
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
    """Problems in the valid parts of a job with syntax problems, so that one mistake does not hide others."""
    try:
        form = msgspec.convert(without_problems(value, expected), expected)
    except msgspec.ValidationError:
        return []
    further: list[Problem] = []
    template = _template(form, "", where, further)
    after, after_path = _after(form, where)
    _finish(template, after, {"uniq": ""}, submission_budget(), where, after_path, further)
    # A part that was left out because of its problems causes follow-up problems at the paths around it.
    return [
        problem for problem in further if not any(f"{other.path}.".startswith(f"{problem.path}.") for other in found)
    ]


def _template(form: StandardForm | SimpleForm, uniq: str, where: str, problems: list[Problem]) -> JobDescription:
    """The job description before variable substitution."""
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
    # Positional arguments, here and for `Execution`: keyword arguments would take longer than all the rest.
    return JobDescription(form.name, execution, *needs, iteration, (), attributes, "" if iteration is None else uniq)


def _after(form: StandardForm | SimpleForm, where: str) -> tuple[list[str] | str | None, str]:
    if isinstance(form, SimpleForm):
        return form.after, f"{where}.after"
    return (None if form.dependencies is None else form.dependencies.after), f"{where}.dependencies.after"


def _single(template: JobDescription, iteration: Iteration, where: str, problems: list[Problem]) -> JobDescription:
    """The template for jobs expanded from one description: jobs of their own, without iterations."""
    sharing = template.sharing
    if len(iteration) > MAX_EXPANDED:
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
    """Substitute the variables known at submission.

    `variables` is empty if the job contains none. `budget` is the budget of the submission.
    """
    if variables:
        budget = job_budget(budget)
    try:
        return _substituted(template, after, variables, budget, where, after_path, problems)
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
    """Substitute variables in name, `after`, attributes and execution; `${uniq}` of an iteration is left for launch."""
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
        # `${itval}` is substituted at each launch; checked here, so that a value that is too long is rejected at once.
        job_budget().spend(max(map(len, template.iteration.values)) * count_references(execution, "itval"))
    return msgspec.structs.replace(template, name=name, execution=execution, after=final, attributes=attributes)
