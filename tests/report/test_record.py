"""Job descriptions in reports have the form of request files."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from qcg.pilotjob.description.model import Execution, JobDescription
from qcg.pilotjob.description.parse import parse_jobs
from qcg.pilotjob.description.variables import SubmissionContext
from qcg.pilotjob.report.record import dependencies_form, execution_form, resources_form


def read(form: dict[str, Any]) -> JobDescription:
    return parse_jobs([form], SubmissionContext(1, datetime(2018, 1, 11), "local", "u"))[0]


@pytest.mark.parametrize(
    "execution",
    [
        {"exec": "sleep", "args": ["1", 'with "quotes" and ${root_wd}']},
        {"script": "echo $HOME\n", "env": {"A": "b"}, "wd": "w", "stdin": "i", "stdout": "o", "stderr": "e"},
        {"exec": "x", "modules": ["gcc", "mpi"], "venv": "/v", "model": "threads"},
        {"exec": "x", "model": "openmpi", "model_opts": {"mpirun": "/m/mpirun", "mpirun_args": ["-v"]}},
        {"exec": "x", "model": "srunmpi", "model_opts": {"srun_args": ["--exclusive"]}},
    ],
)
def test_an_execution_is_reported_as_it_was_written(execution: dict[str, Any]):
    assert execution_form(read({"name": "j", "execution": execution}).execution) == execution


@pytest.mark.parametrize(
    "resources",
    [
        {"numCores": {"exact": 4}},
        {"numCores": {"min": 2, "max": 8}, "numNodes": {"exact": 2}},
        {"numCores": {"min": 2}},
        {"numNodes": {"min": 1, "max": 3}},
        {"numNodes": {"exact": 2}, "nodeCrs": {"gpu": 1, "mem": 1024}},
        {"numCores": {"exact": 1}, "nodeCrs": {"mem": 10}, "wt": "5400s"},
        {"numCores": {"exact": 1}, "wt": "1.5s"},
        {"numCores": {"min": 2, "scheduler": {"name": "split-into", "params": {"parts": 3}}}},
        {"numNodes": {"min": 1, "scheduler": {"name": "split-into", "params": {"parts": 3}}}},
        {"numCores": {"min": 1, "scheduler": {"name": "maximum-iters"}}},
    ],
)
def test_resources_are_reported_as_they_were_written(resources: dict[str, Any]):
    form = {"name": "j", "execution": {"exec": "x"}, "iteration": {"stop": 3}, "resources": resources}
    assert resources_form(read(form)) == resources


def test_a_job_without_resources_is_reported_with_one_core():
    assert resources_form(JobDescription("j", Execution(exec="x"))) == {"numCores": {"exact": 1}}


def test_dependencies_are_reported_as_they_were_written():
    assert dependencies_form(JobDescription("j", Execution(exec="x"), after=("a", "b:3"))) == {"after": ["a", "b:3"]}
    assert dependencies_form(JobDescription("j", Execution(exec="x"))) == {}
