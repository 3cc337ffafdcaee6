"""The records that a manager reads when it resumes a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob.core import finalize
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.events import Event
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.executors.ledger_reader import UnreportedRecords
from qcg.pilotjob.host.records import Ended
from qcg.pilotjob.journal import queries, saved_run
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.manager import resume
from qcg.pilotjob.manager.job_views import message_of
from tests.core.core_driver import CoreDriver, job, machine
from tests.manager.wired import Wired, jobs, run


class Recorded(CoreDriver):
    """A core whose effects are recorded in a registry."""

    def __init__(self, path: Path, *cores: int) -> None:
        self.journal = Journal.create(path)
        super().__init__(machine(*cores))

    def handle(self, event: Event) -> list[str]:
        lines = super().handle(event)
        for effect in self.effects:
            self.journal.record(effect)
        return lines

    def resumed(self) -> CoreState:
        core = CoreState(self.core.state.nodes)
        resume.restore(core, self.journal, UnreportedRecords([], set(), True))
        self.journal.close()
        return core


def states_of(core: CoreState, name: str) -> list[str]:
    iterations = core.jobs[name].iterations
    assert iterations is not None
    return [State(state).name for state in iterations.states]


def test_only_the_states_of_iterations_of_a_failed_job_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def test(wired: Wired) -> None:
        wired.reported()
        await wired.engine.submit(jobs("many", iteration={"start": 5, "stop": 9}))
        for position in range(4):
            await wired.until(f"launch 1:{position}.1")
            ended = Ended(f"1:{position}.1", 2.0, int(position == 2), "exit", "", 7, 1.0)
            wired.executor.report("local", ended)
        await wired.until_all_is_written()
        for module in (queries, saved_run):
            monkeypatch.setattr(module, "to_attempt", lambda row: pytest.fail(f"{row} was read"))
        core = CoreState(wired.engine.state.nodes)
        resume.restore(core, wired.journal, UnreportedRecords([], set(), True))
        iterations = core.jobs["many"].iterations
        assert iterations is not None
        states = [iterations.state(position) for position in range(4)]
        assert states == [State.SUCCEED, State.SUCCEED, State.FAILED, State.SUCCEED]

    run(tmp_path, test)


@pytest.mark.parametrize("few", [finalize.MAX_SINGLE_TRANSITIONS, 0])
def test_a_requeued_iteration_is_not_omitted_with_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int):
    monkeypatch.setattr(finalize, "MAX_SINGLE_TRANSITIONS", few)
    driver = Recorded(tmp_path / "registry", 1)
    driver.submit(job("a", its=4, wt=3600.0), job("c", its=4, after="a:${it}"))
    driver.schedule()
    driver.start("a:0")
    driver.deadline(driver.now + 1000)
    driver.end("a:0")
    driver.schedule()
    driver.start("c:0")
    driver.cancel("a")
    assert driver.iteration_states("c") == ["EXECUTING", "OMITTED", "OMITTED", "OMITTED"]
    driver.suspend()
    driver.end("c:0", exit_code=-15, reason="closed")
    assert driver.iteration_states("c") == ["QUEUED", "OMITTED", "OMITTED", "OMITTED"]
    resumed = driver.resumed()
    assert states_of(resumed, "c") == ["QUEUED", "OMITTED", "OMITTED", "OMITTED"]
    assert not resumed.jobs["c"].state.is_final


def test_running_iterations_of_a_cancelled_job_are_cancelled_after_a_resume(tmp_path: Path):
    driver = Recorded(tmp_path / "registry", 1)
    driver.submit(job("a", its=3))
    driver.schedule()
    driver.start("a:0")
    assert "rest of a CANCELED" in driver.cancel("a")
    driver.lose("n1")
    assert states_of(driver.resumed(), "a") == ["CANCELED"] * 3


def test_a_failed_job_has_the_same_messages_after_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(finalize, "MAX_SINGLE_TRANSITIONS", 0)
    driver = Recorded(tmp_path / "registry", 1)
    driver.submit(job("a", its=4, wt=3600.0), job("c", its=4, after="a:${it}"))
    driver.schedule()
    driver.deadline(driver.now + 1000)
    driver.end("a:0")
    driver.schedule()
    driver.end("c:0", exit_code=1)
    driver.cancel("a")
    before = driver.core.state.jobs["c"]
    record = driver.journal.job_record(before.seq)
    after = driver.resumed().jobs["c"]
    assert before.state is after.state is State.FAILED
    assert message_of(before) == message_of(after) == "1 of 4 iterations failed"
    assert record is not None
    assert record.message == "it waits for the same index of 'a', which is CANCELED"
