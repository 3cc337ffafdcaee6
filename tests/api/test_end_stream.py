"""The stream of job ends when replies arrive out of order."""

from __future__ import annotations

from typing import Any

from qcg.pilotjob.api.end_stream import EndStream
from qcg.pilotjob.api.waits import WaitForAny


def reply(numbers: range, *, last: int, more: bool = True) -> dict[str, Any]:
    ends = [{"number": number, "job": f"job{number}", "state": "SUCCEED"} for number in numbers]
    return {"ends": ends, "last": last, "first": 0, "delayed": False, "more": more}


def names(stream: EndStream) -> list[str]:
    found = []
    while (end := stream.pop()) is not None:
        found.append(end[0])
    return found


def asking(stream: EndStream, after: int) -> WaitForAny:
    """The call of a thread that has requested ends."""
    wait = WaitForAny(stream)
    assert wait.question() == {"request": "endedJobs", "after": after}
    return wait


def test_an_older_reply_after_a_newer_one_returns_no_end_twice():
    stream = EndStream(0)
    older, newer = asking(stream, 0), asking(stream, 0)
    newer.answer(reply(range(1, 6), last=5))
    assert names(stream) == ["job1", "job2", "job3", "job4", "job5"]
    older.answer(reply(range(1, 3), last=2))
    assert not older.over
    assert not older.delayed
    latest = asking(stream, 5)
    latest.answer(reply(range(6, 7), last=6))
    assert names(stream) == ["job6"]


def test_two_replies_after_the_same_loss_step_back_once():
    stream = EndStream(10)
    first, second = asking(stream, 10), asking(stream, 10)
    first.answer(reply(range(0), last=5))
    asking(stream, 5).answer(reply(range(6, 8), last=7))
    assert names(stream) == ["job6", "job7"]
    second.answer(reply(range(0), last=5, more=False))
    assert second.delayed
    assert not second.no_more_ends
    asking(stream, 7)


def test_a_reply_from_before_a_loss_is_requested_again():
    stream = EndStream(10)
    before, after = asking(stream, 10), asking(stream, 10)
    after.answer(reply(range(0), last=5))
    before.answer(reply(range(11, 13), last=12))
    assert names(stream) == []
    assert before.delayed
    asking(stream, 5)
