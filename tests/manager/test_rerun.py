"""What the manager reads when jobs are rerun: the named jobs and the omitted jobs that wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from qcg.pilotjob.core.events import Cancel
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.journal.descriptions import Descriptions
from qcg.pilotjob.manager.rerun import rerun_event
from qcg.pilotjob.rows.store import RowFiles
from tests.manager.wired import Wired, jobs, run


class Rerunning:
    """Reruns jobs, and counts the work of the manager."""

    def __init__(self, wired: Wired, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._wired = wired
        self._files = RowFiles(str(directory), str(directory / "rows"))
        self.statements: list[str] = []
        self.decoded: list[str] = []
        decode = Descriptions.of

        def of(descriptions: Descriptions, job: Job) -> JobDescription:
            self.decoded.append(job.name)
            return decode(descriptions, job)

        monkeypatch.setattr(Descriptions, "of", of)

    def rerun(self, names: Sequence[str] = (), states: Sequence[State] = ()) -> list[str]:
        """The names of the jobs that run again."""
        self.statements.clear()
        self.decoded.clear()
        connection = self._wired.journal.connection()
        connection.set_trace_callback(self.statements.append)
        event = rerun_event(self._wired.engine, self._files, names, states)
        connection.set_trace_callback(None)
        data, _ = self._wired.engine.carry_out(event)
        return data["jobs"]


async def omit(wired: Wired, count: int) -> None:
    """Submit jobs that are all omitted, because the job they wait for is cancelled."""
    waiting = [
        name for index in range(count) for name in jobs(f"omitted{index}", dependencies={"after": ["cancelled"]})
    ]
    await wired.engine.submit(jobs("cancelled"))
    await wired.engine.submit(waiting)
    wired.engine.carry_out(Cancel(["cancelled"]))


def test_a_rerun_reads_as_little_in_a_run_with_many_unrelated_omitted_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    counts: list[int] = []

    async def test(wired: Wired) -> None:
        rerunning = Rerunning(wired, tmp_path, monkeypatch)
        await omit(wired, 2 + 50 * len(counts))
        await wired.engine.submit(jobs("x", "waiting"))
        wired.engine.carry_out(Cancel(["x"]))
        await wired.until_all_is_written()
        assert rerunning.rerun(["x"]) == ["x"]
        assert rerunning.decoded == ["x"]
        counts.append(len(rerunning.statements))
        assert rerunning.rerun(["waiting"]) == rerunning.rerun(states=[State.FAILED]) == []
        assert rerunning.statements == rerunning.decoded == [], "a rerun of no job reads nothing"

    for number in range(2):
        directory = tmp_path / str(number)
        directory.mkdir()
        run(directory, test)
    assert counts[0] == counts[1] <= 5


def test_omitted_jobs_run_again_with_the_jobs_they_wait_for_at_any_depth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def test(wired: Wired) -> None:
        rerunning = Rerunning(wired, tmp_path, monkeypatch)
        await omit(wired, 3)
        await wired.engine.submit(
            [
                *jobs("x"),
                *jobs("i", iteration=2, dependencies={"after": ["x"]}),
                *jobs("j", iteration=2, dependencies={"after": ["i:${it}"]}),
                *jobs("k", dependencies={"afterstart": ["j:1"]}),
            ]
        )
        wired.engine.carry_out(Cancel(["x"]))
        await wired.until_all_is_written()
        assert rerunning.rerun(["x"]) == ["x", "i", "j", "k"]
        assert rerunning.decoded == ["x", "i", "j", "k"]

    run(tmp_path, test)


def test_iterations_of_an_unfinished_job_run_again_with_the_ones_they_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def test(wired: Wired) -> None:
        rerunning = Rerunning(wired, tmp_path, monkeypatch)
        await omit(wired, 3)
        await wired.engine.submit(
            [*jobs("i", iteration=2), *jobs("j", iteration=2, dependencies={"after": ["i:${it}"]})]
        )
        wired.engine.carry_out(Cancel(["i:1"]))
        assert rerunning.rerun(states=[State.CANCELED]) == ["cancelled", "omitted0", "omitted1", "omitted2", "i", "j"]
        wired.engine.carry_out(Cancel(["i:1"]))
        assert rerunning.rerun(["i:1"]) == ["i", "j"]

    run(tmp_path, test)
