"""Dependencies on other outcomes than success: `afterany`, `afternotok` and `afterstart`."""

from __future__ import annotations

import pytest

from qcg.pilotjob.core.errors import SubmissionRejected
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.why import WaitExplainer
from qcg.pilotjob.description.model import JobDescription, RetryPolicy
from tests.core.core_driver import CoreDriver, job, machine
from tests.core.restart import resume, save_state


def started(*jobs: JobDescription, cores: int = 4) -> CoreDriver:
    driver = CoreDriver(machine(cores))
    driver.submit(*jobs)
    driver.schedule()
    return driver


def names(launches: list[str]) -> list[str]:
    return [text.split()[0] for text in launches]


@pytest.mark.parametrize(
    ("exit_code", "kind", "state"),
    [
        (0, "afterany", "SCHEDULED"),
        (1, "afterany", "SCHEDULED"),
        (1, "afternotok", "SCHEDULED"),
        (0, "afternotok", "OMITTED"),
        (0, "afterstart", "SCHEDULED"),
    ],
)
def test_a_job_starts_or_is_omitted_by_the_outcome_of_another(exit_code: int, kind: str, state: str):
    driver = started(job("a"), job("b", outcomes=f"{kind}=a"))
    assert driver.states()["b"] == "QUEUED"
    driver.end("a", exit_code=exit_code)
    driver.schedule()
    assert driver.states()["b"] == state


def test_the_reason_of_an_omission_is_a_sentence():
    driver = started(job("a"), job("b", outcomes="afternotok=a"), job("c", 9), job("d", outcomes="afterstart=c"))
    assert driver.end("a") == [
        "a SUCCEED",
        "b OMITTED: it runs only if 'a' does not succeed, and 'a' is SUCCEED",
        "all done",
    ]
    found = driver.core.state.jobs["d"]
    assert found.message == "it waits for the start of 'c', which is FAILED and has never started"


def test_a_job_starts_when_another_job_runs():
    driver = started(job("a"), job("b", outcomes="afterstart=a"))
    assert driver.schedule() == []
    driver.start("a")
    assert names(driver.schedule()) == ["b"]


def test_a_job_that_is_cancelled_before_it_starts_never_starts():
    driver = started(job("a", 4), job("b", 4), job("c", outcomes="afterstart=b"), job("d", outcomes="afternotok=b"))
    driver.cancel("b")
    assert driver.states() == {"a": "SCHEDULED", "b": "CANCELED", "c": "OMITTED", "d": "QUEUED"}


def test_a_job_that_was_cancelled_while_it_ran_has_started():
    driver = started(job("a"))
    driver.start("a")
    driver.cancel("a")
    driver.end("a", exit_code=-15, reason="cancel")
    driver.submit(job("b", outcomes="afterstart=a"))
    assert names(driver.schedule()) == ["b"]
    core, _ = resume(save_state(driver.core.state), machine(4), 10.0, rerun_lost=False)
    assert core.state.begun.keys() == driver.core.state.begun.keys()


def test_an_omitted_job_has_ended_without_success():
    driver = started(
        job("a"),
        job("b", after="a"),
        job("any", outcomes="afterany=b"),
        job("notok", outcomes="afternotok=b"),
        job("start", outcomes="afterstart=b"),
    )
    driver.end("a", exit_code=1)
    assert names(driver.schedule()) == ["any", "notok"]
    assert driver.states()["start"] == "OMITTED"


def test_a_job_that_will_be_retried_has_not_ended():
    driver = started(job("a", retry=RetryPolicy({"exit": 1})), job("b", outcomes="afternotok=a"))
    driver.end("a", exit_code=1)
    assert names(driver.schedule()) == ["a"]
    driver.end("a", exit_code=1)
    assert names(driver.schedule()) == ["b"]


def test_a_second_attempt_releases_no_dependent_again():
    driver = started(
        job("x"),
        job("a", its=2, retry=RetryPolicy({"exit": 1})),
        job("b", its=2, outcomes="afterstart=a:${it} afterany=x"),
    )
    driver.start("a:0")
    driver.end("a:0", exit_code=1)
    driver.schedule()
    driver.start("a:0")
    driver.end("a:0")
    assert driver.schedule() == [], "x has not ended"
    driver.end("x")
    assert names(driver.schedule()) == ["b:0"]


def test_iterations_wait_for_iterations():
    driver = started(
        job("a", its=3),
        job("one", outcomes="afternotok=a:1"),
        job("same", its=3, outcomes="afternotok=a:${it}"),
        job("all", outcomes="afterany=a"),
    )
    driver.end("a:1", exit_code=1)
    assert names(driver.schedule()) == ["one", "same:1"]
    driver.end("a:0", "a:2")
    assert driver.iteration_states("same") == ["OMITTED", "SCHEDULED", "OMITTED"]
    assert names(driver.schedule()) == ["all"]


def test_iterations_that_are_cancelled_together_release_the_same_indices():
    driver = started(
        job("w", 4),
        job("a", its=3),
        job("b", its=3, outcomes="afterany=a:${it}"),
        job("c", its=3, outcomes="afterstart=a:${it}"),
    )
    driver.cancel("a")
    assert driver.states()["c"] == "OMITTED"
    driver.end("w")
    assert names(driver.schedule()) == ["b:0", "b:1", "b:2"]


def test_cycles_over_all_kinds_are_refused():
    driver = CoreDriver(machine(1))
    with pytest.raises(SubmissionRejected, match="could never start: a -> c -> b -> a"):
        driver.submit(job("a", outcomes="afterstart=c"), job("b", after="a"), job("c", outcomes="afternotok=b"))
    with pytest.raises(SubmissionRejected, match="job 'a' waits for itself"):
        driver.submit(job("a", outcomes="afterany=a"))


def test_a_job_cannot_wait_for_success_and_failure():
    driver = CoreDriver(machine(1))
    with pytest.raises(SubmissionRejected, match="job 'b' waits for 'a' both to succeed and not to succeed"):
        driver.submit(job("a"), job("b", after="a", outcomes="afternotok=a"))


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("after", "it waits for 'a', which is SCHEDULED"),
        ("afterany", "it waits for the end of 'a', which is SCHEDULED"),
        ("afternotok", "it waits for the end of 'a', which is SCHEDULED, and runs only if that does not succeed"),
        ("afterstart", "it waits for the start of 'a', which is SCHEDULED"),
    ],
)
def test_why_explains_each_kind(kind: str, sentence: str):
    description = job("b", after="a") if kind == "after" else job("b", outcomes=f"{kind}=a")
    driver = started(job("a"), description)
    state = driver.core.state
    reason = WaitExplainer(state, driver.now).why_waiting(state.jobs["b"], -1, description)
    assert (reason.kind, reason.sentence) == ("dependencies", sentence)


@pytest.mark.parametrize("kind", ["afterany", "afternotok"])
def test_a_job_that_has_not_started_waits_again_when_its_prerequisite_runs_again(kind: str):
    driver = started(job("a"), job("b", 4, outcomes=f"{kind}=a"), job("w"), cores=4)
    driver.end("a", exit_code=1)
    assert driver.schedule() == [], "w has a core that b needs"
    driver.rerun("a")
    driver.end("w")
    assert names(driver.schedule()) == ["a"]
    driver.end("a")
    driver.schedule()
    assert driver.states()["b"] == ("OMITTED" if kind == "afternotok" else "SCHEDULED")


def test_a_job_that_runs_or_has_ended_is_left_alone_when_its_prerequisite_runs_again():
    driver = started(job("a"), job("b", outcomes="afternotok=a"), job("c", outcomes="afterany=a"))
    driver.end("a", exit_code=1)
    driver.schedule()
    driver.end("b")
    driver.rerun("a")
    driver.schedule()
    driver.end("a", "c")
    assert driver.states() == {"a": "SUCCEED", "b": "SUCCEED", "c": "SUCCEED"}


def test_a_job_that_waited_for_a_start_is_rerun_with_the_job_that_never_started():
    driver = started(job("w", 4), job("a"), job("b", outcomes="afterstart=a"))
    driver.cancel("a")
    assert driver.states()["b"] == "OMITTED"
    driver.rerun(states=[State.CANCELED])
    assert driver.states() == {"w": "SCHEDULED", "a": "QUEUED", "b": "QUEUED"}


def test_a_job_whose_prerequisite_has_succeeded_cannot_run_again():
    driver = started(job("a"), job("b", outcomes="afternotok=a"))
    driver.end("a")
    (reply,) = driver.rerun("b")
    assert "job 'b' cannot run again: it runs only if 'a' does not succeed, and 'a' is SUCCEED" in reply


def test_waits_survive_a_restart():
    driver = started(
        job("a"), job("r"), job("b", outcomes="afternotok=a"), job("c", outcomes="afterstart=r"), job("f"), cores=3
    )
    driver.start("r")
    driver.end("f", exit_code=1)
    core, _ = resume(save_state(driver.core.state), machine(3), 10.0, rerun_lost=False)
    assert core.state.jobs["b"].unmet is not None
    assert core.state.jobs["b"].unmet.on_jobs == 1
    unmet = core.state.jobs["c"].unmet
    assert unmet is not None
    assert not unmet.on_jobs, "r runs"
