"""The progress of waits, computed without a manager."""

from __future__ import annotations

from typing import Any

import msgspec

from qcg.pilotjob.api.wait_progress import MOST_ASKED, Counts, JobProgress, RunProgress
from qcg.pilotjob.api.waits import WaitForJobs
from tests.report.test_metrics_text import summary


def info(**jobs: dict[str, int] | None) -> dict[str, Any]:
    """The answer to `jobInfo`."""
    return {
        "jobs": {
            name: {"status": 0, "data": {"jobName": name, **({} if counts is None else {"iterations": counts})}}
            for name, counts in jobs.items()
        }
    }


def progress_of(*names: str) -> tuple[WaitForJobs, JobProgress]:
    wait = WaitForJobs(names)
    return wait, JobProgress(wait, list(names))


def test_jobs_count_as_they_end():
    wait, progress = progress_of("a", "b", "c")
    assert progress.counts() == Counts(0, 0, 3)
    wait.event("JFI", {"job": "a", "state": "SUCCEED"})
    wait.event("JFI", {"job": "b", "state": "OMITTED"})
    assert progress.counts() == Counts(2, 1, 3)


def test_a_job_that_is_named_twice_counts_once():
    assert progress_of("a", "a")[1].counts().total == 1


def test_the_iterations_of_a_job_count_each():
    wait, progress = progress_of("a", "it")
    assert progress.question() == {"request": "jobInfo", "jobNames": ["a", "it"]}
    progress.answer(info(a=None, it={"total": 100, "finished": 30, "failed": 2}))
    assert progress.counts() == Counts(30, 2, 101)
    assert progress.question() == {"request": "jobInfo", "jobNames": ["it"]}, "the other one has no iterations"
    wait.event("JFI", {"job": "a", "state": "FAILED"})
    wait.event("JFI", {"job": "it", "state": "FAILED"})
    assert progress.counts() == Counts(101, 3, 101), "though the last answer is older"


def test_jobs_without_iterations_are_not_queried_again():
    _, progress = progress_of("a")
    progress.answer(info(a=None))
    assert progress.question() is None


def test_an_unknown_job_is_not_counted_as_ended():
    _, progress = progress_of("a", "b")
    progress.answer({"jobs": {"a": {"status": 1, "message": "there is no job 'a'"}}})
    assert progress.counts() == Counts(0, 0, 2)


def test_many_jobs_are_counted_without_a_query():
    _, progress = progress_of(*[f"j{number}" for number in range(MOST_ASKED + 1)])
    assert progress.question() is None
    assert progress.counts().total == MOST_ASKED + 1


def test_the_progress_of_a_run_is_that_of_its_summary():
    progress = RunProgress()
    assert progress.counts() == Counts(0, 0, 0)
    assert progress.question() == {"request": "summary"}
    progress.answer(msgspec.to_builtins(summary()))
    assert progress.counts() == Counts(43, 3, 102)
