"""The key `retry`: numbers, objects, and what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest

from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.model import RetryGrowth, RetryPolicy
from qcg.pilotjob.description.parse import simple_to_standard
from qcg.pilotjob.description.retry import CAUSES, DEFAULT_CAUSES, parse_policy
from tests.description.helpers import parse_one, problems_of, simple, standard


def policy(given: Any, **more: Any) -> RetryPolicy | None:
    """The policy of a job in the simple form, which is the same in the standard form."""
    description = parse_one(simple(retry=given, **more))
    resources = {key: value for key, value in more.items() if value is not None}
    assert parse_one({**standard(resources=resources), "retry": given}).retry == description.retry
    return description.retry


def test_a_number_is_a_budget_for_each_cause_but_unstartable():
    assert policy(3) == RetryPolicy(dict.fromkeys(DEFAULT_CAUSES, 3))
    assert set(CAUSES) - set(DEFAULT_CAUSES) == {"unstartable"}


@pytest.mark.parametrize("none", [None, 0, {"max": 0}])
def test_zero_and_null_mean_no_retries(none: Any):
    assert policy(none) is None


def test_an_object_without_max_means_one_retry():
    assert policy({"on": ["timeout"]}) == RetryPolicy({"timeout": 1})
    assert policy({"on": "lost", "max": 4}) == RetryPolicy({"lost": 4})


def test_causes_may_have_budgets_of_their_own():
    assert policy({"on": {"exit": 1, "lost": 5}}) == RetryPolicy({"exit": 1, "lost": 5})


def test_all_keys_can_be_combined():
    given = {
        "max": 2,
        "on": ["exit"],
        "exit_codes": [1, "10-20"],
        "delay": "10s",
        "factor": 3,
        "max_delay": "1m",
        "grow": {"wt": ["1m", 120], "mem": 1.5, "numCores": [2, 4]},
    }
    growth = RetryGrowth((60.0, 120.0), 1.5, (2.0, 4.0))
    expected = RetryPolicy({"exit": 2}, ((1, 1), (10, 20)), 10.0, 3.0, 60.0, growth)
    assert policy(given, wt="30s", nodeCrs={"mem": 100}, numCores=1) == expected


def test_memory_grows_to_amounts_as_in_mem():
    growth = RetryGrowth(None, (200.0, 1024.0, 1536.0, 2048.0), None)
    grown = policy({"grow": {"mem": ["200MB", "1GB", "1.5g", 2 << 30]}}, mem="100MB")
    assert grown == RetryPolicy(dict.fromkeys(DEFAULT_CAUSES, 1), grow=growth)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (-1, "jobs[0].retry: "),
        ("3", "jobs[0].retry: "),
        ({"tries": 3}, "jobs[0].retry.tries: unknown key"),
        ({"on": ["time"]}, 'jobs[0].retry.on: unknown cause "time"'),
        ({"on": []}, "jobs[0].retry.on: is empty; name causes"),
        ({"on": {"exits": 2}}, 'jobs[0].retry.on.exits: unknown cause "exits"; did you mean "exit"?'),
        ({"on": {"exit": 2}, "max": 2}, "jobs[0].retry.max: "),
        ({"exit_codes": ["1-"]}, "jobs[0].retry.exit_codes[0]: "),
        ({"exit_codes": [0]}, "jobs[0].retry.exit_codes[0]: "),
        ({"exit_codes": [256]}, "jobs[0].retry.exit_codes[0]: "),
        ({"exit_codes": ["20-10"]}, "jobs[0].retry.exit_codes[0]: "),
        ({"exit_codes": []}, "jobs[0].retry.exit_codes: is empty"),
        ({"exit_codes": [1], "on": ["lost"]}, 'jobs[0].retry.exit_codes: are for the cause "exit"'),
        ({"delay": "soon"}, 'jobs[0].retry.delay: "soon" is not a duration'),
        ({"delay": "10s", "max_delay": "5s"}, 'jobs[0].retry.max_delay: is shorter than "delay"'),
        ({"factor": 0.5}, "jobs[0].retry.factor: "),
        ({"grow": {"wt": 2}}, "jobs[0].retry.grow.wt: the job has no wall time"),
        ({"grow": {"mem": 2}}, "jobs[0].retry.grow.mem: the job asks for no memory"),
        ({"grow": {"wt": [0]}}, 'jobs[0].retry.grow.wt[0]: the wall time "0" must be longer than zero'),
        ({"grow": {"wt": ["1m", "long"]}}, 'jobs[0].retry.grow.wt[1]: "long" is not a wall time'),
        ({"grow": {"mem": [4096]}}, 'jobs[0].retry.grow.mem[0]: "4096" is less than 1 MB; a number without a unit'),
        (
            {"grow": {"mem": ["1GB", "1 gig"]}},
            'jobs[0].retry.grow.mem[1]: "1 gig" is not an amount of memory; write it',
        ),
        ({"grow": {"mem": ["512"]}}, 'jobs[0].retry.grow.mem[0]: "512" is less than 1 MB; a number without a unit'),
        ({"grow": {"mem": [True]}}, "jobs[0].retry.grow.mem[0]: must be a string or a number, not true"),
        ({"grow": {"mem": []}}, "jobs[0].retry.grow.mem: is an empty list"),
        ({"grow": {"disk": 2}}, "jobs[0].retry.grow.disk: unknown key"),
    ],
)
def test_a_wrong_policy_is_named_with_its_path(given: Any, problem: str):
    assert any(found.startswith(problem) for found in problems_of(simple(retry=given))), problems_of(
        simple(retry=given)
    )


def test_listed_memory_is_not_below_that_of_the_first_attempt():
    given = simple(mem="1GB", retry={"grow": {"mem": ["2GB", "500MB"]}})
    sentence = 'has an amount below the memory of the first attempt, "mem"'
    assert problems_of(given) == [f"jobs[0].retry.grow.mem: {sentence}"]


def test_whole_nodes_and_shares_cannot_grow_in_cores():
    grow = {"retry": {"grow": {"numCores": 2}}}
    for more in ({"numNodes": 2}, {"numCores": {"min": 1, "split-into": 2}}):
        (problem,) = problems_of(simple(**grow, **more))
        assert problem.startswith("jobs[0].retry.grow.numCores: ")


def test_other_programs_names_of_the_key_are_recognized():
    assert problems_of(simple(retries=3)) == ['jobs[0].retries: unknown key; did you mean "retry"?']


def test_the_simple_form_is_converted_with_its_retries():
    assert simple_to_standard({"name": "a", "exec": "x", "retry": {"max": 2}})["retry"] == {"max": 2}


def test_the_policy_of_a_run_is_a_number_or_json():
    assert parse_policy("2") == RetryPolicy(dict.fromkeys(DEFAULT_CAUSES, 2))
    assert parse_policy('{"on": {"lost": 5}}') == RetryPolicy({"lost": 5})
    for wrong in ("two", '{"on": ["losing"]}', '{"maximum": 3}'):
        with pytest.raises(DescriptionError):
            parse_policy(wrong)
    with pytest.raises(DescriptionError, match="^retry: must be at least 0$"):
        parse_policy("-1")
    with pytest.raises(DescriptionError, match="^retry: must be a whole number or an object, not an array$"):
        parse_policy("[]")
