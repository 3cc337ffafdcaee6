"""Limits on names and on variable substitution."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest

from qcg.pilotjob.description import limits
from qcg.pilotjob.description.limits import LONGEST_NAME, MAX_EXPANSION, ExpansionError
from qcg.pilotjob.description.schema import request_file_schema
from qcg.pilotjob.description.variables import resolve_execution
from qcg.pilotjob.description.warnings import warnings_for
from tests.description.helpers import parse, parse_one, problems_of, simple, standard

TOO_MUCH = (
    "jobs[0]: the values of its variables have more than 1048576 characters; use fewer variables or shorter values"
)


@pytest.mark.parametrize("name", ["x" * 200, "\u00e9" * 100, "x" * 199 + "${rcnt}"])
def test_a_name_may_have_200_bytes(name: str) -> None:
    assert len(parse_one(simple(name=name)).name.encode()) == LONGEST_NAME == 200


@pytest.mark.parametrize(
    ("name", "size"), [("x" * 201, 201), ("\u00e9" * 101, 202), ("x" * 200 + "${rcnt}", 201), ("y" * 2000, 2000)]
)
def test_a_longer_name_is_rejected(name: str, size: int) -> None:
    (problem,) = problems_of(simple(name=name))
    assert problem == f'jobs[0].name: the name "{name[:57]}..." has {size} bytes; at most 200 are allowed'
    (problem,) = problems_of(simple(after=[name]))
    assert problem.startswith(f'jobs[0].after[0]: the name "{name[:57]}..." has {size} bytes')


@pytest.mark.parametrize("form", [simple, standard])
def test_a_name_of_many_megabytes_is_rejected_by_its_length(form: Any) -> None:
    assert problems_of(form(name="x" * 10_000_000)) == [
        "jobs[0].name: has 10000000 characters; at most 2000 are allowed"
    ]


def test_the_schema_limits_the_length_of_a_name() -> None:
    for form in ("StandardForm", "SimpleForm"):
        name = request_file_schema()["$defs"][form]["properties"]["name"]
        assert name["maxLength"] == 2000
        assert {"maxLength": 200} in name["anyOf"]
        assert "at most 200 bytes long" in name["description"]
    assert "1048576 characters in one job, and 268435456 in all jobs" in request_file_schema()["description"]


@pytest.mark.parametrize(
    "keys",
    [
        {"script": "${jname}" * 14_500},
        {"args": ["${jname}" * 100] * 145},
        {"env": {f"V{number}": "${jname}" * 100 for number in range(145)}},
        {"exec": "date", "wd": "$${jname}" * 14_500},
    ],
)
def test_the_expansion_of_submission_variables_is_limited(keys: dict[str, Any]) -> None:
    assert problems_of(simple(name="j" * 200, **keys)) == [TOO_MUCH]


def test_the_expansion_of_attributes_is_limited() -> None:
    job = {**standard("j" * 200), "attributes": {"deep": ["${jname}" * 14_500]}}
    assert problems_of(job) == [TOO_MUCH]


def test_a_rejected_expansion_allocates_no_memory() -> None:
    job = simple(name="j_${it}", iteration=["v" * 100_000], script="${itval}" * 14_500)
    tracemalloc.start()
    try:
        assert problems_of(job) == [TOO_MUCH]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * 2**20, "without a bound it takes 1.4 GB"


def test_the_expansion_of_iteration_values_is_limited() -> None:
    job = simple(iteration=["v", "v" * 100_000, "v"], args=["${itval}"] * 10 + ["$${itval}"])
    assert problems_of(job) == [TOO_MUCH]
    assert parse_one({**job, "args": ["${itval}"] * 10 + ["$$$${itval}"]})


def test_the_expansion_of_launch_variables_is_limited() -> None:
    execution = parse_one(simple(args=["${nlist}"] * 200)).execution
    with pytest.raises(ExpansionError, match="the values of its variables have more than 1048576 characters"):
        resolve_execution(execution, {"nlist": "n" * 10_000})
    assert len(resolve_execution(execution, {"nlist": "n" * 5_000}).args[0]) == 5_000


def test_a_long_text_with_few_variables_is_accepted() -> None:
    text = "x" * 2 * MAX_EXPANSION
    assert parse_one(simple(script=f"{text} ${{jname}}")).execution.script == f"{text} a"


def test_the_expansion_of_a_whole_submission_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_EXPANSION_OF_SUBMISSION", 1000)
    job = simple(name="j_${it}", iteration=["v" * 300] * 5, args=["${itval}"])
    (problem,) = problems_of(job)
    assert problem.startswith("jobs[0]: the values of the variables of this submission have more than")
    assert len(parse(simple(name="j_${it}", iteration=["v" * 300] * 3, args=["${itval}"]))) == 3
    one_by_one = [simple(name=f"j_{number}", args=["${jname}" * 100]) for number in range(5)]
    assert problems_of(*one_by_one)[0].startswith("jobs[3]: the values of the variables of this submission")


@pytest.mark.parametrize(
    "script",
    [
        "for " * 60_000 + "\n${it}",
        "read " * 60_000 + "\n${it}",
        "a=" * 60_000 + "${it}",
        "${it} " * 30_000,
        "${itt} " * 30_000,
    ],
    ids=range(5),
)
def test_warnings_take_linear_time(script: str) -> None:
    """A quadratic search takes minutes here."""
    job = parse_one(simple(script=script))
    begin = time.process_time()
    warnings_for(job)
    assert time.process_time() - begin < 5
