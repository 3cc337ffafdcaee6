from __future__ import annotations

import math

import pytest

from qcg.pilotjob.api.errors import InvalidJobDescriptionError
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.memory import parse_memory
from qcg.pilotjob.description.parse import simple_to_standard
from qcg.pilotjob.report.record import resources_form
from tests.description.helpers import parse_one, problems_of, simple, standard


@pytest.mark.parametrize(
    ("given", "mebibytes"),
    [
        ("2GB", 2048),
        ("2 GB", 2048),
        ("2g", 2048),
        ("2GiB", 2048),
        ("1.5G", 1536),
        ("500M", 500),
        ("1025K", 2),
        ("1T", 1 << 20),
        (1 << 30, 1024),
        ((1 << 30) + 1, 1025),
        (1.5e9, 1431),
        ((1 << 50) + 1, (1 << 30) + 1),
    ],
)
def test_memory_is_given_with_a_unit_or_in_bytes(given: str | float, mebibytes: int):
    assert parse_memory(given) == mebibytes


@pytest.mark.parametrize("given", ["", "GB", "-1GB", "2 gigs", "1e9", "2GBB", "1,5G", math.inf, -math.inf, math.nan])
def test_other_values_are_no_memory(given: str | float):
    with pytest.raises(DescriptionError, match="is not an amount of memory; write it as 2GB"):
        parse_memory(given)


@pytest.mark.parametrize("given", [0, 512, -1, "512", "3KB", -(10**400)])
def test_less_than_a_megabyte_is_most_likely_a_missing_unit(given: str | float):
    with pytest.raises(DescriptionError, match="less than 1 MB; a number without a unit is a number of bytes"):
        parse_memory(given)


@pytest.mark.parametrize(
    ("given", "written"), [("2000", "2000MB for megabytes"), (512, "512MB for megabytes"), ("3KB", "it as 2GB,")]
)
def test_a_missing_unit_is_suggested(given: str | int, written: str):
    with pytest.raises(DescriptionError, match=f"a number of bytes: write {written}"):
        parse_memory(given)


@pytest.mark.parametrize("given", [10**400, 1e300, 1 << 52, "999999999T"])
def test_more_memory_than_any_node_has_is_refused(given: str | float):
    with pytest.raises(DescriptionError, match="is more memory than any node has"):
        parse_memory(given)


def test_numbers_that_json_does_not_have_are_refused_before_they_become_null():
    for given in (math.inf, math.nan):
        with pytest.raises(InvalidJobDescriptionError, match=f"mem: JSON has no number {given}; give a finite one"):
            Jobs().add(name="a", exec="x", mem=given)


def test_mem_is_scheduled_and_limited_and_node_crs_only_scheduled():
    limited = parse_one(standard(resources={"mem": "2GB"}, exec="x"))
    assert (limited.request.memory, limited.request.one_node, limited.limit_memory) == (2048, True, True)
    assert resources_form(limited)["mem"] == "2048MB"
    assert "nodeCrs" not in resources_form(limited)
    scheduled = parse_one(standard(resources={"nodeCrs": {"mem": 2048}}, exec="x"))
    assert (scheduled.request, scheduled.limit_memory) == (limited.request, False)
    assert parse_one(simple(exec="x", mem=1 << 31)).request == limited.request
    assert simple_to_standard({"name": "a", "exec": "x", "mem": "2GB"})["resources"] == {"mem": "2GB"}


def test_problems_with_mem_have_their_place():
    assert problems_of(standard(resources={"mem": "much"}, exec="x")) == [
        'jobs[0].resources.mem: "much" is not an amount of memory; write it as 2GB, 1.5G, 500MB, or a number of bytes'
    ]
    assert problems_of(standard(resources={"mem": "1GB", "nodeCrs": {"mem": 1}}, exec="x")) == [
        'jobs[0].resources.mem: "mem" and "nodeCrs": {"mem": MiB} exclude each other; give "mem"'
    ]
    assert problems_of(simple(exec="x", memory="1GB")) == ['jobs[0].memory: unknown key; did you mean "mem"?']
