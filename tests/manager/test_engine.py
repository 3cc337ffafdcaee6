"""The engine between core, journal and executor: the order of commits, launches and replies."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from qcg.pilotjob.core.effects import Effect
from qcg.pilotjob.core.errors import SanityError
from qcg.pilotjob.core.events import Cancel, Event, Remove, Submit
from qcg.pilotjob.core.shutdown import Cause
from qcg.pilotjob.executors.base import NodeLayout
from qcg.pilotjob.host.records import Ended, Launch, NodeGrant, Running, Started
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.metadata import FAILURE_LIMIT_REACHED
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.manager import commits, engine
from tests.manager.wired import GRANT, ONE_HOST, TWO_HOSTS, Wired, jobs, run
from tests.support.waiting import wait_for


def test_a_requeued_attempt_is_committed_before_the_next_one_starts(tmp_path: Path):
    """Otherwise a manager that resumes after a crash would not know the second attempt."""

    async def test(wired: Wired) -> None:
        wired.reported()
        await wired.engine.submit(jobs("one"))
        await wired.until("launch 1.1")
        wired.happened.clear()
        wired.reported()  # and the agent did not receive it
        await wired.until("launch 1.2")
        assert wired.happened.index("commit") < wired.happened.index("launch 1.2")

    run(tmp_path, test)


def test_jobs_beyond_the_limit_of_one_turn_are_started_in_later_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def test(wired: Wired) -> None:
        wired.executor.connect("n1")
        wired.reported()
        await wired.engine.submit(jobs("one", "two"))
        await wired.until("launch 1.1")
        await wired.until("launch 2.1")

    monkeypatch.setattr(engine, "STARTS_PER_TURN", 1)
    run(tmp_path, test, TWO_HOSTS)


def test_no_next_attempt_starts_while_nothing_can_be_committed(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.reported()
        await wired.engine.submit(jobs("one"))
        await wired.until("launch 1.1")
        wired.journal.broken = True
        wired.reported()
        await asyncio.sleep(0.2)
        assert "launch 1.2" not in wired.happened
        wired.journal.broken = False
        await wired.until("launch 1.2")

    run(tmp_path, test)


def test_a_reached_limit_of_failures_is_committed_in_the_next_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def test(wired: Wired) -> None:
        wired.engine.state.failure_limit.limit = 1
        wired.reported()
        await wired.engine.submit(jobs("one"))
        await wired.until("launch 1.1")
        wired.happened.clear()
        wired.executor.report("local", Started("1.1", 7, 1.0, GRANT), Ended("1.1", 2.0, 3, "exit", "", 7, 1.0, GRANT))
        for _ in range(3):
            await asyncio.sleep(0)
        assert "commit" in wired.happened
        with snapshot(wired.journal.path) as connection:
            assert FAILURE_LIMIT_REACHED.read(connection)

    monkeypatch.setattr(commits, "COMMIT_DELAY", 1000)
    run(tmp_path, test)


def test_failures_of_a_submission_that_cannot_be_stored_do_not_end_the_run(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.engine.state.failure_limit.limit = 1
        wired.reported()
        wired.journal.broken = True
        with pytest.raises(JournalError):
            await wired.engine.submit(jobs("too-large", numCores=3))
        wired.journal.broken = False
        wired.engine.commits.commit()
        assert not wired.journal.metadata(FAILURE_LIMIT_REACHED)
        await wired.engine.submit(jobs("fits"))
        await wired.until("launch 2.1")
        assert not wired.engine.shutdown.is_requested

    run(tmp_path, test)


def test_records_are_acknowledged_once_they_are_synced(tmp_path: Path):
    """Otherwise a crash of the machine could lose records that the agent has already dropped."""

    async def test(wired: Wired) -> None:
        wired.reported()
        await wired.engine.submit(jobs("one"))
        await wired.until("launch 1.1")
        await wired.until_all_is_written()
        wired.happened.clear()
        wired.executor.report("local", Started("1.1", 7, 1.0, GRANT), Ended("1.1", 2.0, 0, "exit", "", 7, 1.0))
        await wired.until("acknowledge 2")
        assert [what for what in wired.happened if not what.startswith("launch")] == ["commit", "sync", "acknowledge 2"]

    run(tmp_path, test)


def test_all_synced_records_are_acknowledged_after_two_concurrent_syncs_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def test(wired: Wired) -> None:
        engine = wired.engine
        wired.reported()
        await engine.submit(jobs("one", "two"))
        await wired.until("launch 2.1")
        wired.journal.unsyncable = True
        syncs = []
        for number in (1, 2):
            wired.executor.report("local", Ended(f"{number}.1", 2.0, 0, "exit", "", 7, 1.0))
            engine.commits.commit()
            syncs.append(asyncio.ensure_future(engine.commits.sync()))
            await asyncio.sleep(0)  # the first sync has started, with the records so far
        failures = await asyncio.gather(*syncs, return_exceptions=True)
        assert [type(failure) for failure in failures] == [JournalError] * 2
        wired.journal.unsyncable = False
        await engine.commits.sync()
        assert wired.happened[-1] == "acknowledge 2"

    monkeypatch.setattr(commits, "SYNC_DELAY", 1000)
    run(tmp_path, test)


def test_records_are_acknowledged_although_the_sync_after_their_commit_was_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def test(wired: Wired) -> None:
        engine = wired.engine
        wired.reported()
        await engine.submit(jobs("one"))
        await wired.until("launch 1.1")
        wired.executor.report("local", Ended("1.1", 2.0, 0, "exit", "", 7, 1.0))
        engine.commits.commit()
        syncing, may_go_on = threading.Event(), threading.Event()

        def hold_up() -> None:
            syncing.set()
            may_go_on.wait(60)

        wired.journal.on_sync = hold_up
        cancelled = asyncio.ensure_future(engine.commits.sync())
        await asyncio.to_thread(syncing.wait, 60)
        cancelled.cancel()
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await engine.commits.sync()
        assert wired.happened[-1] == "acknowledge 1"

    monkeypatch.setattr(commits, "SYNC_DELAY", 1000)
    run(tmp_path, test)


def test_the_end_of_an_attempt_on_two_nodes_is_acknowledged_when_both_have_reported(tmp_path: Path):
    """Otherwise the end would be lost if the manager dies in between."""

    async def test(wired: Wired) -> None:
        wired.executor.connect("n1")
        wired.reported()
        await wired.engine.submit(jobs("wide", numNodes=2))
        await wired.until("launch 1.1")
        grant: list[NodeGrant] = [("n0", (0, 1), ()), ("n1", (0, 1), ())]
        wired.executor.report("local", Started("1.1", 7, 1.0, grant))
        wired.executor.report("local", Ended("1.1", 2.0, 0, "exit", "", 7, 1.0))
        await wired.until("acknowledge 1")
        assert "sweep 1.1 on n1" in wired.happened
        assert wired.journal.acked() == {"local": 1}
        wired.executor.report_swept("n1", "1.1")
        await wired.until("acknowledge 2")
        assert wired.engine.all_done.is_set()

    run(tmp_path, test, TWO_HOSTS)


def test_a_job_is_overdue_only_after_waiting_under_its_manager(tmp_path: Path):
    """Its prerequisite may have ended long ago, while no manager ran."""

    async def test(wired: Wired) -> None:
        wired.engine.state.patience = 3600.0
        wired.reported()
        await wired.engine.submit([*jobs("first", "second"), *jobs("wide", numCores=2, after=["first"]), *jobs("last")])
        await wired.until("launch 2.1")
        wired.executor.report("local", Ended("1.1", 2.0, 0, "exit", "", 7, 1.0))
        await wired.until("launch 4.1")
        (record,) = wired.journal.attempts_of(1)
        assert (record.started, record.ended) == (1.0, 2.0), "by the clock of the host"

    run(tmp_path, test)


def test_running_jobs_are_announced_only_when_their_host_connects_for_the_first_time(tmp_path: Path):
    async def test(wired: Wired) -> None:
        notices = wired.notices()
        await wired.engine.submit(jobs("one"))
        live = [Running("1.1", 7, 1.0, [("n1", (0,), ())])]
        wired.executor.connect("n1", *live)
        wired.executor.disconnect("n1")
        wired.executor.connect("n1", *live)
        assert notices == ["1 job was found running"]

    run(tmp_path, test, TWO_HOSTS)


def test_prefilled_and_displaced_attempts_are_not_announced_as_running(tmp_path: Path):
    async def test(wired: Wired) -> None:
        notices = wired.notices()
        await wired.engine.submit(jobs("runs", "waits", "displaced"))
        displaced = Running("3.1", 8, 1.0, [("n0", (2,), ())])
        wired.reported(
            Running("1.1", 7, 1.0, GRANT), Running("2.1", 0, 0.0, GRANT), displaced, Running("9.1", 9, 1.0, GRANT)
        )
        assert notices == ["1 job was found running"]

    run(tmp_path, test, fallback_node="n0")


def test_a_failure_without_a_message_is_logged_without_a_colon(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async def test(wired: Wired) -> None:
        wired.reported()
        await wired.engine.submit(jobs("it", iteration=1))
        await wired.until("launch 1:0.1")
        wired.executor.report("local", Ended("1:0.1", 2.0, 3, "exit", "", 7, 1.0))

    logger = logging.getLogger("qcg.pilotjob.manager.engine")
    logger.addHandler(caplog.handler)
    run(tmp_path, test)
    logger.removeHandler(caplog.handler)
    notices = {record.getMessage() for record in caplog.records}
    assert {line for line in notices if "FAILED" in line} == {"it:0 FAILED: exit code 3", "it FAILED"}


def test_a_submission_that_cannot_be_stored_leaves_no_trace(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.journal.broken = True
        with pytest.raises(JournalError):
            await wired.engine.submit(jobs("too-large", numCores=3))
        assert wired.engine.state.jobs == {}
        assert wired.engine.all_done.is_set()
        wired.journal.broken = False
        await wired.engine.submit(jobs("fits"))

    run(tmp_path, test)
    assert (tmp_path / "jobs.report").read_bytes() == b""


def test_a_submission_that_cannot_be_synced_can_be_sent_again(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.journal.unsyncable = True
        with pytest.raises(JournalError):
            await wired.engine.submit(jobs("a", "b"))
        assert wired.engine.state.jobs == {}
        wired.journal.unsyncable = False
        await wired.engine.submit(jobs("a", "b"))

    run(tmp_path, test)


@pytest.mark.parametrize("submitted_again", [False, True])
def test_a_job_removed_before_its_submission_failed_is_ignored(tmp_path: Path, submitted_again: bool):
    async def test(wired: Wired) -> None:
        engine = wired.engine
        go_on = threading.Event()
        wired.journal.unsyncable = True
        wired.journal.on_sync = lambda: go_on.wait(30)
        refused = asyncio.ensure_future(engine.submit(jobs("a", "b")))
        await asyncio.sleep(0)
        engine.dispatch(Cancel(["a"]))
        engine.dispatch(Remove(["a"]))
        if submitted_again:
            engine.dispatch(Submit(jobs("a")))
        go_on.set()
        with pytest.raises(JournalError):
            await refused
        assert [(job.name, job.state.name) for job in engine.state.jobs.values()] == [("a", "QUEUED")] * submitted_again
        wired.journal.unsyncable = False

    run(tmp_path, test)


def test_running_jobs_of_a_submission_that_cannot_be_synced_are_removed_at_their_end(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.reported()
        wired.journal.unsyncable = True
        wired.journal.on_sync = lambda: wait_for(lambda: "launch 1.1" in wired.happened)
        with pytest.raises(JournalError):
            await wired.engine.submit(jobs("a"))
        assert set(wired.engine.state.jobs) == {"a"}
        wired.executor.report("local", Ended("1.1", 2.0, -15, "cancel", "", 7, 1.0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert wired.engine.state.jobs == {}
        wired.journal.unsyncable = False

    run(tmp_path, test)


def test_launches_use_the_cpus_and_gpus_that_a_host_has_described(tmp_path: Path):
    async def test(wired: Wired) -> None:
        launched: list[Launch] = []
        wired.executor.launch = lambda node, launch: launched.append(launch)  # type: ignore[method-assign]
        wired.engine.node_described("n0", NodeLayout(cpus={0: 4, 1: 6}, gpus={"1": "0"}))
        wired.engine.node_described("n0", NodeLayout())
        wired.reported()
        await wired.engine.submit(jobs("a", numCores=2))
        await asyncio.to_thread(wait_for, lambda: launched)
        assert launched[0].cores == (4, 6)
        assert wired.engine.site.visible_gpus == {"n0": {"1": "0"}}

    run(tmp_path, test)


def test_nothing_is_started_once_the_engine_is_closed(tmp_path: Path):
    async def test() -> None:
        wired = Wired(tmp_path, ONE_HOST, "")
        wired.reported()
        wired.engine.dispatch(Submit(jobs("one")))
        await wired.engine.close()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not any(line.startswith("launch") for line in wired.happened)

    asyncio.run(test())


def test_a_contradiction_in_the_core_is_no_refusal_and_ends_the_manager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def contradict(event: Event, now: float) -> list[Effect]:
        raise SanityError("a core is held twice")

    async def test(wired: Wired) -> None:
        monkeypatch.setattr(wired.engine.core, "handle", contradict)
        with pytest.raises(SanityError):
            wired.engine.dispatch(Cancel(["one"]))
        assert wired.engine.commits.broken
        assert wired.engine.shutdown.cause is Cause.DEFECT

    run(tmp_path, test)
