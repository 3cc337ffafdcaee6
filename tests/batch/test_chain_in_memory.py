"""`qcg-pm alloc`, the allocation runner and the follower with a batch system in memory, without Slurm."""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path

import click.testing
import pytest

from qcg.pilotjob.batch.allocation_runner import AllocationRunner
from qcg.pilotjob.batch.follower import Follower
from qcg.pilotjob.cli.commands.alloc import command as alloc
from qcg.pilotjob.cluster.base import EndCause, Phase
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.common.exit_codes import JOBS_LEFT
from qcg.pilotjob.runs.chain_state import ChainState, read_chain_state, write_chain_state
from tests.support.memory_batch import VARIABLE, MemoryBatch, register
from tests.support.pilot import job, write_requests
from tests.support.waiting import wait_for

FIRST = {VARIABLE: "1", "PATH": "/bin:/usr/bin"}


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryBatch:
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    return register(monkeypatch)


def first_of_chain(memory: MemoryBatch, directory: Path, most: int = 2) -> AllocationRunner:
    memory.queue.set("1", Phase.RUNNING, nodes="m0")
    return AllocationRunner(directory, directory / "run", most, [], FIRST)


def test_alloc_submits_a_script_and_records_its_batch_system(
    memory: MemoryBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, "0")
    file = write_requests(tmp_path / "jobs.json", [job("a", "true")])
    words = [str(file), "--id=mine", "--nodes=2", "--submit-arg=--place=scatter"]
    done = click.testing.CliRunner().invoke(alloc, words)
    assert done.exit_code == 0, done.output
    assert "Submitted batch job 1\n" in done.output
    assert memory.queue.views["1"].phase is Phase.WAITING
    directory = tmp_path / ".qcgpjm-alloc-mine"
    assert json.loads((directory / "submission.json").read_text())["system"] == "memory"
    script = (directory / "batch.sh").read_text()
    assert "#MEMORY --nodes=2\n" in script
    assert "#MEMORY --place=scatter\n" in script


def test_the_environment_chooses_among_several_batch_systems(
    memory: MemoryBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for program in ("sbatch", memory.queue.submit_program):
        (tmp_path / program).touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    file = write_requests(tmp_path / "jobs.json", [job("a", "true")])

    def script(*words: str) -> str:
        return click.testing.CliRunner().invoke(alloc, [str(file), "--dry-run", *words]).output

    said = "Several batch systems are installed: slurm (sbatch), memory (memory-submit)."
    assert said in script()
    assert "#SBATCH --nodes=1" in script()
    assert said not in script("--batch-system=slurm")
    monkeypatch.setenv("QCG_PJM_BATCH_SYSTEM", "memory")
    assert "#MEMORY --nodes=1" in script()
    assert said not in script()
    monkeypatch.setenv("QCG_PJM_BATCH_SYSTEM", "nonesuch")
    assert "there is no batch system 'nonesuch'; known ones: slurm" in " ".join(script().split())


def test_nothing_is_submitted_to_a_batch_system_that_does_not_respond(
    memory: MemoryBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, "0")
    memory.queue.down = True
    file = write_requests(tmp_path / "jobs.json", [job("a", "true")])
    done = click.testing.CliRunner().invoke(alloc, [str(file), "--id=mine"])
    assert done.exit_code == 2
    assert "the batch system is down" in str(done.output)
    assert not (tmp_path / ".qcgpjm-alloc-mine").exists()


def test_the_next_allocation_waits_for_this_one_and_is_cancelled_when_the_run_is_over(
    memory: MemoryBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    inside = first_of_chain(memory, tmp_path)

    def manager() -> int:
        assert memory.queue.after == {"2": "1"}
        return 0

    monkeypatch.setattr(inside, "_run_once", manager)
    assert inside.run() == 0
    assert memory.queue.views["2"].was_cancelled
    assert read_chain_state(tmp_path) == ChainState(["1"], exit_code=0)


@pytest.mark.parametrize("cause", EndCause)
def test_only_a_cancellation_ends_the_chain(
    memory: MemoryBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: EndCause
):
    inside = first_of_chain(memory, tmp_path)

    def manager() -> int:
        memory.queue.set("1", Phase.ENDING, end_cause=cause)
        inside._on_term(signal.SIGTERM, None)
        return JOBS_LEFT

    monkeypatch.setattr(inside, "_run_once", manager)
    assert inside.run() == JOBS_LEFT
    stopped = cause is EndCause.CANCELLED
    assert memory.queue.views["2"].was_cancelled == stopped
    assert read_chain_state(tmp_path).cancelled == ("1" if stopped else "")


def test_an_unknown_number_of_restarts_does_not_keep_the_manager_from_starting(
    memory: MemoryBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def restarts(environ: object) -> int:
        raise ClusterError("the batch system does not tell")

    monkeypatch.setattr(memory, "requeue_count", restarts)
    inside = first_of_chain(memory, tmp_path, most=1)
    monkeypatch.setattr(inside, "_run_once", lambda: 0)
    assert inside.run() == 0


MANAGER = """#!/bin/bash
trap 'echo TERM >> {0}/signals; exit 4' TERM
touch {0}/ready
for try in {{1..200}}; do [ -e {0}/stop ] && break; sleep 0.05; done
"""


@pytest.mark.parametrize("signals_all", [False, True])
def test_sigterm_is_passed_on_where_the_batch_system_signals_the_script_alone(
    memory: MemoryBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signals_all: bool
):
    monkeypatch.setattr(memory, "signals_all_processes", signals_all)
    manager = tmp_path / "manager"
    manager.write_text(MANAGER.format(tmp_path))
    manager.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(manager))
    inside = first_of_chain(memory, tmp_path, most=1)

    def end_allocation() -> None:
        wait_for((tmp_path / "ready").exists)
        inside._on_term(signal.SIGTERM, None)
        if signals_all:
            (tmp_path / "stop").touch()

    ending = threading.Thread(target=end_allocation)
    ending.start()
    code = inside.run()
    ending.join()
    assert code == (0 if signals_all else JOBS_LEFT)
    assert (tmp_path / "signals").exists() != signals_all


def test_the_follower_shows_states_and_output_until_the_run_is_over(
    memory: MemoryBatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    output = tmp_path / "1.out"
    output.write_text("words\n")
    memory.queue.set("1", Phase.RUNNING, nodes="m0", output=str(output))
    write_chain_state(tmp_path, ChainState(["1"], exit_code=0))
    lines: list[str] = []
    assert Follower(memory.queue, tmp_path, "1", 1, {}, lines.append).wait() == 0
    assert lines == ["Job 1 is RUNNING on m0."]
    assert capsys.readouterr().out == "words\n"


def test_the_follower_submits_the_job_that_the_allocation_could_not_submit(memory: MemoryBatch, tmp_path: Path):
    memory.queue.set("1", Phase.OVER)
    write_chain_state(tmp_path, ChainState(["1"], exit_code=JOBS_LEFT))
    lines: list[str] = []

    def tell(sentence: str) -> None:
        lines.append(sentence)
        if "was submitted from here" in sentence:
            memory.queue.set("2", Phase.OVER)
            write_chain_state(tmp_path, ChainState(["1", "2"], exit_code=0))

    assert Follower(memory.queue, tmp_path, "1", 2, {}, tell).wait() == 0
    assert "Jobs are left; job 2 was submitted from here." in lines
