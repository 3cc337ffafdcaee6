"""The manager inside one allocation, at the end of that allocation. Whole runs are in `tests/slurm/test_sbatch.py`."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from qcg.pilotjob.batch.allocation_runner import AllocationRunner
from qcg.pilotjob.batch.follower import Follower
from qcg.pilotjob.cluster.base import AllocationView, EndCause, Phase
from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.cluster.slurm import queue as slurm_queue
from qcg.pilotjob.cluster.slurm.queue import PHASES, SlurmQueue
from qcg.pilotjob.common.exit_codes import JOBS_LEFT
from qcg.pilotjob.journal.journal import FILE_NAME, Journal
from qcg.pilotjob.journal.metadata import FAILURE_LIMIT_REACHED, FINISH_REQUESTED, MetadataKey
from qcg.pilotjob.runs.chain_state import ChainState, read_chain_state, write_chain_state


@pytest.fixture(autouse=True)
def _signals_stay_those_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)


def test_a_batch_system_that_ends_the_allocation_has_two_seconds_to_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    patient: list[float] = []

    def call(command: Sequence[str], environ: Mapping[str, str], patience: float = 120.0) -> str:
        patient.append(patience)
        raise BatchError("scontrol had no answer")

    monkeypatch.setattr(slurm_queue, "_call", call)
    write_chain_state(tmp_path, ChainState(allocations=["7"]))
    inside = AllocationRunner(tmp_path, tmp_path / "run", 1, [], {"SLURM_JOB_ID": "7"})
    inside._on_term(signal.SIGTERM, None)
    assert patient == [2.0]


def test_a_slow_batch_system_is_queried_again_when_the_manager_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    answers: list[BatchError | AllocationView] = [BatchError("scontrol had no answer"), seen("7", "COMPLETING")]
    given_back: list[str] = []

    def view(self: SlurmQueue, job_id: str, environ: Mapping[str, str], patience: float = 120.0) -> AllocationView:
        answer = answers.pop(0)
        if isinstance(answer, BatchError):
            raise answer
        return answer

    monkeypatch.setattr(SlurmQueue, "view", view)
    monkeypatch.setattr(SlurmQueue, "cancel", lambda self, job_id, environ: given_back.append(job_id))
    write_chain_state(tmp_path, ChainState(allocations=["7", "8"]))
    inside = AllocationRunner(tmp_path, tmp_path / "run", 2, [], {"SLURM_JOB_ID": "7"})

    def manager() -> int:
        inside._on_term(signal.SIGTERM, None)
        return JOBS_LEFT

    monkeypatch.setattr(inside, "_run_manager", manager)
    assert inside.run() == JOBS_LEFT
    assert given_back == ["8"]
    assert read_chain_state(tmp_path) == ChainState(["7"], cancelled="7", exit_code=JOBS_LEFT)


@pytest.mark.parametrize("cause", [cause for cause in EndCause if cause is not EndCause.CANCELLED])
def test_the_chain_continues_after_every_cause_except_a_cancellation_even_without_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: EndCause
):
    view = AllocationView("7", Phase.ENDING, "EXITING", end_cause=cause)
    given_back: list[str] = []
    monkeypatch.setattr(SlurmQueue, "view", lambda self, job_id, environ, patience=120.0: view)
    monkeypatch.setattr(SlurmQueue, "cancel", lambda self, job_id, environ: given_back.append(job_id))
    write_chain_state(tmp_path, ChainState(allocations=["7", "8"]))
    inside = AllocationRunner(tmp_path, tmp_path / "run", 2, [], {"SLURM_JOB_ID": "7"})

    def manager() -> int:
        inside._on_term(signal.SIGTERM, None)
        return JOBS_LEFT

    monkeypatch.setattr(inside, "_run_manager", manager)
    assert inside.run() == JOBS_LEFT
    assert not given_back
    assert read_chain_state(tmp_path) == ChainState(["7", "8"])


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        (FINISH_REQUESTED, "The run was told to finish"),
        (FAILURE_LIMIT_REACHED, "Too many jobs have failed (--stop-after)"),
    ],
    ids=["told to finish", "too many failures"],
)
@pytest.mark.parametrize("code", [JOBS_LEFT, -signal.SIGKILL], ids=["shut down", "killed in its shutdown"])
def test_a_run_that_has_to_end_gets_no_further_manager_and_no_further_allocation(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
    flag: MetadataKey[bool],
    why: str,
):
    codes = [code]
    given_back: list[str] = []
    monkeypatch.setattr(SlurmQueue, "view", lambda self, job_id, environ: seen(job_id, "COMPLETING"))
    monkeypatch.setattr(SlurmQueue, "cancel", lambda self, job_id, environ: given_back.append(job_id))
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    journal = Journal.create(run_dir / FILE_NAME)
    journal.set_metadata(flag, True)
    journal.close()
    write_chain_state(tmp_path, ChainState(allocations=["7", "8"]))
    inside = AllocationRunner(tmp_path, run_dir, 2, [], {"SLURM_JOB_ID": "7"})
    monkeypatch.setattr(inside, "_run_once", codes.pop)
    assert inside.run() == JOBS_LEFT
    assert not codes
    assert given_back == ["8"]
    assert f"{why}, and jobs are left." in capsys.readouterr().out
    chain = read_chain_state(tmp_path)
    assert (chain.allocations, chain.cancelled, chain.exit_code) == (["7"], "7", JOBS_LEFT)


def test_no_allocation_follows_one_whose_cancellation_was_not_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SlurmQueue, "view", lambda self, job_id, environ: seen(job_id, "CANCELLED"))
    write_chain_state(tmp_path, ChainState(allocations=["7", "8"]))
    assert AllocationRunner(tmp_path, tmp_path / "run", 3, [], {"SLURM_JOB_ID": "8"}).run() == JOBS_LEFT
    submitted: list[Path] = []

    def submit(self: SlurmQueue, script: Path, environ: Mapping[str, str], after: str = "") -> str:
        submitted.append(script)
        return "9"

    monkeypatch.setattr(SlurmQueue, "submit", submit)
    assert Follower(SlurmQueue(), tmp_path, "8", 3, {}, lambda sentence: None).wait() == JOBS_LEFT
    assert not submitted


def test_an_allocation_cancelled_during_its_first_query_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def view(self: SlurmQueue, job_id: str, environ: Mapping[str, str], patience: float = 120.0) -> AllocationView:
        if job_id == "7":
            inside._on_term(signal.SIGTERM, None)
        return seen(job_id, "COMPLETED" if job_id == "7" else "RUNNING")

    monkeypatch.setattr(SlurmQueue, "view", view)
    write_chain_state(tmp_path, ChainState(allocations=["7"]))
    inside = AllocationRunner(tmp_path, tmp_path / "run", 3, [], {"SLURM_JOB_ID": "8"})
    assert inside.run() == JOBS_LEFT
    assert read_chain_state(tmp_path) == ChainState(["7", "8"], cancelled="8", exit_code=JOBS_LEFT)


def seen(job_id: str, state: str) -> AllocationView:
    """A job of Slurm without a reason."""
    return AllocationView(
        job_id, PHASES.get(state, Phase.ENDING), state, end_cause=slurm_queue.end_cause(state, "None")
    )
