"""The key `retry` of a job: its input form, its normalized policy, and the request of the next attempt."""

from __future__ import annotations

import hashlib
import math
import re
from typing import Annotated, Any, Union

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from qcg.pilotjob.description import patterns
from qcg.pilotjob.description.errors import DescriptionError, Problem, join_path, quoted, suggestion
from qcg.pilotjob.description.memory import parse_memory
from qcg.pilotjob.description.model import Amount, ResourceRequest, RetryGrowth, RetryPolicy, Steps
from qcg.pilotjob.description.validation import find_problems
from qcg.pilotjob.description.walltime import LONGEST, parse_wall_time

CAUSES = ("exit", "signal", "timeout", "lost", "memory", "unstartable", "staging")
"""Why an attempt did not succeed."""
DEFAULT_CAUSES = tuple(cause for cause in CAUSES if cause != "unstartable")
"""Without `on`: a program that cannot be started will most often fail to start again."""
GROWING_CAUSES = frozenset({"exit", "signal", "timeout", "memory"})
"""Causes after which the next attempt gets more. After the others, the job itself did not need more."""
MAX_RETRIES = 10_000
MAX_COUNT = 2**31 - 1
JITTER = 0.25
"""Largest part of a pause that is added to it, so that many jobs that failed together do not all return together."""

Retries = Annotated[int, Meta(ge=0, le=MAX_RETRIES)]
Duration = Union[str, float, int]
Cause = Annotated[str, Meta(extra_json_schema={"enum": list(CAUSES)})]
_Pause = Annotated[Duration, Meta(extra_json_schema=patterns.DURATION)]
Factor = Annotated[float, Meta(ge=1, le=1000)]
_WallTime = Annotated[Duration, Meta(extra_json_schema=patterns.WALL_TIME)]
_Amount = Annotated[Union[str, float, int], Meta(extra_json_schema=patterns.MEMORY)]
_NOT_EMPTY = Meta(extra_json_schema={"minItems": 1})


class GrowForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What grows with each attempt: a factor, or a list of values for the second, third and further attempts."""

    wt: Annotated[
        Factor | Annotated[list[_WallTime], _NOT_EMPTY] | None,
        Meta(description="Wall time: a factor, or the wall times of the second, third and further attempts."),
    ] = None
    mem: Annotated[
        Factor | Annotated[list[_Amount], _NOT_EMPTY] | None,
        Meta(
            description="Memory on each node: a factor, or amounts for the second, third and further attempts, as in"
            " the memory of the job: 4GB, or a number of bytes.",
            examples=[["4GB", "8GB"]],
        ),
    ] = None
    num_cores: Annotated[
        Factor | Annotated[list[Annotated[int, Meta(ge=1, le=MAX_COUNT)]], _NOT_EMPTY] | None,
        Meta(description="Cores: a factor, or the numbers for the second, third and further attempts."),
    ] = field(default=None, name="numCores")


class RetryForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """When a job that does not succeed is started again."""

    max: Annotated[Retries | None, Meta(description="Further attempts for each cause, 1 by default.")] = None
    on: Annotated[
        Annotated[list[Cause], _NOT_EMPTY]
        | Annotated[
            dict[str, Retries],
            Meta(extra_json_schema={"propertyNames": {"enum": list(CAUSES)}, "minProperties": 1}),
        ]
        | Cause
        | None,
        Meta(
            description="Causes: exit, signal, timeout, lost, memory, unstartable, staging; all but unstartable by"
            " default. An object gives each cause a number of attempts of its own.",
            examples=[["timeout", "lost"], {"exit": 1, "lost": 5}],
        ),
    ] = None
    exit_codes: Annotated[
        Annotated[list[Annotated[int | str, Meta(extra_json_schema=patterns.EXIT_CODE)]], _NOT_EMPTY] | None,
        Meta(
            description="Exit codes for which the cause exit counts: numbers and ranges; without it, all but 0.",
            examples=[[1, "10-20"]],
        ),
    ] = None
    delay: Annotated[
        _Pause | None, Meta(description="Pause before the second attempt, none by default.", examples=["10s"])
    ] = None
    factor: Annotated[Factor | None, Meta(description="Growth of the pause with each attempt, 2 by default.")] = None
    max_delay: Annotated[_Pause | None, Meta(description="Longest pause, 1h by default.")] = None
    grow: Annotated[GrowForm | None, Meta(description="What each further attempt gets more of.")] = None


Retry = Annotated[
    RetryForm | Retries | None,
    Meta(description="Further attempts when it does not succeed: a number, or an object."),
]

_CODES = re.compile(r"\s*([0-9]{1,3})\s*(?:-\s*([0-9]{1,3})\s*)?", re.ASCII)
_DEFAULT_MAX_DELAY = 3600.0


def policy_of(form: RetryForm | int | None, path: str, problems: list[Problem]) -> RetryPolicy | None:
    """The retry policy of a job; None if it is never started again."""
    if form is None or form == 0:
        return None
    if isinstance(form, int):
        return RetryPolicy(dict.fromkeys(DEFAULT_CAUSES, form))
    budgets = _budgets(form, path, problems)
    codes = _exit_codes(form, budgets, f"{path}.exit_codes", problems)
    delay = _duration(form.delay, 0.0, f"{path}.delay", problems)
    longest = _duration(form.max_delay, max(delay, _DEFAULT_MAX_DELAY), f"{path}.max_delay", problems)
    if longest < delay:
        problems.append(Problem(f"{path}.max_delay", 'is shorter than "delay"'))
    growth = None if form.grow is None else _growth(form.grow, f"{path}.grow", problems)
    if not any(budgets.values()):
        return None
    return RetryPolicy(budgets, codes, delay, 2.0 if form.factor is None else form.factor, longest, growth)


def parse_policy(text: str) -> RetryPolicy | None:
    """The policy of a whole run, given as JSON; raises `DescriptionError`."""
    problems: list[Problem] = []
    policy = None
    try:
        form = msgspec.json.decode(text, type=Union[RetryForm, Retries])
    except msgspec.ValidationError:
        problems = find_problems(msgspec.json.decode(text), RetryForm | Retries, "retry")
        problems = problems or [Problem("retry", "must be a number, or an object with max, on, delay and so on")]
    except msgspec.DecodeError:
        problems = [Problem("retry", f'{quoted(text)} is neither a number nor a JSON object such as {{"max": 3}}')]
    else:
        policy = policy_of(form, "retry", problems)
    if problems:
        raise DescriptionError(problems)
    return policy


def check_growth(
    policy: RetryPolicy | None, request: ResourceRequest, wall_time: float | None, shared: bool, path: str
) -> list[Problem]:
    """Problems of a policy that grows resources the job does not request."""
    growth = policy.grow if policy is not None else None
    problems = []
    if growth is not None:
        if growth.wall_time is not None and wall_time is None:
            problems.append(Problem(f"{path}.grow.wt", 'the job has no wall time that could grow; give it "wt"'))
        if growth.memory is not None and not request.memory:
            problems.append(Problem(f"{path}.grow.mem", 'the job asks for no memory; give it "mem"'))
        elif isinstance(growth.memory, tuple) and growth.memory and min(growth.memory) < request.memory:
            problems.append(Problem(f"{path}.grow.mem", 'has an amount below the memory of the first attempt, "mem"'))
        if growth.cores is not None and (shared or request.cores is None):
            sentence = "the number of cores is left to a scheduler, or the job takes whole nodes; give numCores"
            problems.append(Problem(f"{path}.grow.numCores", sentence))
    return problems


def pause_before(policy: RetryPolicy, retries: int, attempt_id: str) -> float:
    """The pause in seconds before another attempt; `retries` counts those of its cause so far, with this one.

    The jitter follows from the id of the attempt that has failed, so that the same history has the same pauses.
    """
    if not policy.delay:
        return 0.0
    longest = policy.max_delay
    # Compared as logarithms: the power may be larger than any number.
    grown = (retries - 1) * math.log(policy.factor) if policy.factor > 1 else 0.0
    pause = longest if grown >= math.log(longest / policy.delay) else policy.delay * policy.factor ** (retries - 1)
    jitter = int.from_bytes(hashlib.sha256(attempt_id.encode()).digest()[:4], "big") / 2**32
    return pause * (1 + JITTER * jitter)


def grown_wall_time(policy: RetryPolicy | None, wall_time: float | None, steps: int) -> float | None:
    """The wall time after so many attempts that needed more."""
    growth = policy.grow if policy is not None else None
    if growth is None or growth.wall_time is None or wall_time is None or not steps:
        return wall_time
    return min(_grown(growth.wall_time, wall_time, steps), float(LONGEST))


def grown_request(policy: RetryPolicy | None, request: ResourceRequest, steps: int) -> ResourceRequest:
    """The resource request after so many attempts that needed more."""
    growth = policy.grow if policy is not None else None
    if growth is None or not steps:
        return request
    if growth.memory is not None and request.memory:
        request = replace(request, memory=_count(_grown(growth.memory, request.memory, steps)))
    if growth.cores is not None and request.cores is not None:
        least = _count(_grown(growth.cores, request.cores.least, steps))
        most = request.cores.most
        if most is not None:
            most = max(least, _count(_grown(growth.cores, most, steps)))
        request = replace(request, cores=Amount(least, most))
    return request


def accepts(policy: RetryPolicy, cause: str, exit_code: int) -> bool:
    """Whether the policy covers this end, however often it occurs."""
    if not policy.budgets.get(cause):
        return False
    if cause != "exit" or not policy.exit_codes:
        return True
    return any(first <= exit_code <= last for first, last in policy.exit_codes)


def _grown(steps_of: Steps, value: float, steps: int) -> float:
    if isinstance(steps_of, tuple):
        return steps_of[min(steps, len(steps_of)) - 1]
    too_large = steps * math.log(steps_of) > math.log(MAX_COUNT) if steps_of > 1 else False
    return math.inf if too_large else value * steps_of**steps


def _count(value: float) -> int:
    return MAX_COUNT if value >= MAX_COUNT else math.ceil(value)


def _budgets(form: RetryForm, path: str, problems: list[Problem]) -> dict[str, int]:
    most = 1 if form.max is None else form.max
    given: dict[str, int]
    if isinstance(form.on, dict):
        given = form.on
        if form.max is not None:
            problems.append(Problem(f"{path}.max", 'an object in "on" has a number for each cause; leave out one'))
    else:
        causes = DEFAULT_CAUSES if form.on is None else [form.on] if isinstance(form.on, str) else form.on
        given = dict.fromkeys(causes, most)
    for cause in given:
        if cause not in CAUSES:
            where = join_path(f"{path}.on", cause) if isinstance(form.on, dict) else f"{path}.on"
            problems.append(Problem(where, f"unknown cause {quoted(cause)}{suggestion(cause, CAUSES)}"))
    if not given:
        problems.append(Problem(f"{path}.on", f"is empty; name causes: {', '.join(CAUSES)}"))
    return given


def _exit_codes(
    form: RetryForm, budgets: dict[str, int], path: str, problems: list[Problem]
) -> tuple[tuple[int, int], ...]:
    if form.exit_codes is None:
        return ()
    if "exit" not in budgets:
        problems.append(Problem(path, 'are for the cause "exit", which "on" leaves out'))
    if not form.exit_codes:
        problems.append(Problem(path, "is empty; leave it out for all exit codes"))
    codes = []
    for number, given in enumerate(form.exit_codes):
        match = _CODES.fullmatch(str(given))
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if 1 <= first <= last <= 255:
            codes.append((first, last))
        else:
            sentence = f'{quoted(given)} is no exit code from 1 to 255, and no range such as "10-20"'
            problems.append(Problem(f"{path}[{number}]", sentence))
    return tuple(codes)


def _duration(given: Duration | None, default: float, path: str, problems: list[Problem]) -> float:
    if given is None:
        return default
    if not isinstance(given, str) and given == 0:
        return 0.0
    try:
        return parse_wall_time(given)
    except DescriptionError as error:
        problems.extend(Problem(path, problem.sentence.replace("wall time", "duration")) for problem in error.problems)
        return default


def _wall_time(given: Duration, path: str, problems: list[Problem]) -> float:
    try:
        return parse_wall_time(given)
    except DescriptionError as error:
        problems.extend(Problem(path, problem.sentence) for problem in error.problems)
        return 1.0


def _growth(form: GrowForm, path: str, problems: list[Problem]) -> RetryGrowth | None:
    wall_time: Steps | None
    if isinstance(form.wt, list):
        wall_time = tuple([_wall_time(given, f"{path}.wt[{number}]", problems) for number, given in enumerate(form.wt)])
    else:
        wall_time = form.wt
    memory: Steps | None
    if isinstance(form.mem, list):
        memory = tuple([_memory(given, f"{path}.mem[{number}]", problems) for number, given in enumerate(form.mem)])
    else:
        memory = form.mem
    growth = RetryGrowth(wall_time, memory, _steps(form.num_cores))
    given: dict[str, Any] = {"wt": growth.wall_time, "mem": growth.memory, "numCores": growth.cores}
    problems.extend(Problem(f"{path}.{key}", "is an empty list") for key, steps in given.items() if steps == ())
    return growth


def _memory(given: str | float, path: str, problems: list[Problem]) -> float:
    """An amount in MiB."""
    try:
        return float(parse_memory(given))
    except DescriptionError as error:
        problems.extend(Problem(path, problem.sentence) for problem in error.problems)
        return 1.0


def _steps(given: float | list[int] | None) -> Steps | None:
    return tuple(map(float, given)) if isinstance(given, list) else given
