"""Summaries of a live run while its registry cannot be read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from qcg.pilotjob.journal import run_history
from qcg.pilotjob.journal.run_history import Failures
from qcg.pilotjob.manager import live_summary
from tests.support.conversation import Conversation, talk
from tests.support.pilot import job


def test_a_history_that_cannot_be_read_is_read_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reads = 0

    def broken(connection: sqlite3.Connection, part: tuple[int, int]) -> Iterator[Failures]:
        nonlocal reads
        reads += 1
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(live_summary, "RETRY_PAUSE", 0.0)

    async def ask(service: Conversation) -> None:
        await service.data("submit", jobs=[job("bad", "false", iteration=3)])
        await service.until("bad", "FAILED")
        activity = service.manager.engine.activity
        activity.begin_with_past()
        with monkeypatch.context() as patch:
            patch.setattr(run_history, "failures_in", broken)
            for number in (1, 2):
                assert (await service.data("summary"))["units"] == {"FAILED": 3}
                assert (reads, activity.past_is_missing) == (number, True)
        found = await service.data("summary")
        assert not activity.past_is_missing
        assert [(group["count"], group["example"]) for group in found["failed"]] == [(3, "bad:0")]

    talk(tmp_path, ask)
    assert (tmp_path / "service.log").read_text().count("which cannot be read now: disk I/O error") == 1


def test_a_registry_that_cannot_be_read_is_not_read_for_each_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reads = 0

    def broken(connection: sqlite3.Connection) -> float | None:
        nonlocal reads
        reads += 1
        raise sqlite3.DatabaseError("database disk image is malformed")

    monkeypatch.setattr(live_summary, "RETRY_PAUSE", 1000.0)
    monkeypatch.setattr(run_history, "first_submission", broken)

    async def ask(service: Conversation) -> None:
        service.manager.engine.activity.begin_with_past()
        for _ in range(3):
            await service.data("summary")

    talk(tmp_path, ask)
    assert reads == 1
