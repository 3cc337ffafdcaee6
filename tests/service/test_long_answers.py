"""Answers about very many jobs: others are served while they are put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from qcg.pilotjob.core.events import Cancel, Remove
from qcg.pilotjob.description.requests import ListJobs
from qcg.pilotjob.interfaces.handlers import list_jobs
from qcg.pilotjob.interfaces.pilot import Pilot
from tests.service.wired import Wired, jobs, run


async def meanwhile(happens: Callable[[], object]) -> None:
    """Once whoever was there before has paused."""
    happens()


def test_jobs_may_go_while_all_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(list_jobs, "AT_ONCE", 3)

    async def test(wired: Wired) -> None:
        names = [f"job{number}" for number in range(10)]
        await wired.engine.submit(jobs(*names))
        wired.engine.dispatch(Cancel(["job0", "job9"]))
        listing = asyncio.ensure_future(list_jobs.list_jobs(Pilot(wired.engine, "x"), ListJobs()))
        removing = asyncio.ensure_future(meanwhile(lambda: wired.engine.dispatch(Remove(["job0", "job9"]))))
        await removing
        assert not listing.done(), "nobody was served before all were listed"
        data = (await listing).data
        assert data is not None
        assert list(data["jobs"]) == names
        assert data["jobs"]["job9"]["status"] == "CANCELED"
        assert [entry.get("inQueue") for entry in data["jobs"].values()] == [None, *range(8), None]

    run(tmp_path, test)
