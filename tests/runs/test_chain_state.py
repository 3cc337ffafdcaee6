"""The state that allocations of a run pass on to each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.cluster.spec import AllocationSpec
from qcg.pilotjob.common.exit_codes import JOBS_LEFT
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.shutdown import Cause
from qcg.pilotjob.manager.run_result import ManagerEnd, RunResult
from qcg.pilotjob.runs.chain_state import ChainState, read_chain_state, write_chain_state
from qcg.pilotjob.runs.submissions import (
    Submission,
    free_directory,
    last_submission,
    recorded_allocations,
    write_submission,
)


def test_the_chain_state_is_read_as_written_and_only_by_its_owner(tmp_path: Path):
    directory = tmp_path / "notes"
    assert read_chain_state(directory) == ChainState()
    written = ChainState(["12", "13"], "13", 4)
    write_chain_state(directory, written)
    assert read_chain_state(directory) == written
    [file] = directory.iterdir()
    assert (file.stat().st_mode & 0o777, directory.stat().st_mode & 0o777) == (0o600, 0o700)


def test_the_file_of_an_earlier_version_is_continued(tmp_path: Path):
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    (directory / "books.json").write_text('{"allocations":["7"]}')
    assert read_chain_state(directory) == ChainState(["7"])
    write_chain_state(directory, ChainState(["7", "8"]))
    assert [path.name for path in directory.iterdir()] == ["books.json"]
    assert read_chain_state(directory) == ChainState(["7", "8"])


def test_submissions_of_an_earlier_version_are_found_before_those_of_this_one(tmp_path: Path):
    run_dir = tmp_path / ".qcgpjm-service-mine"
    for name, job_id in ((".qcgpjm-sbatch-mine", "5"), (".qcgpjm-sbatch-mine.2", "6")):
        (tmp_path / name).mkdir(mode=0o700)
        note = {"job": job_id, "run_dir": str(run_dir), "shape": {"most": 3, "further": ["--hold"]}}
        (tmp_path / name / "submission.json").write_text(json.dumps(note))
    earlier = last_submission(run_dir)
    assert earlier == Submission("6", str(run_dir), AllocationSpec(max_allocations=3, extra_options=["--hold"]))
    directory = free_directory(run_dir)
    assert directory.name == ".qcgpjm-alloc-mine"
    write_submission(directory, Submission("7", str(run_dir), AllocationSpec(), "slurm"))
    assert recorded_allocations(run_dir) == [("", "5"), ("", "6"), ("slurm", "7")]
    assert free_directory(run_dir).name == ".qcgpjm-alloc-mine.2"


def test_a_damaged_chain_state_is_an_error(tmp_path: Path):
    write_chain_state(tmp_path, ChainState())
    [file] = tmp_path.iterdir()
    file.write_text('{"allocations": 5}')
    with pytest.raises(BatchError, match=f"{file} cannot be read"):
        read_chain_state(tmp_path)


def test_a_manager_that_leaves_jobs_ends_with_the_exit_code_that_asks_for_another_allocation(tmp_path: Path):
    counts = [int(state is State.QUEUED) for state in State]
    result = RunResult(run_dir=tmp_path, counts=counts, end=ManagerEnd(Cause.TIME, "the time is over"))
    assert result.exit_code == JOBS_LEFT == 4
