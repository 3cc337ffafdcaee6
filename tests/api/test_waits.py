"""Conditions of waits, computed from answers and events without a manager."""

from __future__ import annotations

from typing import Any

import pytest

from qcg.pilotjob.api.end_stream import EndStream
from qcg.pilotjob.api.waits import EventNumbers, Wait, WaitForAll, WaitForAny, WaitForJobs, parse_event


def status(**states: str) -> dict[str, Any]:
    return {
        "jobs": {name.replace("_", ":"): {"status": 0, "data": {"status": state}} for name, state in states.items()}
    }


def ended(job: str, state: str = "SUCCEED", it: int | None = None) -> dict[str, Any]:
    return {"job": job, "state": state} if it is None else {"job": job, "state": state, "it": it}


def over(wait: Wait) -> bool:
    return wait.over


def asks(wait: Wait) -> bool:
    return wait.must_ask


def test_a_wait_reads_states_from_answers_and_from_events():
    wait = WaitForJobs(["a", "b", "c:1"])
    assert asks(wait)
    assert wait.question() == {"request": "jobStatus", "jobNames": ["a", "b", "c:1"]}
    assert wait.answer(status(a="SUCCEED", b="EXECUTING", c_1="QUEUED")) is None
    assert list(wait.states) == ["a"]
    wait.event("JFI", ended("other"))
    wait.event("JFI", ended("b", "FAILED"))
    assert wait.question()["jobNames"] == ["c:1"]
    wait.event("IFI", ended("c", "CANCELED", 1))
    assert over(wait)
    assert wait.states == {"a": "SUCCEED", "b": "FAILED", "c:1": "CANCELED"}


def test_each_end_is_reported_when_it_is_known():
    reported: list[tuple[str, str]] = []
    wait = WaitForJobs(["a", "b", "a"], reported.append)
    wait.answer(status(a="SUCCEED", b="EXECUTING"))
    assert reported == [("a", "SUCCEED")]
    wait.answer(status(a="SUCCEED", b="EXECUTING"))
    wait.event("JFI", ended("b", "FAILED"))
    wait.event("JFI", ended("b", "FAILED"))
    assert reported == [("a", "SUCCEED"), ("b", "FAILED")]


def test_a_wait_without_names_is_over_at_once():
    assert WaitForJobs([]).over


def test_a_wait_for_an_unknown_job_returns_an_error():
    wait = WaitForJobs(["a"])
    assert wait.answer({"jobs": {"a": {"status": 1, "message": "there is no job 'a'"}}}) == "there is no job 'a'"


def test_iterations_that_ended_with_their_job_are_queried():
    wait = WaitForJobs(["a:1", "a:2"])
    wait.question()
    wait.event("IFI", ended("a", it=1))
    assert not asks(wait)
    wait.event("JFI", ended("other", "CANCELED"))
    assert not asks(wait)
    wait.event("JFI", ended("a", "CANCELED"))
    assert asks(wait)
    wait.question()
    wait.answer(status(a_2="CANCELED"))
    assert over(wait)
    wait.event("JFI", ended("a", "CANCELED"))
    assert not asks(wait)


def test_waiting_for_all_ends_with_an_answer_or_an_event():
    wait = WaitForAll()
    wait.answer({"AllJobsFinished": False})
    assert not over(wait)
    wait.event("NOJ", {})
    assert over(wait)
    asked = WaitForAll()
    asked.answer({"AllJobsFinished": True})
    assert over(asked)


def ends(*jobs: str, first: int = 1, last: int = 0, more: bool = True, delayed: bool = False) -> dict[str, Any]:
    """A reply to `endedJobs`."""
    listed = [{"number": number, "job": job, "state": "SUCCEED"} for number, job in enumerate(jobs, first)]
    return {"ends": listed, "last": last or first + len(jobs) - 1, "first": 0, "more": more, "delayed": delayed}


def test_an_event_makes_a_wait_for_any_job_request_ends():
    stream = EndStream(7)
    wait = WaitForAny(stream)
    assert asks(wait)
    assert wait.question() == {"request": "endedJobs", "after": 7}
    wait.answer(ends(first=8, last=7))
    assert not over(wait)
    assert not asks(wait)
    wait.event("JFI", ended("a"))
    assert asks(wait)
    wait.answer(ends("a", "b", first=8))
    assert over(wait)
    assert wait.question() == {"request": "endedJobs", "after": 9}


@pytest.mark.parametrize(
    ("reply", "no_more_ends", "delayed"),
    [
        (ends(first=8, last=7, more=False), True, False),
        (ends(first=8, last=7, more=True), False, False),
        (ends("a", first=8, more=False), False, False),
        (ends(first=8, last=7, more=True, delayed=True), False, True),
        (ends("a", first=8, more=True, delayed=True), False, False),
    ],
)
def test_a_wait_for_any_job_fails_only_when_no_end_can_follow(reply: dict[str, Any], no_more_ends: bool, delayed: bool):
    wait = WaitForAny(EndStream(7))
    wait.answer(reply)
    assert (wait.no_more_ends, wait.delayed) == (no_more_ends, delayed)


def drained(stream: EndStream) -> list[str]:
    return [end[0] for end in iter(stream.pop, None)]


def test_overlapping_replies_return_each_end_once():
    """As when two threads have sent a query at the same time."""
    stream = EndStream(0)
    asked = stream.position
    for reply in (ends("a", "b"), ends("a", "b", "c"), ends("c", "d", first=3), ends("b", first=2, last=4)):
        assert stream.receive(asked, reply)
    assert drained(stream) == ["a", "b", "c", "d"]
    assert stream.position.number == 4


def test_numbers_lost_in_a_crash_of_the_machine_are_requested_again():
    stream = EndStream(57)
    assert stream.receive(stream.position, ends(last=50))
    assert stream.position.number == 50
    assert stream.receive(stream.position, ends("a", first=51))
    assert drained(stream) == ["a"]


@pytest.mark.parametrize(
    ("numbers", "gaps"),
    [([1, 2, 3], [False] * 3), ([7, 8, 9], [False] * 3), ([1, 3, 4], [False, True, False]), ([5, 9], [False, True])],
)
def test_a_gap_in_the_event_numbers_is_detected(numbers: list[int], gaps: list[bool]):
    counted = EventNumbers(["JFI"])
    assert [counted.has_gap("JFI", {"number": number}) for number in numbers] == gaps


def test_a_heartbeat_reveals_lost_events():
    counted = EventNumbers(["JFI"])
    assert counted.has_gap("BEAT", {"numbers": {"JFI": 3, "IFI": 8}}), "nobody knows what came before the first"
    assert not counted.has_gap("JFI", {"number": 4})
    assert not counted.has_gap("BEAT", {"numbers": {"JFI": 4, "IFI": 9}})
    assert counted.has_gap("BEAT", {"numbers": {"JFI": 6, "IFI": 9}})
    assert not counted.has_gap("JFI", {"number": 7})


def test_events_are_parsed():
    assert parse_event(b"WEL") == ("WEL", {})
    assert parse_event(b'JFI {"job": "a b", "it": 1}') == ("JFI", {"job": "a b", "it": 1})
