"""Randomly mutated descriptions are accepted, or rejected with messages."""

from __future__ import annotations

import copy
import random
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qcg.pilotjob.description.changes import change_of
from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.description.parse import parse_jobs
from qcg.pilotjob.description.requests import REQUESTS, RerunJob, SetJob, Submit, decode_request
from qcg.pilotjob.description.schema import request_file_schema
from tests.description.helpers import CONTEXT
from tests.description.samples import BAC16, EVERYTHING, SLEEP
from tests.support.tiers import per_tier

JOBS = [job for file in (SLEEP, BAC16, EVERYTHING) for job in file[0]["jobs"]]
VALIDATOR = jsonschema.Draft202012Validator(request_file_schema())


def deep(levels: int) -> Any:
    value: Any = "x"
    for number in range(levels):
        value = [value] if number % 2 else {"k": value}
    return value


NUMBERS: list[Any] = [
    0,
    1,
    -1,
    3,
    2**31,
    2**63,
    2**64,
    -(10**30),
    10**400,
    1 << 30,
    0.5,
    1.5,
    -0.0,
    1e308,
    float("nan"),
    float("inf"),
]
TEXTS = [
    "",
    " ",
    "x",
    "3",
    "1h",
    "${it}",
    "$${it}",
    "${",
    "${itval}${jname}",
    "a:b",
    "a:1",
    "split-into",
    "2GB",
    "10s",
    "1-5",
    "exit",
    "stream",
    "\n",
    "'\"\\`",
]
ODD_TEXTS = ["\x00", "\ud800", "\U0001f9ea", "\u202e", "é" * 1000]
LISTS: list[Any] = [[], [None], [[]], ["a"] * 50, [1, 2], [0, 3, 1], [1, "2-3"], ["exit", "lost"]]
OBJECTS: list[Any] = [
    {},
    {"": ""},
    {"exec": "x"},
    {"exact": 1},
    {"min": 2, "max": 1},
    {"name": "maximum-iters"},
    {1: 2},
    {"exit": 2},
    {"license": 1},
    {"max": 1},
    {"on": "exit"},
    {"mem": 2},
]
VALUES: list[Any] = [None, True, False, object(), *NUMBERS, *TEXTS, *ODD_TEXTS, *LISTS, *OBJECTS]
DEPTHS = [5, 99, 200, 3000]
KEYS = sorted(
    {"x", "", "\x00", "a.b", "Exec", "nmae", "numcores", "\ud800", "k" * 500}
    | {
        "exec",
        "script",
        "args",
        "env",
        "execution",
        "resources",
        "numCores",
        "numNodes",
        "exact",
        "min",
        "max",
        "scheduler",
    }
    | {
        "split-into",
        "iteration",
        "iterate",
        "values",
        "start",
        "stop",
        "step",
        "after",
        "wt",
        "nodeCrs",
        "model",
        "name",
    }
    | {"retry", "max", "on", "exit", "lost", "exit_codes", "delay", "factor", "max_delay", "grow", "priority", "hold"}
    | {"afterany", "afternotok", "afterstart", "mem", "named", "gpu", "output", "file", "product", "zip", "indices"}
    | {"jobNames", "states"}
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a value."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        container = waiting.pop()
        if isinstance(container, dict):
            keys: list[Any] = list(container)
        elif isinstance(container, list):
            keys = list(range(len(container)))
        else:
            continue
        found += [(container, key) for key in keys]
        waiting += [container[key] for key in keys]
    return found


def odd_value(chance: random.Random) -> Any:
    return deep(chance.choice(DEPTHS)) if chance.random() < 0.05 else copy.deepcopy(chance.choice(VALUES))


def mutate(job: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    job = copy.deepcopy(job)
    for _ in range(chance.randint(1, 4)):
        candidates = places(job)
        if not candidates:
            break
        container, key = chance.choice(candidates[:200])
        kind = chance.randrange(5)
        if kind == 0:
            del container[key]
        elif kind == 1 and isinstance(container, dict):
            container[chance.choice(KEYS)] = container.pop(key)
        elif kind == 2 and isinstance(container, dict):
            container[chance.choice(KEYS)] = odd_value(chance)
        elif kind == 3:
            other, other_key = chance.choice(places(chance.choice(JOBS)))
            container[key] = copy.deepcopy(other[other_key])
        else:
            container[key] = odd_value(chance)
    return job


def check_sentences(error: DescriptionError) -> None:
    assert error.problems
    for problem in error.problems:
        assert problem.sentence.strip()
        assert str(problem).isprintable()
        assert "the job is not valid: " not in problem.sentence, "the walk missed what the decoder refused"


def readable(value: Any) -> Any:
    """The value as a reader of JSON in any language sees it."""
    return msgspec.json.decode(msgspec.json.encode(value))


def accepted_or_refused(*jobs: Any) -> list[JobDescription] | None:
    try:
        descriptions = parse_jobs(jobs, CONTEXT)
    except DescriptionError as error:
        check_sentences(error)
        return None
    for description in descriptions:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(description), type=JobDescription) == description
    return descriptions


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(per_tier(4, 50)))
def test_ten_thousand_mutated_jobs_are_accepted_or_rejected_with_messages(seed: int) -> None:
    chance = random.Random(seed)
    accepted = 0
    for _ in range(1000):
        job = mutate(chance.choice(JOBS), chance)
        if accepted_or_refused(job) is not None:
            accepted += 1
            assert VALIDATOR.is_valid([{"request": "submit", "jobs": [readable(job)]}])
    assert 20 < accepted < 900


def test_broken_bytes_are_accepted_or_rejected_with_messages() -> None:
    chance = random.Random(0)
    for _ in range(2000):
        text = bytearray(msgspec.json.encode(chance.choice(JOBS)))
        for _ in range(chance.randint(1, 3)):
            position = chance.randrange(len(text))
            kind = chance.randrange(3)
            if kind == 0:
                text[position] = chance.randrange(256)
            elif kind == 1:
                del text[position:]
                text += b" "
            else:
                text[position:position] = chance.choice(
                    [b'"', b"\\u0000", b"\\ud800", b"{", b"9" * 5000, b"1e999", b"null"]
                )
        accepted_or_refused(bytes(text))


def test_mutated_requests_are_accepted_or_rejected_with_messages() -> None:
    chance = random.Random(0)
    requests = [*SLEEP, *BAC16, *[{"request": name} for name in REQUESTS]]
    changed = 0
    for _ in range(3000):
        request = mutate(chance.choice(requests), chance)
        try:
            decoded = decode_request(request)
            if isinstance(decoded, SetJob):
                change_of(decoded)
                changed += 1
        except DescriptionError as error:
            check_sentences(error)
        else:
            assert isinstance(decoded, (Submit, RerunJob)) or VALIDATOR.is_valid(readable(request)), request
    assert changed > 10


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.sampled
@settings(max_examples=per_tier(150, 3000), derandomize=True)
@given(st.sampled_from(JOBS), st.randoms(use_true_random=False), anything)
def test_any_value_at_any_path_is_accepted_or_rejected_with_messages(job: Any, chance: Any, value: Any) -> None:
    job = copy.deepcopy(job)
    container, key = chance.choice(places(job))
    container[key] = value
    accepted_or_refused(job)
    accepted_or_refused(value)
