"""What allocations of a run tell each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.cluster.slurm_jobs import parse_job
from qcg.pilotjob.common.exit_codes import JOBS_LEFT
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.shutdown import Cause
from qcg.pilotjob.manager.run_result import Ending
from qcg.pilotjob.runs.chain_state import Books, read_books, write_books


def test_the_chain_state_is_read_as_written_and_only_by_its_owner(tmp_path: Path):
    directory = tmp_path / "notes"
    assert read_books(directory) == Books()
    written = Books(["12", "13"], "13", 4)
    write_books(directory, written)
    assert read_books(directory) == written
    [file] = directory.iterdir()
    assert (file.stat().st_mode & 0o777, directory.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_damaged_chain_state_is_an_error(tmp_path: Path):
    write_books(tmp_path, Books())
    [file] = tmp_path.iterdir()
    file.write_text('{"allocations": 5}')
    with pytest.raises(BatchError, match=f"{file} cannot be read"):
        read_books(tmp_path)


def test_a_manager_that_leaves_jobs_ends_with_the_exit_code_that_asks_for_another_allocation(tmp_path: Path):
    counts = [int(state is State.QUEUED) for state in State]
    ending = Ending(run_dir=tmp_path, counts=counts, cause=Cause.TIME, reason="the time is over")
    assert ending.exit_code == JOBS_LEFT == 4


SHOWN = """\
JobId=7 JobName=JobState=FAILED Reason=None
   JobState=COMPLETING Reason=TimeLimit Dependency=(null)
   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=4:0
   RunTime=00:00:07 TimeLimit=1-02:00:00 TimeMin=N/A
   NodeList=n[1-3]
   StdOut=/home/me/two words.out
"""


def test_the_state_of_a_slurm_job_is_read_from_the_start_of_its_lines():
    seen = parse_job("7", SHOWN)
    assert (seen.state, seen.reason, seen.restarts, seen.exit_code) == ("COMPLETING", "TimeLimit", 2, 4)
    assert (seen.nodes, seen.output, seen.is_over) == ("n[1-3]", "/home/me/two words.out", False)
    assert seen.limit == "1-02:00:00"
    assert parse_job("7", SHOWN.replace("4:0", "0:9")).exit_code == 137
    assert parse_job("7", SHOWN.replace("COMPLETING", "TIMEOUT")).is_over


def test_a_batch_system_reply_without_the_job_is_an_error():
    with pytest.raises(BatchError, match="does not tell how the job is"):
        parse_job("7", "slurm_load_jobs: nothing\n")
