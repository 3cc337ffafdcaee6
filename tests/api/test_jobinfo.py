"""The reply to `info` as objects."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from qcg.pilotjob.api.jobinfo import AttemptInfo, JobInfo

RUNTIME = {
    "allocation": "n1[0:1],n2[4]",
    "wd": "/tmp/x",
    "rtime": "0:00:02.027212",
    "exit_code": "0",
    "pid": "12",
    "pname": "date",
}
HISTORY = "\n2020-06-08 12:56:06.789757: QUEUED\n2020-06-08 12:56:07.000000: SUCCEED"


def test_job_info_is_parsed():
    info = JobInfo.from_job({"jobName": "a", "status": "SUCCEED", "runtime": RUNTIME, "history": HISTORY})
    assert (info.name, info.status) == ("a", "SUCCEED")
    assert info.nodes == {"n1": ["0", "1"], "n2": ["4"]}
    assert info.total_cores == 3
    assert info.wdir == "/tmp/x"
    assert info.time == timedelta(seconds=2.027212)
    assert (info.exit_code, info.pid) == (0, 12)
    assert info.history == [
        (datetime(2020, 6, 8, 12, 56, 6, 789757), "QUEUED"),
        (datetime(2020, 6, 8, 12, 56, 7), "SUCCEED"),
    ]
    assert info.childs == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0:00:05", timedelta(seconds=5)),
        ("26:10:00.5", timedelta(hours=26, minutes=10, seconds=0.5)),
        ("1 day, 2:00:00.25", timedelta(days=1, hours=2, seconds=0.25)),
        ("3 days, 0:00:01", timedelta(days=3, seconds=1)),
    ],
)
def test_runtimes_of_any_length_are_parsed(text: str, expected: timedelta):
    assert JobInfo.from_child("a", {"iteration": 1, "state": "SUCCEED", "runtime": {"rtime": text}}).time == expected


def test_job_info_without_a_runtime_is_parsed():
    info = JobInfo.from_job({"jobName": "a", "status": "QUEUED"})
    assert (info.nodes, info.total_cores, info.time, info.exit_code, info.history) == ({}, 0, None, None, [])


def test_job_info_of_iterations_is_parsed():
    counts = {"start": 0, "stop": 2, "total": 2, "finished": 1, "failed": 1}
    childs = [{"iteration": 0, "state": "FAILED", "runtime": {"exit_code": "-15"}, "messages": "why"}]
    info = JobInfo.from_job({"jobName": "a", "status": "EXECUTING", "iterations": counts, "childs": childs})
    assert info.iterations == counts
    (child,) = info.childs
    assert (child.name, child.iteration, child.status, child.exit_code, child.messages) == (
        "a:0",
        0,
        "FAILED",
        -15,
        "why",
    )


ATTEMPTS = [
    {
        "attempt": 1,
        "cause": "memory",
        "exit_code": -9,
        "allocation": "n1[0:1]",
        "started": "2020-06-08 12:56:06.500000",
        "ended": "2020-06-08 12:56:08.750000",
        "cpu_time": "0:00:01.500000",
        "cpu_efficiency": "0.3333",
        "max_memory": "1048576",
        "messages": "it used too much",
    },
    {"attempt": 2, "cause": "unstartable"},
]


def test_earlier_attempts_are_parsed():
    info = JobInfo.from_job({"jobName": "a", "status": "SUCCEED", "attempts": ATTEMPTS})
    first, second = info.attempts
    assert (first.number, first.cause, first.exit_code, first.messages) == (1, "memory", -9, "it used too much")
    assert (first.nodes, first.time) == ({"n1": ["0", "1"]}, timedelta(seconds=2.25))
    assert first.started == datetime(2020, 6, 8, 12, 56, 6, 500000)
    assert (first.cpu_time, first.cpu_efficiency, first.max_memory) == (timedelta(seconds=1.5), 0.3333, 1 << 20)
    assert second == AttemptInfo(2, "unstartable")
    assert (second.time, second.nodes) == (None, {})


def test_earlier_attempts_of_iterations_are_parsed():
    child = JobInfo.from_child("a", {"iteration": 1, "state": "QUEUED", "runtime": {}, "attempts": ATTEMPTS})
    assert [attempt.cause for attempt in child.attempts] == ["memory", "unstartable"]
