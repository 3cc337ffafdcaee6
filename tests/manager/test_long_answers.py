"""Replies about very many jobs: other requests are served while they are built."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from qcg.pilotjob.core.events import Cancel, Remove
from qcg.pilotjob.description.requests import InfoParams, JobInfo, ListJobs
from qcg.pilotjob.host.records import Ended
from qcg.pilotjob.interfaces.handlers import job_info, list_jobs
from qcg.pilotjob.interfaces.replies import Answer
from qcg.pilotjob.manager.manager import Manager
from tests.manager.wired import Wired, jobs, run


async def pauses(answering: asyncio.Task[Answer], meanwhile: Callable[[], object]) -> bool:
    """Do something as soon as other requests are served; whether that was before the reply was complete."""

    async def be_served() -> bool:
        meanwhile()
        return not answering.done()

    return await asyncio.ensure_future(be_served())


def test_jobs_may_be_removed_while_all_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(list_jobs, "AT_ONCE", 3)

    async def test(wired: Wired) -> None:
        names = [f"job{number}" for number in range(10)]
        await wired.engine.submit(jobs(*names))
        wired.engine.dispatch(Cancel(["job0", "job9"]))
        listing = asyncio.ensure_future(list_jobs.list_jobs(Manager(wired.engine, "x"), ListJobs()))
        assert await pauses(listing, lambda: wired.engine.dispatch(Remove(["job0", "job9"])))
        data = (await listing).data
        assert data is not None
        assert list(data["jobs"]) == names
        assert data["jobs"]["job9"]["status"] == "CANCELED"
        assert [entry.get("inQueue") for entry in data["jobs"].values()] == [None, *range(8), None]

    run(tmp_path, test)


@pytest.mark.parametrize("removed", [False, True])
def test_a_job_may_be_removed_while_its_iterations_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: bool
):
    monkeypatch.setattr(job_info, "AT_ONCE", 3)

    async def test(wired: Wired) -> None:
        wired.reported()
        await wired.engine.submit(jobs("many", iteration={"start": 5, "stop": 15}))
        for position in range(10):
            await wired.until(f"launch 1:{position}.1")
            ended = Ended(f"1:{position}.1", 2.0, position % 2, "exit", "", 7, 1.0)
            wired.executor.report("local", ended)
        request = JobInfo(job_names=["many"], params=InfoParams(with_childs=True))
        answering = asyncio.ensure_future(job_info.job_info(Manager(wired.engine, "x"), request))
        assert await pauses(answering, lambda: removed and wired.engine.dispatch(Remove(["many"])))
        data = (await answering).data
        assert data is not None
        entry = data["jobs"]["many"]
        if removed:
            assert entry == {"status": 1, "message": "'many' was removed while its iterations were looked up"}
        else:
            childs = [(child["iteration"], child["state"]) for child in entry["data"]["childs"]]
            assert childs == [(index, "SUCCEED" if index % 2 else "FAILED") for index in range(5, 15)]

    run(tmp_path, test)
