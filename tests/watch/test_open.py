"""Runs as displays open them: ended, crashed, and with managers that do not respond."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.watch import first_summary
from qcg.pilotjob.watch.open import FollowedRun, NoRun, open_run
from qcg.pilotjob.watch.source import ActionRefused, JobQuery
from tests.support import pilot
from tests.support.pilot import job, run_requests, start, write_requests
from tests.support.serving import Served
from tests.support.waiting import wait_for


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    tmp_path.chmod(0o700)
    served = Served(tmp_path, "--nodes", "2")
    try:
        yield served
    finally:
        served.end()


def test_a_directory_without_a_run_is_refused(tmp_path: Path):
    with pytest.raises(NoRun, match="There is no run in"):
        open_run(tmp_path)


def test_a_crashed_run_is_shown_as_it_was_left(served: Served):
    served.submit(job("runs", "sleep", "100"), job("waits", "true", numCores=2))
    run = open_run(served.wd)
    try:
        wait_for(lambda: running(run) == 1, what="the job in the registry")
        served.kill()
        wait_for(lambda: not run.is_alive, what="the end of the manager")
        assert run.summary().units == {"QUEUED": 1, "EXECUTING": 1}
        runs, waits = run.job("runs"), run.job("waits")
        assert runs is not None
        assert waits is not None
        assert "when its manager ended; a manager that resumes the run finds out how it ended" in runs.why
        assert "it had not been started when its manager ended" in waits.why
        assert run.job("other") is None
        with pytest.raises(ActionRefused, match="No manager is running"):
            run.act("cancel", ["runs"])
    finally:
        run.close()
        served.resume()  # which ends the job


def test_a_manager_without_a_network_interface_is_shown_from_its_registry(tmp_path: Path):
    tmp_path.chmod(0o700)
    waiting = job("waits", "sh", "-c", "until [ -e go ]; do sleep 0.05; done")
    file = write_requests(tmp_path / "requests.json", [waiting, job("next", "true", after=["waits"])])
    process = start("qcg-pm", "run", file, "--wd", tmp_path, "--cores", "1", "--no-net")
    try:
        wait_for(lambda: list(tmp_path.glob(".qcgpjm-service-*/registry.sqlite")), what="the registry")
        with closing(open_run(tmp_path)) as run:
            wait_for(lambda: running(run) == 1, what="the job to run")
            assert run.is_alive
            assert run.summary().alive
            waits, after = run.job("waits"), run.job("next")
            assert waits is not None
            assert after is not None
            assert waits.why.startswith("it runs on ")
            assert after.why == "it waits to be started"
            with pytest.raises(ActionRefused, match="no network interface"):
                run.act("cancel", ["waits"])
            (tmp_path / "go").touch()
            wait_for(lambda: not run.is_alive and run.summary().jobs == {"SUCCEED": 2}, what="the end of the run")
    finally:
        (tmp_path / "go").touch()
        process.communicate(timeout=60)


def running(run: FollowedRun) -> int:
    """Number of jobs that run; 0 also while the registry is being created."""
    try:
        return run.jobs(JobQuery(states=("EXECUTING",))).total
    except JournalError:
        return 0


def test_waits_end_when_the_run_is_closed(served: Served):
    run = open_run(served.wd)
    known = run.summary()
    found = []
    thread = threading.Thread(target=lambda: found.append(run.wait(known, 60.0)))
    thread.start()
    run.close()
    thread.join(20)
    assert not thread.is_alive()
    run.close()  # a second call does no harm


def test_a_large_run_has_a_first_summary_and_then_the_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tmp_path.chmod(0o700)
    run_requests(tmp_path, [job("good", "true"), job("bad", "false")])
    monkeypatch.setattr(first_summary, "LARGE", 1)
    run = open_run(tmp_path)
    try:
        first = run.summary()
        assert first.jobs == {"SUCCEED": 1, "FAILED": 1}
        assert first.history is None
        whole = run.wait(first, 30.0)
        assert (whole.jobs, whole.cores, whole.nodes) == (first.jobs, first.cores, first.nodes)
        assert (whole.started, whole.ended) == (first.started, first.ended)
        assert first.ended is not None
        assert whole.history is not None
        assert [group.example for group in whole.failed] == ["bad"]
    finally:
        run.close()


def test_earlier_attempts_are_listed_with_their_causes(tmp_path: Path):
    tmp_path.chmod(0o700)
    twice = job("twice", "sh", "-c", "[ -e tried ] || { touch tried; exit 5; }", retry=1)
    run_requests(tmp_path, [twice])
    run = open_run(tmp_path)
    try:
        details = run.job("twice")
        assert details is not None
        assert [(one.number, one.cause, one.exit_code) for one in details.attempts] == [(1, "exit", 5), (2, "", 0)]
        assert details.line.attempts == 2
    finally:
        run.close()


def test_only_an_attempt_before_a_rerun_has_the_time_of_a_rerun(tmp_path: Path):
    tmp_path.chmod(0o700)
    run_requests(tmp_path, job("bad", "sh", "-c", "exit 5", retry=1))
    pilot.run("qcg-pm", "run", "--resume", tmp_path, "--rerun", "failed")
    run = open_run(tmp_path)
    try:
        details = run.job("bad")
        assert details is not None
        retried, rerun, first, last = details.attempts
        assert (retried.rerun_at, first.rerun_at, last.rerun_at) == (None, None, None)
        assert rerun.ended is not None
        assert rerun.rerun_at is not None
        assert first.scheduled is not None
        assert rerun.ended < rerun.rerun_at <= first.scheduled
    finally:
        run.close()
