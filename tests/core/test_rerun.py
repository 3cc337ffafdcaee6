"""Jobs that ended without success are rerun, with their omitted dependents; succeeded jobs are left alone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from qcg.pilotjob.core.errors import SubmissionRejected
from qcg.pilotjob.core.events import Submit
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.description.model import Amount, JobDescription, ResourceRequest, RetryGrowth, RetryPolicy
from tests.core.core_driver import CoreDriver, job, machine

FAILED, CANCELED, OMITTED = [State.FAILED], [State.CANCELED], [State.OMITTED]


def chain() -> CoreDriver:
    """a, b, c and d wait for each other; `a` has failed, and the others are omitted."""
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("b", after="a"), job("c", after="b"), job("d", after="c"))
    driver.schedule()
    driver.end("a", exit_code=1)
    return driver


def run_all(driver: CoreDriver) -> list[str]:
    """Let everything succeed; returns the names in the order of their starts."""
    started = []
    while launches := driver.schedule():
        names = [text.split()[0] for text in launches]
        started += names
        driver.end(*names)
    return started


def test_a_failed_job_comes_back_with_dependents_that_were_omitted_at_any_depth():
    driver = chain()
    lines = driver.rerun("a")
    assert lines[0] == "run again a"
    assert lines[-1] == "reply {'rerun': 4, 'jobs': ['a', 'b', 'c', 'd']}"
    assert driver.states() == dict.fromkeys("abcd", "QUEUED")
    assert run_all(driver) == ["a", "b", "c", "d"]
    assert set(driver.states().values()) == {"SUCCEED"}


def test_dependents_that_were_submitted_before_their_prerequisites_come_back():
    driver = CoreDriver(machine(1))
    driver.submit(job("d", after="c"), job("c", after="b"), job("b", after="a"), job("a"))
    driver.schedule()
    driver.end("a", exit_code=1)
    assert driver.rerun("a")[-1] == "reply {'rerun': 4, 'jobs': ['d', 'c', 'b', 'a']}"
    assert run_all(driver) == ["a", "b", "c", "d"]


def test_a_second_rerun_gets_a_new_attempt_again():
    driver = chain()
    for number in (2, 3):
        driver.rerun(states=FAILED)
        assert driver.schedule() == [f"a (attempt {number}) on n1[0]"]
        driver.end("a", exit_code=1)
        assert driver.states()["d"] == "OMITTED"
    driver.rerun("a")
    assert driver.states()["d"] == "QUEUED"


def test_succeeded_jobs_are_left_alone():
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("b"))
    driver.schedule()
    driver.end("a")
    driver.end("b", exit_code=1)
    assert driver.rerun("a", "b")[-1] == (
        "reply {'rerun': 1, 'jobs': ['b'], 'errors': {'a': \"job 'a' is SUCCEED; only jobs that ended without success"
        ' run again"}}'
    )
    assert driver.rerun(states=FAILED)[-1] == "reply {'rerun': 0, 'jobs': []}"


def test_an_omitted_job_alone_cannot_come_back_before_what_it_waits_for():
    driver = chain()
    (reply,) = driver.rerun("c")
    assert "job 'c' cannot run again: it waits for 'b', which is OMITTED; run that again, too" in reply
    assert driver.rerun(states=OMITTED) == ["reply {'rerun': 0, 'jobs': []}"]


def test_a_dependent_of_two_failed_jobs_comes_back_with_the_second_one():
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("b"), job("c", after="a b"))
    driver.schedule()
    driver.end("a", "b", exit_code=1)
    driver.rerun("a")
    assert driver.states() == {"a": "QUEUED", "b": "FAILED", "c": "OMITTED"}
    assert run_all(driver) == ["a"]
    driver.rerun("b")
    assert run_all(driver) == ["b", "c"]


def test_failed_iterations_come_back_while_others_still_run():
    driver = CoreDriver(machine(3))
    driver.submit(job("a", its=3), job("b", its=3, after="a:${it}"), job("c", after="a"))
    driver.schedule()
    driver.end("a:1", exit_code=1)
    assert driver.iteration_states("b") == ["QUEUED", "OMITTED", "QUEUED"]
    driver.rerun("a:1")
    assert driver.iteration_states("b") == ["QUEUED"] * 3
    assert driver.schedule() == ["a:1 (attempt 2) on n1[1]"]
    driver.end("a:0", "a:2", "a:1")
    run_all(driver)
    assert set(driver.states().values()) == {"SUCCEED"}


def test_a_dependent_of_a_whole_job_stays_omitted_while_another_iteration_stays_failed():
    driver = CoreDriver(machine(3))
    driver.submit(job("a", its=3), job("b", after="a"))
    driver.schedule()
    driver.end("a:0")
    driver.end("a:1", "a:2", exit_code=1)
    driver.rerun("a:1")
    assert driver.states() == {"a": "QUEUED", "b": "OMITTED"}
    assert driver.iteration_states("a") == ["SUCCEED", "QUEUED", "FAILED"]
    run_all(driver)
    assert driver.states()["a"] == "FAILED"
    driver.rerun("a:2")
    assert driver.states()["b"] == "QUEUED"


@pytest.mark.parametrize("after", ["a", "a:1", "a:${it}"])
def test_a_job_that_was_cancelled_while_it_waited_waits_again(after: str):
    driver = CoreDriver(machine(3))
    driver.submit(job("a", its=2), job("x"), job("b", its=2, after=(after, "x")))
    driver.schedule()
    driver.cancel("b")
    driver.rerun("b")
    driver.end("a:0", "a:1")
    assert driver.schedule() == [], "x has not ended"
    driver.end("x")
    assert len(driver.schedule()) == 2


def test_a_job_with_a_new_description_waits_no_more_for_what_the_old_one_named():
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("x"), job("b", after="a x"))
    driver.schedule()
    driver.cancel("b")
    driver.rerun("b", replaced=[job("b", after="x")])
    driver.end("a")
    assert driver.schedule() == []
    driver.end("x")
    assert driver.schedule() == ["b on n1[0]"]


def test_states_choose_among_the_named_jobs():
    driver = CoreDriver(machine(1))
    driver.submit(job("a"), job("b"), job("c"))
    driver.cancel("b", "c")
    driver.schedule()
    driver.end("a", exit_code=1)
    driver.rerun("a", "b", states=CANCELED)
    assert driver.states() == {"a": "FAILED", "b": "QUEUED", "c": "CANCELED"}


def test_a_rerun_begins_with_new_retries():
    driver = CoreDriver(machine(1))
    driver.submit(job("a", retry=RetryPolicy({"exit": 1}, delay=100.0)))
    for _ in range(2):
        driver.schedule()
        driver.end("a", exit_code=1)
        driver.now += 1000.0
    assert driver.states() == {"a": "FAILED"}
    driver.rerun("a")
    driver.schedule()
    driver.end("a", exit_code=1)
    assert driver.states() == {"a": "QUEUED"}
    driver.cancel("a")
    driver.rerun("a")
    assert len(driver.schedule()) == 1, "it does not pause any more"


def test_an_iteration_that_was_cancelled_before_its_retry_asks_for_what_its_description_says():
    policy = RetryPolicy({"exit": 3}, grow=RetryGrowth(cores=2.0))
    driver = CoreDriver(machine(2))
    driver.submit(job("a", its=2, retry=policy))
    driver.schedule()
    driver.end("a:1", exit_code=1)
    driver.cancel("a:1")
    driver.rerun("a:1")
    assert driver.schedule() == ["a:1 (attempt 2) on n1[1]"]
    driver.end("a:0", "a:1")
    assert driver.states() == {"a": "SUCCEED"}


@pytest.mark.parametrize("its", [None, 3])
def test_a_job_that_asks_for_more_than_there_is_is_not_counted_and_the_answer_says_why(its: int | None):
    driver = CoreDriver(machine(2))
    driver.handle(Submit([job("a", 4, its=its), job("b", after="a"), job("c", 1)]))
    driver.cancel("c")
    reply = driver.rerun("a", "c")[-1]
    assert "'rerun': 1, 'jobs': ['c']" in reply
    why = driver.core.state.jobs["a"].message
    assert f"job 'a' can never run: {why.rstrip('.')}; give it a new description with --from" in reply
    assert (driver.states()["a"], driver.states()["b"], driver.states()["c"]) == ("FAILED", "OMITTED", "QUEUED")


def test_a_running_job_is_not_run_again():
    driver = CoreDriver(machine(1))
    driver.submit(job("a"))
    driver.schedule()
    (reply,) = driver.rerun("a")
    assert "job 'a' is SCHEDULED; only jobs that ended without success run again" in reply


def test_descriptions_may_be_replaced():
    driver = chain()
    driver.rerun("a", replaced=[job("a", 2)])
    assert driver.schedule() == ["a (attempt 2) on n1[0:1]"]


@pytest.mark.parametrize(
    ("replaced", "problem"),
    [
        (job("a", after="d"), "these jobs wait for each other and could never start"),
        (job("a", after="x"), "there is no job 'x'"),
        (job("a", its=3), "has other iterations in its new description"),
        (job("b", after="a"), "job 'b' does not run again"),
        (job("a", after="later"), "job 'a' cannot wait for 'later', which was submitted after it"),
        (replace(job("a"), request=ResourceRequest(Amount(1, 1), host="far")), "no remote host is configured"),
    ],
    ids=["cycle", "unknown", "iterations", "not chosen", "later", "host"],
)
def test_a_wrong_replacement_changes_nothing(replaced: JobDescription, problem: str):
    driver = chain()
    driver.submit(job("later"))
    before = driver.states()
    with pytest.raises(SubmissionRejected, match=problem):
        driver.rerun(replaced.name, replaced=[replaced])
    assert driver.states() == before


@pytest.mark.parametrize("its", [None, 2], ids=["a job", "iterations"])
@pytest.mark.parametrize("repeated", ["retry", "forgotten by its host"])
def test_a_dependent_that_has_to_start_again_is_omitted_when_the_outcome_has_changed(its: int | None, repeated: str):
    driver = CoreDriver(machine(3))
    kind = "afternotok=a" if its is None else "afternotok=a:${it}"
    driver.submit(job("a", its=its), job("b", outcomes=kind, retry=RetryPolicy({"exit": 1}), its=its))
    prerequisite, dependent = ("a", "b") if its is None else ("a:0", "b:0")
    driver.schedule()
    driver.end(prerequisite, exit_code=1)
    driver.schedule()
    if repeated == "retry":
        driver.start(dependent)
    driver.rerun(prerequisite)
    driver.schedule()
    if its is not None:
        driver.end("a:1")
    driver.end(prerequisite)
    if repeated == "retry":
        lines = driver.end(dependent, exit_code=1)
    else:
        lines = driver.report("n1")
    why = f"it runs only if {prerequisite!r} does not succeed, and {prerequisite!r} is SUCCEED"
    assert f"{dependent} OMITTED: {why}" in lines
    assert "all done" in lines


def test_a_dependent_that_has_to_start_again_waits_while_its_prerequisite_runs_again():
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("b", outcomes="afternotok=a", retry=RetryPolicy({"exit": 1})))
    driver.schedule()
    driver.end("a", exit_code=1)
    driver.schedule()
    driver.start("b")
    driver.rerun("a")
    driver.schedule()
    driver.end("b", exit_code=1)
    assert driver.schedule() == []
    driver.end("a", exit_code=1)
    assert driver.schedule() == ["b (attempt 2) on n1[0]"]


def test_a_job_that_was_held_until_it_was_omitted_is_held_when_it_comes_back():
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("b", after="a", hold=True), job("c", its=2, after="b"))
    driver.schedule()
    driver.end("a", exit_code=1)
    assert driver.states() == {"a": "FAILED", "b": "OMITTED", "c": "OMITTED"}
    driver.rerun("a")
    driver.schedule()
    driver.end("a")
    assert driver.schedule() == []
    driver.release("b")
    assert driver.schedule() == ["b on n1[0]"]


def test_a_new_description_can_hold_a_job_that_runs_again():
    driver = CoreDriver(machine(1))
    driver.submit(job("a"))
    driver.schedule()
    driver.end("a", exit_code=1)
    driver.rerun("a", replaced=[job("a", hold=True)])
    assert driver.schedule() == []
    driver.release("a")
    assert driver.schedule() == ["a (attempt 2) on n1[0]"]


def test_new_descriptions_of_jobs_that_do_not_run_again_are_ignored_unless_they_are_named():
    driver = CoreDriver(machine(3))
    driver.submit(job("main"), job("fallback", outcomes="afternotok=main"), job("wrong"), job("other"))
    driver.schedule()
    driver.end("main")
    driver.end("wrong", "other", exit_code=1)
    replaced = [job("fallback", outcomes="afternotok=main"), job("wrong", 2), job("other")]
    assert driver.rerun("wrong", replaced=replaced)[-1] == "reply {'rerun': 1, 'jobs': ['wrong']}"
    assert driver.rerun(states=FAILED, replaced=replaced)[-1] == "reply {'rerun': 1, 'jobs': ['other']}"
    with pytest.raises(SubmissionRejected, match="'fallback' does not run again, so its description is not replaced"):
        driver.rerun("fallback", replaced=replaced)


def test_one_iteration_comes_back_with_the_same_index_of_its_dependents():
    driver = CoreDriver(machine(2))
    driver.submit(job("a", its=2000), job("b", its=2000, after="a:${it}"), job("c", its=2000, after="b:${it}"))
    driver.cancel("a")
    assert driver.rerun("a:5")[-1] == "reply {'rerun': 3, 'jobs': ['a', 'b', 'c']}"
    assert run_all(driver) == ["a:5", "b:5", "c:5"]
