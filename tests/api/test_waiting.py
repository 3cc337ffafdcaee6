"""When a wait is over, without any service: it is fed with answers and events."""

from __future__ import annotations

from typing import Any

import pytest

from qcg.pilotjob.api.waiting import Numbers, Wait, WaitForAll, WaitForAny, WaitForJobs, parse_event


def status(**states: str) -> dict[str, Any]:
    return {
        "jobs": {name.replace("_", ":"): {"status": 0, "data": {"status": state}} for name, state in states.items()}
    }


def ended(job: str, state: str = "SUCCEED", it: int | None = None) -> dict[str, Any]:
    return {"job": job, "state": state} if it is None else {"job": job, "state": state, "it": it}


def over(wait: Wait) -> bool:
    return wait.over


def asks(wait: Wait) -> bool:
    return wait.ask_again


def test_jobs_are_taken_from_answers_and_from_events():
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


def test_no_names_are_over_at_once():
    assert WaitForJobs([]).over


def test_a_name_that_is_not_there_is_told():
    wait = WaitForJobs(["a"])
    assert wait.answer({"jobs": {"a": {"status": 1, "message": "there is no job 'a'"}}}) == "there is no job 'a'"


def test_iterations_that_ended_with_their_job_are_asked_for():
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


def test_waiting_for_any_takes_the_first():
    wait = WaitForAny()
    wait.event("JFI", ended("a"))
    wait.event("JFI", ended("b", "FAILED"))
    assert wait.ended == ("a", "SUCCEED")


@pytest.mark.parametrize(
    ("numbers", "gaps"),
    [([1, 2, 3], [False] * 3), ([7, 8, 9], [False] * 3), ([1, 3, 4], [False, True, False]), ([5, 9], [False, True])],
)
def test_a_gap_in_the_numbers_is_noticed(numbers: list[int], gaps: list[bool]):
    counted = Numbers(["JFI"])
    assert [counted.is_gap("JFI", {"number": number}) for number in numbers] == gaps


def test_a_beat_tells_of_events_that_were_lost_last():
    counted = Numbers(["JFI"])
    assert counted.is_gap("BEAT", {"numbers": {"JFI": 3, "IFI": 8}}), "nobody knows what came before the first"
    assert not counted.is_gap("JFI", {"number": 4})
    assert not counted.is_gap("BEAT", {"numbers": {"JFI": 4, "IFI": 9}})
    assert counted.is_gap("BEAT", {"numbers": {"JFI": 6, "IFI": 9}})
    assert not counted.is_gap("JFI", {"number": 7})


def test_events_are_parsed():
    assert parse_event(b"WEL") == ("WEL", {})
    assert parse_event(b'JFI {"job": "a b", "it": 1}') == ("JFI", {"job": "a b", "it": 1})
