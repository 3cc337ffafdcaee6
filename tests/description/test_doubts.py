"""Warnings about what is allowed and hardly meant."""

from __future__ import annotations

from typing import Any

import pytest

from qcg.pilotjob.description.doubts import doubts_about
from tests.description.helpers import parse, simple


def doubts(**job: Any) -> list[str]:
    return [doubt for description in parse(simple(**job)) for doubt in doubts_about(description)]


@pytest.mark.parametrize(
    "job",
    [
        {"stdout": "out", "stderr": "err"},
        {"iteration": 1, "stdout": "out"},
        {"iteration": 5},
        {"iteration": 5, "stdout": "out.${it}"},
        {"iteration": 5, "stdout": "out.${ itval }", "stderr": "${uniq}.err"},
        {"iteration": 5, "wd": "run-${it}", "stdout": "out"},
        {"iteration": 5, "stdout": "/dev/null"},
        {"iteration": 5, "args": ["${it}"]},
        {"name": "n_${it}", "iterate": [0, 3], "stdout": "out.${it}", "args": ["${it}", "${its}"]},
        {"iteration": 5, "stdout": "out.$${it}"},
        {"args": ["$$$${it}", "$it", "${item}", "${ncores}"]},
        {"args": ["-c", "for it in a b; do echo ${it}; done"]},
        {"args": ["-c", "it=7; echo ${it}"]},
        {"args": ["-c", "echo ${it}"], "env": {"it": "7"}},
    ],
)
def test_what_may_well_be_meant_is_not_doubted(job: dict[str, Any]):
    assert doubts(**job) == []


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ({"stdout": "out"}, 'their stdout to the same file, "out"'),
        ({"stderr": "logs/err.${jname}"}, 'their stderr to the same file, "logs/err.j"'),
        ({"stdout": "both", "stderr": "both"}, 'their stdout and stderr to the same file, "both"'),
        ({"stdout": "out.$$$${it}"}, 'their stdout to the same file, "out.$$$${it}"'),
        ({"stdout": "out.${its}"}, 'their stdout to the same file, "out.${its}"'),
        ({"wd": "run-${it}", "stdout": "/shared/out"}, 'their stdout to the same file, "/shared/out"'),
        ({"wd": "run", "stdout": "out", "stderr": "err.${it}"}, 'their stdout to the same file, "out"'),
    ],
)
def test_iterations_that_write_over_each_other_are_doubted(job: dict[str, Any], told: str):
    assert doubts(name="j", iteration=5, **job) == [f"all 5 iterations write {told}; put ${{it}} into its name"]


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ({"args": ["${it}"]}, "${it} stands"),
        ({"stdout": "out.${ itval }"}, "${itval} stands"),
        ({"exec": None, "script": "echo ${it} of ${its} ${it}"}, "${it}, ${its} stand"),
        ({"env": {"NUMBER": "${it_start}"}}, "${it_start} stands"),
    ],
)
def test_variables_of_iterations_are_doubted_where_there_are_none(job: dict[str, Any], told: str):
    assert doubts(**job) == [f'{told} for nothing in a job without iterations; give the job an "iteration"']
