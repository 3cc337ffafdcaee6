"""When a run notifies its user, as a function of events and time."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from qcg.pilotjob.manager.notification_rules import (
    DEFAULT_ON,
    DEFAULT_STALL,
    STALL_PAUSE,
    UNWRITABLE_SECONDS,
    FailedJob,
    NotificationRules,
    NotifyOn,
    RunStatus,
    parse_notify_on,
)


@pytest.mark.parametrize(
    ("text", "on"),
    [
        (DEFAULT_ON, NotifyOn(end=True, first_failure=True, stall=DEFAULT_STALL)),
        ("end", NotifyOn(end=True)),
        ("first-failure, failures=100,failures=7", NotifyOn(first_failure=True, failures=(7, 100))),
        ("stall=30m", NotifyOn(stall=1800.0)),
        ("stall=0.5s,end", NotifyOn(end=True, stall=0.5)),
    ],
)
def test_events_are_given_with_commas(text: str, on: NotifyOn):
    assert parse_notify_on(text) == on


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "'' is none of end, first-failure, failures=N and stall=TIME"),
        ("end,ende", "'ende' is none of end"),
        ("end=1", "'end=1' is none of"),
        ("failures", "'failures' needs a number of failures, as in failures=100"),
        ("failures=0", "'failures=0' needs a number"),
        ("failures=-3", "'failures=-3' needs a number"),
        ("failures=٣", "'failures=٣' needs a number"),
        ("failures=99999999999", "needs a number"),
        ("stall=soon", 'stall: "soon" is not a wall time'),
        ("stall=0", "must be longer than zero"),
        ("\x1b[2J", r"'\x1b[2J' is none of"),
    ],
)
def test_a_wrong_event_is_refused_with_one_sentence(text: str, sentence: str):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse_notify_on(text)


def rules(on: str, *, failures: int = 0, notified: list[str] | None = None) -> NotificationRules:
    return NotificationRules(parse_notify_on(on), 0.0, failures, notified)


def status(progress: int, *, waiting: int = 3, running: int = 1, unwritable: bool = False) -> RunStatus:
    return RunStatus((progress,), waiting, running, unwritable)


def events(made: list[Any]) -> list[str]:
    return [notification.event for notification in made]


# -- failures -----------------------------------------------------------------------------------------------------


def test_the_first_failure_is_notified_once_with_its_job():
    rule = rules("first-failure")
    (first,) = rule.failed(1, FailedJob("a:3", "exit code 2"))
    assert first.sentence == "a:3 has failed: exit code 2"
    assert first.details == {"failures": 1, "job": "a:3", "message": "exit code 2"}
    assert rule.failed(2, FailedJob("b", "")) == []


def test_each_number_of_failures_is_notified_once_also_when_it_is_jumped_over():
    rule = rules("failures=2,failures=5,failures=100")
    assert events(rule.failed(1)) == []
    (second,) = rule.failed(4, FailedJob("a", "exit code 1"))
    assert second.sentence == "4 jobs and iterations have failed; the last one: a has failed: exit code 1"
    assert events(rule.failed(4)) == []
    assert events(rule.failed(2000)) == ["failures", "failures"]
    assert events(rule.failed(3000)) == []


def test_several_events_may_happen_at_once():
    assert events(rules("first-failure,failures=1").failed(1)) == ["first-failure", "failures"]


def test_the_next_manager_does_not_repeat_what_was_notified():
    before = rules("first-failure,failures=3")
    before.failed(2)
    resumed = rules("first-failure,failures=3", failures=2, notified=before.notified)
    assert resumed.failed(2) == []
    assert events(resumed.failed(3)) == ["failures"]


def test_the_next_manager_notifies_failures_found_after_the_end_of_the_previous_manager():
    resumed = rules("first-failure", failures=1, notified=[])
    (found,) = resumed.failed(1)
    assert found.sentence == "1 job has failed"


def test_failures_before_notifications_were_enabled_are_not_notified():
    resumed = rules("first-failure,failures=3", failures=2, notified=None)
    assert resumed.failed(2) == []
    assert events(resumed.failed(3)) == ["failures"]


def test_failed_jobs_that_run_again_and_fail_again_are_no_first_failure():
    rule = rules("first-failure", notified=["first-failure"])
    assert rule.failed(1) == []


def test_unselected_events_are_not_notified():
    rule = rules("end")
    assert rule.failed(7) == []
    assert rule.find_stalls(0.0, status(1)) == rule.find_stalls(10**6, status(1, unwritable=True)) == []


def test_names_and_messages_are_printable_in_sentences():
    (first,) = rules("first-failure").failed(1, FailedJob("a\x1b[2J", "b\nforged"))
    assert first.sentence == r"a\x1b[2J has failed: b\nforged"


# -- stalls -------------------------------------------------------------------------------------------------------


def test_a_time_without_starts_and_ends_while_jobs_wait_is_a_stall():
    rule = rules("stall=30m")
    assert rule.find_stalls(0.0, status(1)) == []
    assert rule.find_stalls(1799.0, status(1)) == []
    (stall,) = rule.find_stalls(1800.0, status(1))
    assert stall.sentence == "no job has started or ended for 30 min: 3 jobs wait, 1 attempt runs"
    assert stall.details == {"reason": "quiet", "seconds": 1800.0, "waiting": 3, "running": 1}


def test_every_start_or_end_begins_the_time_anew():
    rule = rules("stall=30m")
    for number in range(10):
        assert rule.find_stalls(number * 1700.0, status(number)) == []
    assert events(rule.find_stalls(9 * 1700.0 + 1800.0, status(9))) == ["stall"]


def test_without_waiting_jobs_nothing_stalls():
    rule = rules("stall=30m")
    for hour in range(10):
        assert rule.find_stalls(hour * 3600.0, status(1, waiting=0)) == []
    assert rule.find_stalls(9 * 3600.0 + 1799.0, status(1)) == [], "they wait since then"
    assert events(rule.find_stalls(9 * 3600.0 + 1800.0, status(1))) == ["stall"]


def test_a_stall_is_notified_once_until_something_happens():
    rule = rules("stall=30m")
    rule.find_stalls(0.0, status(1))
    found = [events(rule.find_stalls(1800.0 + minute * 60.0, status(1))) for minute in range(300)]
    assert found == [["stall"], *[[]] * 299]
    rule.find_stalls(20000.0, status(2))
    assert events(rule.find_stalls(21800.0, status(2))) == ["stall"]


def test_stalls_that_follow_one_another_are_notified_seldom():
    rule = rules("stall=1s")
    stalls = [second for second in range(2000) if rule.find_stalls(float(second), status(second // 5))]
    assert len(stalls) == 4
    assert all(later - earlier >= STALL_PAUSE for earlier, later in pairwise(stalls))


def test_a_registry_that_cannot_be_written_is_a_stall_after_a_while():
    rule = rules("stall=30m")
    assert rule.find_stalls(0.0, status(1, unwritable=True)) == []
    assert rule.find_stalls(UNWRITABLE_SECONDS - 1, status(2, unwritable=True)) == [], "jobs may still end"
    (stall,) = rule.find_stalls(UNWRITABLE_SECONDS, status(3, unwritable=True, waiting=0))
    assert stall.sentence == "the registry cannot be written since 30 s, so nothing is started"
    assert stall.details["reason"] == "registry"
    assert rule.find_stalls(3600.0, status(3, unwritable=True)) == [], "once"


def test_a_registry_that_cannot_be_written_is_notified_also_after_a_quiet_time():
    rule = rules("stall=60s")
    rule.find_stalls(0.0, status(1))
    assert events(rule.find_stalls(60.0, status(1))) == ["stall"]
    rule.find_stalls(61.0, status(1, unwritable=True))
    (stall,) = rule.find_stalls(61.0 + UNWRITABLE_SECONDS, status(1, unwritable=True))
    assert stall.details["reason"] == "registry"


def test_a_registry_that_works_again_begins_the_time_anew():
    rule = rules("stall=30m")
    for second in range(0, 3000, 20):
        assert rule.find_stalls(float(second), status(second, unwritable=second % 40 == 0)) == []
