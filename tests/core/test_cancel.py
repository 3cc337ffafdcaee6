"""Cancelling and removing jobs."""

from __future__ import annotations

import pytest

from qcg.pilotjob.core.effects import Reply
from qcg.pilotjob.core.named_jobs import indices_in_words
from qcg.pilotjob.description.iteration import IndexList, Indices
from tests.core.core_driver import CoreDriver, job, machine


def test_a_queued_job_is_canceled_at_once_and_its_dependents_are_omitted_at_once() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("a"), job("b", after="a"), job("c", after="b"))
    assert driver.cancel("a") == [
        "a CANCELED",
        "b OMITTED: it waits for 'a', which is CANCELED",
        "c OMITTED: it waits for 'b', which is OMITTED",
        "all done",
        "reply {'canceled': 1}",
    ]
    assert driver.schedule() == []


def test_a_waiting_job_is_canceled_and_does_not_start_later() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("b", after="a"))
    driver.schedule()
    assert driver.cancel("b") == ["b CANCELED", "reply {'canceled': 1}"]
    assert driver.end("a") == ["a SUCCEED", "all done"]
    assert driver.schedule() == []


@pytest.mark.parametrize("start", [False, True], ids=["scheduled", "running"])
def test_a_running_job_is_canceled_when_its_host_reports_the_end(start: bool) -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("a"), job("b", after="a"), job("c"))
    driver.schedule()
    if start:
        driver.start("a")
    assert driver.cancel("a") == ["kill a", "reply {'canceled': 1}"]
    assert driver.schedule() == []
    assert driver.end("a", exit_code=-15, reason="cancel") == [
        "a CANCELED",
        "b OMITTED: it waits for 'a', which is CANCELED",
    ]
    assert driver.schedule() == ["c on n1[0]"]


def test_an_attempt_that_ends_before_the_kill_keeps_its_result() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("a"))
    driver.schedule()
    driver.cancel("a")
    assert driver.end("a") == ["a SUCCEED", "all done"]


def test_a_single_iteration_is_canceled() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("it", its=range(-1, 4)), job("b", after="it:3"))
    driver.schedule()
    assert driver.cancel("it:3", "it:-1", "it:1") == [
        "kill it:-1",
        "it:3 CANCELED",
        "it:1 CANCELED",
        "b OMITTED: it waits for 'it:3', which is CANCELED",
        "reply {'canceled': 3}",
    ]
    driver.end("it:-1", reason="cancel", exit_code=-9)
    assert driver.schedule() == ["it:2 on n1[0]"]
    driver.end("it:0", "it:2")
    assert driver.states()["it"] == "CANCELED"


def test_an_iterated_job_is_canceled_as_a_whole() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("it", its=5), job("b", after="it:4"), job("c", after="it"))
    driver.schedule()
    driver.start("it:0")
    driver.end("it:0")
    driver.schedule()
    assert driver.cancel("it") == [
        "kill it:1",
        "kill it:2",
        "rest of it CANCELED",
        "b OMITTED: it waits for 'it:4', which is CANCELED",
        "reply {'canceled': 1}",
    ]
    assert driver.schedule() == []
    driver.end("it:1", reason="cancel")
    assert driver.end("it:2") == [
        "it:2 SUCCEED",
        "it CANCELED",
        "c OMITTED: it waits for 'it', which is CANCELED",
        "all done",
    ]
    assert driver.iteration_states("it") == ["SUCCEED", "CANCELED", "SUCCEED", "CANCELED", "CANCELED"]


def test_each_name_that_cannot_be_canceled_gets_an_error() -> None:
    driver = CoreDriver(machine(3))
    driver.submit(job("a"), job("it", its=2), job("b"))
    driver.schedule()
    driver.end("a", "it:1")
    names = ["zz", "a", "it:1", "it:7", "it:--3", "it:x", "it:", f"it:{'9' * 5000}", "b:0", "zz:1", "b", "b"]
    driver.cancel(*names)
    reply = driver.effects[-1]
    assert isinstance(reply, Reply)
    assert reply.data == {
        "canceled": 1,
        "errors": {
            "zz": "there is no job 'zz'",
            "a": "job 'a' is already SUCCEED",
            "it:1": "job 'it:1' is already SUCCEED",
            "it:7": "job 'it' has no iteration '7'; there are 0, 1",
            "it:--3": "job 'it' has no iteration '--3'; there are 0, 1",
            "it:x": "job 'it' has no iteration 'x'; there are 0, 1",
            "it:": "job 'it' has no iteration ''; there are 0, 1",
            f"it:{'9' * 5000}": f"job 'it' has no iteration '{'9' * 5000}'; there are 0, 1",
            "b:0": "job 'b' has no iterations",
            "zz:1": "there is no job 'zz'",
        },
    }
    driver.cancel("b")
    assert driver.effects[-1] == Reply({"canceled": 0, "errors": {"b": "job 'b' is already CANCELED"}})


@pytest.mark.parametrize("has_started", [False, True])
def test_dependent_jobs_canceled_together_are_canceled_whether_or_not_the_first_has_started(
    has_started: bool,
) -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("a"), job("b", after="a"), job("it", its=2, after="b"), job("c", after="it"))
    if has_started:
        driver.schedule()
    driver.cancel("a", "b", "it", "it:1", "a")
    assert driver.effects[-1] == Reply({"canceled": 4})
    if has_started:
        driver.end("a", reason="cancel")
    assert driver.states() == {"a": "CANCELED", "b": "CANCELED", "it": "CANCELED", "c": "OMITTED"}


def test_cancel_all_cancels_every_job() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("it", its=3), job("b", after="a"), job("c"))
    driver.schedule()
    assert driver.cancel_all("the service was ended") == [
        "kill a",
        "kill it:0",
        "rest of it CANCELED",
        "b CANCELED: the service was ended",
        "c CANCELED: the service was ended",
    ]
    assert driver.end("a", "it:0", reason="cancel") == [
        "a CANCELED",
        "it:0 CANCELED",
        "it CANCELED: the service was ended",
        "all done",
    ]


def test_cancel_all_omits_no_job_when_none_has_started() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(
        job("b", after="a"),
        job("a"),
        job("it", its=3),
        job("one", after="it:1"),
        job("its", its=3, after="it:${it}"),
        job("last", after=("its", "b")),
    )
    driver.cancel_all("the service was ended")
    assert driver.states() == dict.fromkeys(["b", "a", "it", "one", "its", "last"], "CANCELED")
    assert driver.iteration_states("its") == ["CANCELED"] * 3
    assert {found.message for found in driver.core.state.jobs.values()} == {"the service was ended"}


def test_a_final_job_is_removed_and_its_name_can_be_used_again() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("a"), job("b"))
    driver.schedule()
    driver.end("a")
    errors = {
        "b": "job 'b' is QUEUED; only a job that has ended can be removed",
        "zz": "there is no job 'zz'",
    }
    assert driver.remove("a", "b", "zz") == ["removed a", f"reply {{'removed': 1, 'errors': {errors}}}"]
    assert driver.states() == {"b": "QUEUED"}
    driver.submit(job("a"))
    assert driver.core.state.jobs["a"].seq == 3


def test_a_removed_job_cannot_be_a_prerequisite() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("a"), job("b", after="a"))
    driver.schedule()
    driver.end("a")
    assert driver.remove("a") == ["removed a", "reply {'removed': 1}"]
    assert driver.schedule() == ["b on n1[0]"]


def test_iterations_are_removed_with_their_job_and_its_counts() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("it", its=3))
    driver.cancel("it")
    driver.remove("it")
    assert sum(driver.core.state.iteration_counts) == sum(driver.core.state.job_counts) == 0


@pytest.mark.parametrize(
    ("indices", "known"),
    [
        (range(1), "there is 0"),
        (range(4, 7), "there are 4, 5, 6"),
        (range(100), "there are 0 to 99"),
        (range(0, 100, 10), "there are 0 to 90 in steps of 10"),
        (IndexList((31, 7, 133)), "there are 31, 7, 133"),
        (IndexList((9, 7, 5, 4, 1, 20)), "there are 6, between 1 and 20"),
    ],
)
def test_a_message_about_a_missing_iteration_says_which_there_are(indices: Indices, known: str) -> None:
    assert indices_in_words(indices) == known
