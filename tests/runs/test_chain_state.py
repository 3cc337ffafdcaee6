"""The state that allocations of a run pass on to each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.common.exit_codes import JOBS_LEFT
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.shutdown import Cause
from qcg.pilotjob.manager.run_result import ManagerEnd, RunResult
from qcg.pilotjob.runs.chain_state import ChainState, read_chain_state, write_chain_state


def test_the_chain_state_is_read_as_written_and_only_by_its_owner(tmp_path: Path):
    directory = tmp_path / "notes"
    assert read_chain_state(directory) == ChainState()
    written = ChainState(["12", "13"], "13", 4)
    write_chain_state(directory, written)
    assert read_chain_state(directory) == written
    [file] = directory.iterdir()
    assert (file.stat().st_mode & 0o777, directory.stat().st_mode & 0o777) == (0o600, 0o700)


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
