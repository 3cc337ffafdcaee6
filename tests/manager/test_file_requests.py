"""Request files: full disks, crashes, and what the replies say."""

from __future__ import annotations

import asyncio
import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from qcg.pilotjob.common.options import Options
from qcg.pilotjob.core.events import Cancel, Event, Rerun
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.shutdown import Cause
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.interfaces.dispatch import answer
from qcg.pilotjob.interfaces.file import how_far, is_file_done, run_requests, shortened
from qcg.pilotjob.interfaces.handlers.submit import FURTHER
from qcg.pilotjob.journal.journal import FILE_NAME, Journal
from qcg.pilotjob.journal.metadata import (
    DRAINED_NODES,
    END_WHEN_DONE,
    FILE_REQUESTS_DONE,
    FINISH_REQUESTED,
    MetadataKey,
)
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.manager.ports import FileProgress
from qcg.pilotjob.runs.rundir import PREFIX
from tests.manager.wired import Wired, assemble_resumed, run
from tests.support.pilot import job


def raw(*requests: dict[str, Any]) -> list[msgspec.Raw]:
    return [msgspec.Raw(json.dumps(request).encode()) for request in requests]


def submit(name: str) -> dict[str, Any]:
    return {"request": "submit", "jobs": [job(name, "true")]}


def test_a_submission_that_cannot_be_stored_is_tried_again(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.journal.broken = True
        requests = asyncio.ensure_future(run_requests(Manager(wired.engine, "x"), raw(submit("a"), submit("b"))))
        await asyncio.sleep(0.1)
        assert wired.engine.state.jobs == {}
        assert not requests.done()
        wired.journal.broken = False
        assert await requests == FileProgress(0, 0, [])
        assert set(wired.engine.state.jobs) == {"a", "b"}
        assert is_file_done(wired.journal)

    run(tmp_path, test)


def test_a_submission_that_waits_for_disk_space_does_not_count_as_done(tmp_path: Path):
    """Otherwise a manager that resumes after a crash would skip the submission."""

    async def test(wired: Wired) -> None:
        pilot = Manager(wired.engine, "x")
        wired.journal.broken = True
        requests = asyncio.ensure_future(run_requests(pilot, raw(submit("a"))))
        await asyncio.sleep(0.1)
        pilot.shutdown.request(Cause.SIGNAL, "the test ends it")
        assert await requests == FileProgress(0, 1, [])
        wired.journal.broken = False
        wired.engine.commits.commit()
        assert not is_file_done(wired.journal)

    run(tmp_path, test)


MANY = {"request": "submit", "jobs": [job(f"j{number}", "true") for number in range(1000)]}
"""A number of jobs whose parsing takes so long that other work is done meanwhile."""


def test_a_request_counts_as_done_in_the_commit_that_stores_its_jobs(tmp_path: Path):
    async def test(wired: Wired) -> None:
        requests = asyncio.ensure_future(run_requests(Manager(wired.engine, "x"), raw(MANY)))
        seen = set()
        while not requests.done():
            wired.engine.commits.try_to_commit()
            seen.add((how_far(wired.journal), bool(wired.engine.state.jobs)))
            await asyncio.sleep(0)
        assert seen >= {((0, 1), False), ((1, 1), True)}
        assert seen <= {((0, 0), False), ((0, 1), False), ((1, 1), True)}

    run(tmp_path, test)


CHANGES: list[dict[str, Any]] = [
    {"request": "submit", "jobs": [job("a", "true"), job("b", "true")]},
    {"request": "holdJob", "jobName": "a"},
    {"request": "releaseJob", "jobName": "a"},
    {"request": "setJob", "jobName": "a", "priority": 7},
    {"request": "cancelJob", "jobName": "a"},
    {"request": "rerunJob", "jobNames": ["a"]},
    {"request": "cancelJob", "jobName": "b"},
    {"request": "removeJob", "jobName": "b"},
    {"request": "drainNodes", "nodes": "n0"},
    {"request": "resumeNodes", "nodes": "n0"},
    {"request": "control", "command": "finishAfterAllTasksDone"},
    {"request": "finish", "cancel": True},
]


def committed(path: Path) -> tuple[int, list[object]]:
    """The number of requests done in the registry, and everything that the requests change."""
    with snapshot(path) as connection:
        rows = [line for line in connection.iterdump() if not line.startswith('INSERT INTO "meta"')]
        flags = [END_WHEN_DONE.read(connection), DRAINED_NODES.read(connection)]
        return FILE_REQUESTS_DONE.read(connection), [*flags, rows]


def test_every_request_counts_as_done_in_the_commit_that_stores_its_effects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def test(wired: Wired) -> None:
        journal = wired.journal
        commit, steps = journal.commit, [committed(journal.path)]

        def noted_commit() -> None:
            commit()
            steps.append(committed(journal.path))

        monkeypatch.setattr(journal, "commit", noted_commit)
        assert await run_requests(Manager(wired.engine, "x"), raw(*CHANGES)) == FileProgress(0, 0, [])
        changes = [(one, other) for (one, before), (other, after) in pairwise(steps) if before != after]
        assert changes == [(number, number + 1) for number in range(len(CHANGES))]

    run(tmp_path, test)


def test_a_request_is_not_repeated_after_a_crash_right_after_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    requests = raw(submit("a"), {"request": "cancelJob", "jobName": "a"}, {"request": "rerunJob", "jobNames": ["a"]})
    run_dir = tmp_path / f"{PREFIX}x"
    run_dir.mkdir()

    async def crash(wired: Wired) -> None:
        engine, journal = wired.engine, wired.journal
        commit, dispatch = journal.commit, engine.dispatch
        handled: list[type[Event]] = []

        def noted_dispatch(event: Event) -> dict[str, Any]:
            handled.append(type(event))
            return dispatch(event)

        def commit_and_copy() -> None:
            commit()
            if Rerun in handled and not any(run_dir.iterdir()):
                for suffix in ("", "-wal"):
                    shutil.copy(f"{journal.path}{suffix}", run_dir)

        monkeypatch.setattr(engine, "dispatch", noted_dispatch)
        monkeypatch.setattr(journal, "commit", commit_and_copy)
        assert await run_requests(Manager(engine, "x"), requests) == FileProgress(0, 0, [])

    async def resume() -> None:
        options = Options(wd=str(tmp_path), nodes="2", id="x")
        manager = assemble_resumed(options, tmp_path, run_dir, Journal.open(run_dir / FILE_NAME))
        jobs = manager.engine.state.jobs
        assert jobs["a"].state.name == "QUEUED", "it runs again"
        manager.engine.dispatch(Cancel(["a"]))
        assert await run_requests(manager, requests) == FileProgress(0, 0, [])
        assert jobs["a"].state.name == "CANCELED"
        await manager.engine.close()

    run(tmp_path, crash)
    asyncio.run(resume())


def test_a_submission_being_parsed_at_the_end_of_the_manager_is_left_for_the_next_one(tmp_path: Path):
    async def test(wired: Wired) -> None:
        pilot = Manager(wired.engine, "x")
        requests = asyncio.ensure_future(run_requests(pilot, raw(MANY, submit("last"))))
        await asyncio.sleep(0)
        pilot.shutdown.request(Cause.SIGNAL, "the test ends it")
        assert await requests == FileProgress(0, 2, [])
        assert (wired.engine.state.jobs, how_far(wired.journal)) == ({}, (0, 2))

    run(tmp_path, test)


def test_finish_with_cancel_is_stored_before_it_is_answered(tmp_path: Path):
    async def test(wired: Wired) -> None:
        pilot = Manager(wired.engine, "x")
        request, finish = raw(submit("a"), {"request": "finish", "cancel": True})
        await answer(pilot, request)
        assert (await answer(pilot, finish)).code == 0
        assert wired.engine.state.jobs["a"].state is State.CANCELED
        assert (wired.journal.last_end, wired.journal.has_uncommitted_ends) == (1, False)

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("request_of_client", "key"),
    [
        ({"request": "control", "command": "finishAfterAllTasksDone"}, END_WHEN_DONE),
        ({"request": "finish"}, FINISH_REQUESTED),
        ({"request": "finish", "cancel": True}, FINISH_REQUESTED),
    ],
)
def test_requests_to_end_are_committed_before_they_are_answered(
    tmp_path: Path, request_of_client: dict[str, Any], key: MetadataKey[bool]
):
    async def test(wired: Wired) -> None:
        (request,) = raw(request_of_client)
        assert (await answer(Manager(wired.engine, "x"), request)).code == 0
        # The registry as the next manager finds it when this manager is killed now.
        copy = tmp_path / "copy"
        copy.mkdir()
        for suffix in ("", "-wal"):
            shutil.copy(f"{wired.journal.path}{suffix}", copy)
        with snapshot(copy / wired.journal.path.name) as connection:
            assert key.read(connection)

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("request_of_client", "key"),
    [
        ({"request": "control", "command": "finishAfterAllTasksDone"}, END_WHEN_DONE),
        ({"request": "finish", "cancel": True}, FINISH_REQUESTED),
    ],
)
def test_a_request_to_end_that_cannot_be_stored_is_refused_and_has_no_effect(
    tmp_path: Path, request_of_client: dict[str, Any], key: MetadataKey[bool]
):
    async def test(wired: Wired) -> None:
        pilot = Manager(wired.engine, "x")
        wired.journal.broken = True
        (request,) = raw(request_of_client)
        refused = await answer(pilot, request)
        assert (refused.code, refused.message) == (1, "The disk is full.")
        assert not pilot.end_when_done.is_set()
        assert not pilot.shutdown.is_requested
        wired.journal.broken = False
        await wired.engine.commits.store()
        assert not wired.journal.metadata(key)

    run(tmp_path, test)


def test_requests_that_change_nothing_are_carried_out_while_nothing_can_be_stored(tmp_path: Path):
    async def test(wired: Wired) -> None:
        pilot = Manager(wired.engine, "x")
        wired.journal.broken = True
        progress = await run_requests(pilot, raw({"request": "status"}, {"request": "nonsense"}))
        assert (progress.errors, progress.unread) == (1, 0)
        assert wired.engine.commits.stalled
        wired.journal.broken = False
        await wired.engine.commits.store()
        assert is_file_done(wired.journal)

    run(tmp_path, test)


def test_every_line_about_dependencies_names_its_request(tmp_path: Path):
    async def test(wired: Wired) -> None:
        pilot = Manager(wired.engine, "x")
        jobs = [job("a", "true", after=["x1", "x2"]), job("b", "true", after=["b"])]
        progress = await run_requests(pilot, raw(submit("first"), {"request": "submit", "jobs": jobs}))
        assert (progress.errors, progress.unread) == (1, 0)
        assert progress.refusals[0].splitlines() == [
            "request 2: job 'a' waits for 'x1', and there is no job 'x1'",
            "request 2: job 'a' waits for 'x2', and there is no job 'x2'",
            "request 2: job 'b' waits for itself and could never start",
        ]

    run(tmp_path, test)


def test_misspelt_variables_are_warned_about_in_the_reply_and_in_notices(tmp_path: Path):
    async def test(wired: Wired) -> None:
        notices = wired.notices()
        fine = {"request": "submit", "jobs": [job("fine", "echo", "${it} ${HOME}", iteration=2)]}
        slips = {"request": "submit", "jobs": [job(f"j{number}", "echo", "${itt}") for number in range(20)]}
        without, reply = [(await answer(Manager(wired.engine, "x"), one)).data or {} for one in raw(fine, slips)]
        assert "warnings" not in without
        assert reply["submitted"] == 20
        slip = "${itt} is no variable and stays as it is; did you mean ${it}?"
        assert reply["warnings"] == [*[f"job 'j{number}': {slip}" for number in range(10)], FURTHER]
        assert notices == [f"Warning: {warning}" for warning in reply["warnings"]]

    run(tmp_path, test)


def test_jobs_do_not_run_when_their_submission_is_answered_with_an_unexpected_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(description: JobDescription) -> list[str]:
        raise RecursionError

    async def test(wired: Wired) -> None:
        wired.reported()
        (request,) = raw({"request": "submit", "jobs": [job("a", "true", iteration=2)]})
        reply = await answer(Manager(wired.engine, "x"), request)
        assert (reply.code, reply.message) == (1, "internal error, see service.log")
        assert wired.engine.state.jobs == {}

    monkeypatch.setattr("qcg.pilotjob.interfaces.handlers.submit.iteration_warnings", fail)
    run(tmp_path, test)


def test_files_that_all_iterations_write_to_are_warned_about_in_the_reply(tmp_path: Path):
    async def test(wired: Wired) -> None:
        notices = wired.notices()
        shared = {"iteration": {"stop": 100_000}, "stdout": "o"}
        jobs = [job("own", "true", iteration=2, stdout="o.${it}"), job("all", "true", **shared)]
        for more in ([], [{"name": "plain", "script": "echo ${HOME}"}]):
            named = [{**one, "name": f"{one['name']}{len(more)}"} for one in jobs]
            (request,) = raw({"request": "submit", "jobs": [*named, *more]})
            reply = (await answer(Manager(wired.engine, "x"), request)).data or {}
            sentence = 'all 100000 iterations write their stdout to the same file, "o"; put ${it} into its name'
            assert reply["warnings"] == [f"job 'all{len(more)}': {sentence}"]
            assert notices[-1] == f"Warning: {reply['warnings'][0]}"

    run(tmp_path, test)


def test_an_answer_with_many_jobs_is_logged_with_the_first_names():
    names = [f"job{number}" for number in range(200)]
    many = {"code": 0, "data": {"submitted": 200, "jobs": names}}
    assert shortened(many) == {"code": 0, "data": {"submitted": 200, "jobs": [*names[:10], "…"]}}
    few = {"code": 0, "data": {"submitted": 10, "jobs": names[:10]}}
    assert shortened(few) == few
