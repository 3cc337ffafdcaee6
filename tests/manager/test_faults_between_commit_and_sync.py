"""Replies are correct whatever fails between commit and sync."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from qcg.pilotjob.core.events import Cancel, Submit
from qcg.pilotjob.host.records import Started
from qcg.pilotjob.journal import queries
from qcg.pilotjob.journal.commit_group import CommitGroup
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.metadata import FAILURE_LIMIT_REACHED
from qcg.pilotjob.journal.snapshot import snapshot
from tests.manager.wired import GRANT, Wired, jobs, run


def stored(directory: Path) -> list[str]:
    """The unfinished jobs in the registry, as a manager that resumes would find them."""
    with snapshot(directory / "registry.sqlite") as connection:
        return [job.name for job in queries.job_records(connection) if not job.state.is_final]


def failing(number: int) -> Callable[..., None]:
    def fail(*given: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_jobs_are_synced_without_a_sync_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def no_more_threads(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def test(wired: Wired) -> None:
        gc.collect()  # otherwise the collection of a manager object of an earlier test may need a thread
        with monkeypatch.context() as limit:
            limit.setattr(threading.Thread, "start", no_more_threads)
            reply = await wired.engine.submit(jobs("a"))
        assert reply["jobs"] == ["a"]
        assert "sync" in wired.happened
        assert set(wired.engine.state.jobs) == {"a"}
        assert stored(tmp_path) == ["a"]

    run(tmp_path, test)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_jobs_refused_by_a_failed_sync_are_gone_from_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
):
    async def test(wired: Wired) -> None:
        with monkeypatch.context() as disk:
            disk.setattr(os, "fdatasync", failing(number))
            with pytest.raises(JournalError, match=os.strerror(number)):
                await wired.engine.submit(jobs("a", "b"))
            assert wired.engine.state.jobs == {}
            assert stored(tmp_path) == [], "a manager killed now leaves nothing of them"
        assert (await wired.engine.submit(jobs("a", "b")))["jobs"] == ["a", "b"]

    run(tmp_path, test)


def reported(directory: Path) -> list[str]:
    return [json.loads(line)["name"] for line in (directory / "jobs.report").read_text().splitlines()]


def test_jobs_refused_by_a_failed_sync_leave_no_entry_in_the_report(tmp_path: Path):
    """Even when one of them waits for another; a job that had ended before keeps its entry."""

    async def test(wired: Wired) -> None:
        await wired.engine.submit(jobs("before"))
        wired.engine.dispatch(Cancel(["before"]))
        wired.journal.unsyncable = True
        with pytest.raises(JournalError):
            await wired.engine.submit([*jobs("a"), *jobs("b", after=["a"]), *jobs("c", iteration=3)])
        wired.journal.unsyncable = False
        wired.engine.commits.commit()
        assert wired.engine.state.jobs.keys() == {"before"}
        assert reported(tmp_path) == ["before"]
        await wired.engine.submit(jobs("a"))

    run(tmp_path, test)


def test_a_job_omitted_by_a_refused_one_is_in_the_report(tmp_path: Path):
    async def test(wired: Wired) -> None:
        async def submit_dependent() -> None:
            await asyncio.wait_for(synced.wait(), 60)
            wired.engine.dispatch(Submit(jobs("later", after=["a"])))

        loop, synced = asyncio.get_running_loop(), asyncio.Event()
        submitted = asyncio.ensure_future(submit_dependent())

        def fail() -> None:
            loop.call_soon_threadsafe(synced.set)
            asyncio.run_coroutine_threadsafe(asyncio.wait_for(asyncio.shield(submitted), 60), loop).result()

        wired.journal.on_sync, wired.journal.unsyncable = fail, True
        with pytest.raises(JournalError):
            await wired.engine.submit(jobs("a"))
        wired.journal.on_sync, wired.journal.unsyncable = (lambda: None), False
        wired.engine.commits.commit()
        assert {name: job.state.name for name, job in wired.engine.state.jobs.items()} == {"later": "OMITTED"}
        assert "later" in reported(tmp_path)

    run(tmp_path, test)


def test_a_job_omitted_by_a_refused_one_is_in_the_report_while_another_refused_one_runs(tmp_path: Path):
    """The number of ended jobs equals the number of refused jobs, but they are different jobs."""

    async def test(wired: Wired) -> None:
        async def start_first_and_submit_dependent() -> None:
            await asyncio.wait_for(synced.wait(), 60)
            wired.reported()
            await wired.until("launch 1.1")
            wired.executor.report("local", Started("1.1", 7, 1.0, GRANT))
            wired.engine.dispatch(Submit(jobs("later", after=["b"])))

        loop, synced = asyncio.get_running_loop(), asyncio.Event()
        submitted = asyncio.ensure_future(start_first_and_submit_dependent())

        def fail() -> None:
            loop.call_soon_threadsafe(synced.set)
            asyncio.run_coroutine_threadsafe(asyncio.wait_for(asyncio.shield(submitted), 60), loop).result()

        wired.journal.on_sync, wired.journal.unsyncable = fail, True
        with pytest.raises(JournalError):
            await wired.engine.submit([*jobs("a"), *jobs("b", after=["a"])])
        wired.journal.on_sync, wired.journal.unsyncable = (lambda: None), False
        wired.engine.commits.commit()
        states = {name: job.state.name for name, job in wired.engine.state.jobs.items()}
        assert (states["later"], states.get("b")) == ("OMITTED", None)
        assert not wired.engine.state.jobs["a"].state.is_final, "it still runs"
        assert reported(tmp_path) == ["later"]

    run(tmp_path, test)


@pytest.mark.parametrize("is_refused", [True, False])
def test_failures_end_the_run_only_if_their_submission_can_be_synced(tmp_path: Path, is_refused: bool):
    async def test(wired: Wired) -> None:
        async def take_turns() -> None:
            for _ in range(3):
                await asyncio.sleep(0)

        loop, engine = asyncio.get_running_loop(), wired.engine
        engine.state.failure_limit.limit = 1
        wired.reported()
        wired.journal.unsyncable = is_refused
        wired.journal.on_sync = lambda: asyncio.run_coroutine_threadsafe(take_turns(), loop).result(60)
        submission = engine.submit(jobs("too-large", numCores=3))
        if not is_refused:
            await submission
            await asyncio.wait_for(engine.shutdown.wait(), 60)
            return
        with pytest.raises(JournalError):
            await submission
        wired.journal.unsyncable = False
        wired.journal.on_sync = lambda: None
        assert not wired.journal.metadata(FAILURE_LIMIT_REACHED)
        await engine.submit(jobs("fits"))
        await wired.until("launch 2.1")
        assert not engine.shutdown.is_requested

    run(tmp_path, test)


def test_the_error_says_when_the_cancellation_of_refused_jobs_is_not_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def test(wired: Wired) -> None:
        wired.journal.unsyncable = True
        wired.journal.on_sync = lambda: setattr(wired.journal, "broken", True)
        with pytest.raises(JournalError, match="--resume would run them"):
            await wired.engine.submit(jobs("a"))
        assert wired.engine.state.jobs == {}
        wired.journal.unsyncable = wired.journal.broken = False
        wired.journal.on_sync = lambda: None
        wired.engine.commits.commit()
        assert stored(tmp_path) == []

    run(tmp_path, test)


def test_jobs_of_a_submission_with_an_unexpected_error_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def test(wired: Wired) -> None:
        def no_memory(group: CommitGroup, connection: object) -> None:
            write(group, connection)  # type: ignore[arg-type]
            raise MemoryError

        write = CommitGroup.write
        with monkeypatch.context() as memory:
            memory.setattr(CommitGroup, "write", no_memory)
            with pytest.raises(MemoryError):
                await wired.engine.submit(jobs("a"))
        assert wired.engine.state.jobs == {}
        assert (await wired.engine.submit(jobs("a")))["jobs"] == ["a"]
        assert stored(tmp_path) == ["a"]

    run(tmp_path, test)


def test_a_cancellation_that_cannot_be_written_is_refused_before_anything_is_done(tmp_path: Path):
    async def test(wired: Wired) -> None:
        await wired.engine.submit(jobs("a"))
        wired.journal.broken = True
        with pytest.raises(JournalError):
            wired.engine.carry_out(Cancel(["a"]))
        assert not wired.engine.state.jobs["a"].state.is_final
        wired.journal.broken = False
        reply, remark = wired.engine.carry_out(Cancel(["a"]))
        assert (reply["canceled"], remark) == (1, "")
        assert stored(tmp_path) == []

    run(tmp_path, test)


def test_an_unwritten_cancellation_is_answered_with_a_remark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def test(wired: Wired) -> None:
        await wired.engine.submit(jobs("a"))
        engine = wired.engine
        dispatch = engine.dispatch

        def dispatch_and_break(event: Cancel) -> dict[str, object]:
            wired.journal.broken = True
            return dispatch(event)

        monkeypatch.setattr(engine, "dispatch", dispatch_and_break)
        reply, remark = engine.carry_out(Cancel(["a"]))
        monkeypatch.setattr(engine, "dispatch", dispatch)
        assert reply["canceled"] == 1
        assert "cannot be written at the moment" in remark
        wired.journal.broken = False
        await asyncio.sleep(0)

    run(tmp_path, test)
