"""Job descriptions in reports have the form of request files."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.description.model import Execution, JobDescription
from qcg.pilotjob.description.parse import parse_jobs
from qcg.pilotjob.description.variables import SubmissionContext
from qcg.pilotjob.journal.records import PastAttemptRecord
from qcg.pilotjob.report.entries import text_entry
from qcg.pilotjob.report.record import JobEnd, dependencies_form, execution_form, resources_form, retry_form


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


def test_growing_memory_is_reported_as_it_was_written():
    retry = {"on": {"memory": 2}, "grow": {"mem": ["200MB", "300MB"]}}
    description = read({"name": "j", "execution": {"exec": "x"}, "resources": {"mem": "100MB"}, "retry": retry})
    assert retry_form(description.retry) == retry


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


@pytest.mark.parametrize("rerun_at", [None, 140.0])
def test_only_a_rerun_shows_the_end_of_the_attempt_before_it(rerun_at: float | None):
    earlier = PastAttemptRecord(1, -1, 1, "exit", True, None, 110.0, 120.0, 130.0, 7, 3, None, "", rerun_at=rerun_at)
    end = JobEnd("a", State.SUCCEED, 100.0, 150.0, 160.0, 170.0, earlier=(earlier,))
    between = [(State.QUEUED, 130.0)] if rerun_at is None else [(State.FAILED, 130.0), (State.QUEUED, 140.0)]
    assert end.history[3:-3] == between
    shown = [line.split(": ")[1] for line in text_entry(end).decode().splitlines() if ": " in line]
    assert shown[:-1] == [state.name for state, _ in end.history]
