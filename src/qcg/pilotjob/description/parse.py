"""Parsing of job descriptions: from user input to `JobDescription`."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from qcg.pilotjob.common.similarity import nearest
from qcg.pilotjob.description import normalize, retry
from qcg.pilotjob.description.early_substitution import Dependencies, dependencies_of, finish
from qcg.pilotjob.description.errors import DescriptionError, Problem, quoted
from qcg.pilotjob.description.forms import (
    SYNONYMS,
    DependenciesForm,
    ExecutionForm,
    RemoteForm,
    ResourcesForm,
    SimpleForm,
    StandardForm,
)
from qcg.pilotjob.description.iteration import HEADS, Iteration, RowFile
from qcg.pilotjob.description.json_input import BACKSLASH, DOLLAR, InvalidJson, as_json, decode_untyped
from qcg.pilotjob.description.limits import Budget, submission_budget
from qcg.pilotjob.description.model import JobDescription, Sharing
from qcg.pilotjob.description.normalize_iteration import KnownFiles, RowsWanted, iteration_of
from qcg.pilotjob.description.validation import find_nul_characters, find_problems, without_problems
from qcg.pilotjob.description.variables import SubmissionContext, index_variables, references

__all__ = [
    "RowsWanted",
    "SubmissionContext",
    "check_single_job",
    "parse_in_steps",
    "parse_jobs",
    "simple_to_standard",
]

MAX_PROBLEMS = 10_000
"""Number of problems after which the rest of a submission is not checked."""
MAX_EXPANDED = 1_000_000
"""Jobs that one description with `${it}` in its name may expand to."""
STEP = 500
"""Jobs parsed between two pauses of `parse_in_steps`."""

_decode_standard = msgspec.json.Decoder(StandardForm).decode
_decode_simple = msgspec.json.Decoder(SimpleForm).decode
_NUMBER = re.compile(r"^job\[0\]")
_GROUPS = re.compile(r"^job\[0\](?:\.(?:execution|resources|dependencies|remote)\b)?")
_ANY_CONTEXT = SubmissionContext(0, datetime(2000, 1, 1), "", "")
_OF_STANDARD = ("resources", "dependencies", "attributes", "remote")
_EXPANDING = frozenset({"it", "itval"})


class _NoFiles(KnownFiles):
    """Where no file is read: every file counts as one row."""

    def find(self, written: str) -> RowFile:
        return _unread(written)


def _unread(path: str) -> RowFile:
    """Stands for a parameter file where there is no file system to read it from."""
    return RowFile(path, 1, ())


def parse_jobs(
    jobs: Sequence[msgspec.Raw | bytes | dict[str, Any]],
    context: SubmissionContext,
    path: str = "jobs",
    read_rows: Callable[[str], RowFile | list[str]] = _unread,
) -> list[JobDescription]:
    """Parse the jobs of one submission; raises `DescriptionError` with all problems of all jobs.

    `read_rows`: returns what is known about a parameter file, or why it cannot be used. By default files are not read,
    and count as one row."""
    steps = parse_in_steps(jobs, context, path)
    answer: RowFile | list[str] | None = None
    while True:
        try:
            wanted = steps.send(answer)
        except StopIteration as done:
            described: list[JobDescription] = done.value
            return described
        answer = None if wanted is None else read_rows(wanted.path)


def parse_in_steps(
    jobs: Sequence[msgspec.Raw | bytes | dict[str, Any]], context: SubmissionContext, path: str = "jobs"
) -> Generator[RowsWanted | None, RowFile | list[str] | None, list[JobDescription]]:
    """Like `parse_jobs`, as a generator that yields every few milliseconds, for use in an event loop.

    When it yields RowsWanted, it must be sent what is known about that parameter file."""
    problems: list[Problem] = []
    described: list[JobDescription] = []
    paths: dict[str, str] = {}
    variables = context.variables()
    budget = submission_budget()
    files = KnownFiles(variables)
    for number, job in enumerate(jobs):
        where = f"{path}[{number}]"
        uniq = f"{context.uniq}-{number}"
        found = len(problems)
        while True:
            try:
                parsed = _read_job(job, variables, budget, uniq, files, where, problems)
                break
            except RowsWanted as wanted:
                answer = yield wanted
                assert answer is not None
                files.add(wanted.path, answer)
                del problems[found:]
        for description in parsed:
            if description.name in paths:
                sentence = f"{quoted(description.name)} is already used by {paths[description.name]}"
                problems.append(Problem(f"{where}.name", sentence))
            else:
                paths[description.name] = where
            described.append(description)
            if len(described) % STEP == 0:
                yield None
        if number % STEP == 0:
            yield None
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
        form = _decode(as_json(attributes), "job", problems, _NoFiles({}), only_simple=True)
    except InvalidJson as unreadable:
        raise DescriptionError([Problem("job", f"the job {unreadable}")]) from None
    if form is None:
        raise DescriptionError(problems)
    given: dict[str, Any] = msgspec.to_builtins(form)
    for key in ("args", *DependenciesForm.__struct_encode_fields__, "inputs", "outputs"):
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
    standard |= {key: given[key] for key in ("iteration", "iterate", "retry", "priority", "hold") if key in given}
    standard["execution"] = {key: given[key] for key in ExecutionForm.__struct_encode_fields__ if key in given}
    resources = {key: given[key] for key in ResourcesForm.__struct_encode_fields__ if key in given}
    if resources:
        standard["resources"] = resources
    dependencies = {key: given[key] for key in DependenciesForm.__struct_encode_fields__ if key in given}
    if dependencies:
        standard["dependencies"] = dependencies
    remote = {key: given[key] for key in RemoteForm.__struct_encode_fields__ if key in given}
    if remote:
        standard["remote"] = remote
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
    files: KnownFiles,
    where: str,
    problems: list[Problem],
) -> Iterable[JobDescription]:
    """Parse one job, which may expand to several; the result is not usable when problems were added."""
    try:
        text = as_json(job)
        form = _decode(text, where, problems, files)
    except InvalidJson as unreadable:
        problems.append(Problem(where, f"the job {unreadable}"))
        return ()
    if form is None:
        return ()
    template = _template(form, uniq, files, where, problems)
    given = dependencies_of(form, where)
    if template.iteration is not None and _is_expanded(template.name, template.iteration, where, problems):
        return _expanded(template, template.iteration, given, variables, budget, uniq, where, problems)
    known = {**variables, "uniq": uniq} if DOLLAR in text or BACKSLASH in text else {}
    return (finish(template, given, known, budget, where, problems),)


def _is_expanded(name: str, iteration: Iteration, where: str, problems: list[Problem]) -> bool:
    """Whether each iteration is a job of its own, because the name holds its index or value."""
    used = references(name)
    if not used:
        return False
    own = [found for found in used if found in _EXPANDING or found in (iteration.names or ()) or _is_member(found)]
    if own and (iteration.names is not None or iteration.rows is not None or not _EXPANDING.issuperset(own)):
        sentence = (
            f"the name holds ${{{own[0]}}}, but rows and named values are iterations of one job; leave it out of the"
            " name and use it in args, wd or stdout"
        )
        problems.append(Problem(f"{where}.name", sentence))
        return False
    return bool(own)


def _is_member(variable: str) -> bool:
    return variable.partition(".")[0] in HEADS and "." in variable


def _expanded(
    template: JobDescription,
    iteration: Iteration,
    given: Dependencies,
    variables: dict[str, str],
    budget: Budget,
    uniq: str,
    where: str,
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
        finished = finish(template, given, known, budget, where, problems)
        wrong = len(problems) > found
        yield finished
        if wrong:  # the other indices would have the same problem
            return


def _decode(
    text: bytes, where: str, problems: list[Problem], files: KnownFiles, only_simple: bool = False
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
        problems += [*found, *_further_problems(value, expected, files, where, found)]
    return None


def _is_simple(value: Any) -> bool:
    """Guess whether the simple form is meant, although some keys may be misspelt."""
    if not isinstance(value, dict) or "execution" in value:
        return False
    if "exec" in value or "script" in value:
        return True
    standard, simple = StandardForm.__struct_encode_fields__, SimpleForm.__struct_encode_fields__
    others = [key for key in value if key not in standard]
    meant = {SYNONYMS.get(key) or nearest(key[:100], (*simple, "execution")) for key in others} - {None}
    if "execution" in meant or not value.keys().isdisjoint(_OF_STANDARD):
        return False
    return bool(meant) or not others


def _further_problems(
    value: Any, expected: type[StandardForm | SimpleForm], files: KnownFiles, where: str, found: list[Problem]
) -> list[Problem]:
    """Problems in the valid parts of a job with syntax problems, so that one mistake does not hide others."""
    try:
        form = msgspec.convert(without_problems(value, expected), expected)
    except msgspec.ValidationError:
        return []
    further: list[Problem] = []
    template = _template(form, "", files, where, further)
    finish(template, dependencies_of(form, where), {"uniq": ""}, submission_budget(), where, further)
    # A part that was left out because of its problems causes follow-up problems at the paths around it.
    return [
        problem for problem in further if not any(f"{other.path}.".startswith(f"{problem.path}.") for other in found)
    ]


def _template(
    form: StandardForm | SimpleForm, uniq: str, files: KnownFiles, where: str, problems: list[Problem]
) -> JobDescription:
    """The job description before variable substitution."""
    host, remote = "", None
    attributes: dict[str, Any] = {}
    given: SimpleForm | ResourcesForm | None
    if isinstance(form, SimpleForm):
        given = form
        execution = normalize.execution_of(form, where, problems)
        iteration = iteration_of(form, files, where, problems)
        needs = normalize.resources_of(form, execution.model, iteration, where, problems)
        host, remote = normalize.remote_of(form, where, problems)
    else:
        given = form.resources
        execution = normalize.execution_of(form.execution, f"{where}.execution", problems)
        iteration = iteration_of(form, files, where, problems)
        needs = normalize.resources_of(given, execution.model, iteration, f"{where}.resources", problems)
        if form.remote is not None:
            host, remote = normalize.remote_of(form.remote, f"{where}.remote", problems)
        if form.attributes and normalize.check_storable(form.attributes, f"{where}.attributes", problems):
            attributes = form.attributes
    # Positional arguments, here and for `Execution`: keyword arguments would take longer than all the rest.
    described = JobDescription(
        form.name,
        execution,
        *needs,
        iteration,
        (),
        attributes,
        "" if iteration is None else uniq,
        remote,
        None,
        form.priority or 0,
        given is not None and given.mem is not None,
        form.hold or False,
    )
    if host:
        wd_path = f"{where}.wd" if isinstance(form, SimpleForm) else f"{where}.execution.wd"
        normalize.check_staging(remote, execution.wd, wd_path, problems)
        if execution.output == "stream":
            sentence = "output of jobs on a remote host stays in files there; leave it out, and see: qcg-pm logs"
            problems.append(Problem(f"{wd_path.removesuffix('wd')}output", sentence))
        described = msgspec.structs.replace(described, request=msgspec.structs.replace(described.request, host=host))
    return described if form.retry is None else _with_retry(described, form, where, problems)


def _with_retry(
    described: JobDescription, form: StandardForm | SimpleForm, where: str, problems: list[Problem]
) -> JobDescription:
    policy = retry.policy_of(form.retry, f"{where}.retry", problems)
    shared = described.sharing is not None and described.sharing.of == "cores"
    problems += retry.check_growth(policy, described.request, described.wall_time, shared, f"{where}.retry")
    return msgspec.structs.replace(described, retry=policy)


def _single(template: JobDescription, iteration: Iteration, where: str, problems: list[Problem]) -> JobDescription:
    """The template for jobs expanded from one description: jobs of their own, without iterations."""
    sharing = template.sharing
    if len(iteration) > MAX_EXPANDED:
        sentence = f"{len(iteration)} jobs are too many; without ${{it}} in the name they are iterations of one job"
        problems.append(Problem(f"{where}.name", sentence))
    if sharing is not None:
        sharing = Sharing(sharing.name, sharing.of, sharing.parts, len(iteration))
    return msgspec.structs.replace(template, iteration=None, sharing=sharing, uniq="")
