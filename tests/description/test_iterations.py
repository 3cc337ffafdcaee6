from __future__ import annotations

from typing import Any

import pytest

from qcg.pilotjob.description.model import Iteration, Sharing
from tests.description.helpers import parse, parse_one, problems_of, simple, standard


@pytest.mark.parametrize(
    ("written", "indices"),
    [
        ({"iteration": 3}, [0, 1, 2]),
        ({"iteration": {"stop": 3}}, [0, 1, 2]),
        ({"iteration": {"start": 2, "stop": 4}}, [2, 3]),
        ({"iteration": {"start": 0, "stop": 5, "step": 2}}, [0, 2, 4]),
        ({"iteration": {"start": 3, "stop": 0, "step": -1}}, [3, 2, 1]),
        ({"iteration": {"start": -2, "stop": 0}}, [-2, -1]),
        ({"iteration": {"values": ["a", "b"]}}, [0, 1]),
        ({"iteration": ["a"]}, [0]),
        ({"iterate": [1, 4]}, [1, 2, 3]),
        ({"iterate": [1, 6, 2]}, [1, 3, 5]),
    ],
)
def test_an_iteration_has_the_written_indices(written: dict[str, Any], indices: list[int]) -> None:
    for job in ({**standard(), **written}, simple(**written)):
        iteration = parse_one(job).iteration
        assert iteration is not None
        assert list(iteration.indices()) == indices


def test_values_keep_their_type_and_become_text_in_strings() -> None:
    written = ["x", "", 1, -2.5, True, None, [1, "a"], {"k": "v"}]
    iteration = parse_one({**standard(), "iteration": written}).iteration
    assert iteration == Iteration(0, 8, 1, tuple(written))
    texts = [iteration.variable("itval", index) for index in iteration.indices()]
    assert texts == ["x", "", "1", "-2.5", "true", "null", '[1,"a"]', '{"k":"v"}']


def test_a_hundred_million_iterations_stay_a_range() -> None:
    iteration = parse_one({**standard(), "iteration": 100_000_000}).iteration
    assert iteration == Iteration(0, 100_000_000)


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"iteration": 0}, "iteration: there is no iteration from 0 up to 0 in steps of 1"),
        ({"iteration": -1}, "iteration: there is no iteration from 0 up to -1 in steps of 1"),
        ({"iteration": []}, "iteration: there is no iteration in an empty list"),
        ({"iteration": {}}, 'iteration: give "stop", "values", "indices", "file", "product" or "zip"'),
        ({"iteration": {"start": 1}}, 'iteration: give "stop", "values", "indices", "file", "product" or "zip"'),
        ({"iteration": {"values": []}}, "iteration.values: there is no iteration in an empty list"),
        ({"iteration": {"start": 3, "stop": 3}}, "iteration: there is no iteration from 3 up to 3 in steps of 1"),
        ({"iteration": {"stop": 3, "step": 0}}, "iteration: the step must not be 0"),
        ({"iteration": {"stop": 3, "step": -1}}, "iteration: there is no iteration from 0 up to 3 in steps of -1"),
        (
            {"iteration": {"stop": 3, "values": [1]}},
            'iteration: "values" excludes "start", "stop" and "step"; give one or the other',
        ),
        ({"iteration": 2**31}, "iteration: must be at most 2147483647"),
        (
            {"iteration": 2**31 - 1},
            "iteration: 2147483647 iterations are too many for one job; at most 100000000 are allowed",
        ),
        (
            {"iteration": "3"},
            'iteration: must be a whole number, an array or an object, not a string, such as {"start":1,"stop":11}',
        ),
        (
            {"iteration": True},
            'iteration: must be a whole number, an array or an object, not true, such as {"start":1,"stop":11}',
        ),
        (
            {"iteration": 1.0},
            'iteration: must be a whole number, an array or an object, not a fraction, such as {"start":1,"stop":11}',
        ),
        ({"iterate": [1]}, "iterate: must have 2 to 3 elements, not 1"),
        ({"iterate": [1, 2, 3, 4]}, "iterate: must have 2 to 3 elements, not 4"),
        ({"iterate": [1, "2"]}, "iterate[1]: must be a whole number, not a string"),
        ({"iterate": [2, 1]}, "iterate: there is no iteration from 2 up to 1 in steps of 1"),
        ({"iterate": [1, 2, 0]}, "iterate: the step must not be 0"),
        ({"iterate": [0, 2], "iteration": 2}, '"iteration" and "iterate" exclude each other; give one of them'),
    ],
)
def test_an_invalid_iteration_is_rejected_with_a_message(written: dict[str, Any], problem: str) -> None:
    place = "jobs[0]: " if problem.startswith('"') else "jobs[0]."
    assert problems_of({**standard(), **written}) == [place + problem]


@pytest.mark.parametrize("written", [{"iterate": [1, 4]}, {"iteration": {"start": 1, "stop": 4}}])
def test_an_index_in_the_name_expands_to_one_job_for_each_index(written: dict[str, Any]) -> None:
    job = {
        **standard("n_${it}", exec="x", args=["${it}/${its}/${it_start}/${it_stop}/${itval}", "${uniq}", "${ncores}"]),
        **written,
        "dependencies": {"after": ["m_${it}", "k:${it}", "fixed"]},
        "attributes": {"i": "${it}"},
    }
    jobs = parse(job)
    assert [job.name for job in jobs] == ["n_1", "n_2", "n_3"]
    assert [job.after for job in jobs] == [(f"m_{i}", f"k:{i}", "fixed") for i in (1, 2, 3)]
    assert [job.execution.args for job in jobs] == [(f"{i}/3/1/4/{i}", f"u1-0-{i}", "${ncores}") for i in (1, 2, 3)]
    assert [job.attributes for job in jobs] == [{"i": str(i)} for i in (1, 2, 3)]
    assert all(job.iteration is None for job in jobs)


def test_a_value_in_the_name_expands_to_one_job_for_each_value() -> None:
    assert [job.name for job in parse({**standard("n_${ itval }"), "iteration": ["x", "y"]})] == ["n_x", "n_y"]


def test_values_that_give_invalid_names_are_rejected() -> None:
    assert problems_of({**standard("n_${itval}"), "iteration": ["a b"]}) == [
        'jobs[0].name: the name "n_a b" holds white space or a control character'
    ]
    assert problems_of({**standard("n_${itval}"), "iteration": ["a", "a"]}) == [
        'jobs[0].name: "n_a" is already used by jobs[0]'
    ]


def test_iterate_without_an_index_in_the_name_is_an_iteration() -> None:
    assert parse({**standard(), "iterate": [1, 4]}) == parse({**standard(), "iteration": {"start": 1, "stop": 4}})


def test_expanded_jobs_split_into_as_many_parts_by_default() -> None:
    job = {**standard("n_${it}", resources={"numCores": {"scheduler": "split-into"}}), "iterate": [0, 4]}
    assert [job.sharing for job in parse(job)] == [Sharing("split-into", "cores", None, 4, place) for place in range(4)]


def test_expanded_jobs_have_their_position_and_number() -> None:
    job = {**standard("n_${it}", resources={"numCores": {"scheduler": "maximum-iters"}}), "iterate": [1, 6, 2]}
    assert [(job.name, job.sharing) for job in parse(job)] == [
        (f"n_{index}", Sharing("maximum-iters", "cores", None, 3, place)) for place, index in enumerate((1, 3, 5))
    ]


def test_too_many_expanded_jobs_are_rejected_at_once() -> None:
    assert problems_of({**standard("n_${it}"), "iteration": 2_000_000}) == [
        "jobs[0].name: 2000000 jobs are too many; without ${it} in the name they are iterations of one job"
    ]


def test_an_invalid_iteration_is_reported_only_once() -> None:
    job = {**standard("n_${it}", resources={"numCores": {"scheduler": "maximum-iters"}}), "iteration": 0}
    assert problems_of(job)[0].startswith("jobs[0].iteration: there is no iteration")
    assert not any("is for jobs with iterations" in problem for problem in problems_of(job))
