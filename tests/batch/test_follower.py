"""The output of `qcg-pm alloc --wait`, with stubs of the commands of Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob.batch.follower import Follower
from qcg.pilotjob.cluster.slurm.system import SYSTEM
from qcg.pilotjob.runs.chain_state import ChainState, write_chain_state
from tests.support.pilot import environment
from tests.support.slurm_programs import SlurmPrograms


@pytest.fixture
def programs(tmp_path: Path) -> SlurmPrograms:
    return SlurmPrograms(tmp_path)


def follow(programs: SlurmPrograms, chain: ChainState, lines: list[str]) -> int:
    directory = programs.path.parent / "notes"
    write_chain_state(directory, chain)
    environ = environment(PATH=str(programs.path))
    return Follower(SYSTEM.queue, directory, chain.allocations[0], 3, environ, lines.append).wait()


def test_the_output_of_every_allocation_is_shown_even_of_very_short_ones(
    programs: SlurmPrograms, capsys: pytest.CaptureFixture[str]
):
    for job in ("1", "2", "3"):
        output = programs.path.parent / f"slurm-{job}.out"
        output.write_text(f"words of {job}\n")
        programs.know(job, "RUNNING" if job == "1" else "COMPLETED", output=str(output))
    lines: list[str] = []
    assert follow(programs, ChainState(["1", "2", "3"], exit_code=0), lines) == 0
    assert capsys.readouterr().out == "words of 1\nwords of 2\nwords of 3\n"
    assert lines[-2:] == ["Job 1 has ended; job 2 is next.", "Job 2 has ended; job 3 is next."]


def test_a_cancelled_next_allocation_is_not_reported(programs: SlurmPrograms, capsys: pytest.CaptureFixture[str]):
    programs.know("1", "RUNNING")
    programs.know("2", "CANCELLED", output=str(programs.path.parent / "slurm-2.out"))
    lines: list[str] = []
    assert follow(programs, ChainState(["1", "2"], exit_code=0), lines) == 0
    assert lines == ["Job 1 is RUNNING."]
    assert capsys.readouterr().out == ""
