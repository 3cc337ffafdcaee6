"""Pauses between connections, and times of polls."""

from __future__ import annotations

from qcg.pilotjob.executors.ssh.schedule import EAGER_ATTEMPTS, Backoff, PollSchedule


def test_pauses_are_short_for_minutes_then_grow_to_a_minute():
    backoff = Backoff()
    eager = [backoff.failed(by_network=True) for _ in range(EAGER_ATTEMPTS)]
    assert eager[0] == 1
    assert set(eager[1:]) == {2}
    assert sum(eager) >= 115
    assert [backoff.failed(by_network=True) for _ in range(6)] == [4, 8, 16, 32, 60, 60]


def test_pauses_begin_anew_after_a_success():
    backoff = Backoff()
    for _ in range(EAGER_ATTEMPTS + 3):
        backoff.failed(by_network=True)
    backoff.succeeded()
    assert [backoff.failed(by_network=True) for _ in range(3)] == [1, 2, 2]


def test_pauses_after_failed_logins_double_up_to_a_minute():
    backoff = Backoff()
    assert [backoff.failed(by_network=False) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]


def due(polls: PollSchedule, now: float, *, unstarted: bool = False) -> float | None:
    return polls.due(now, live=True, unstarted=unstarted)


def test_polls_become_rarer_up_to_the_interval_while_nothing_happens():
    polls, now, pauses = PollSchedule(5, 15), 100.0, []
    polls.polled(now, news=True)
    for _ in range(10):
        pause = due(polls, now)
        assert pause is not None
        pauses.append(pause)
        now += pause
        polls.polled(now, news=False)
    assert pauses[0] == 1
    assert pauses == sorted(pauses)
    assert pauses[-1] == 15


def test_jobs_that_wait_for_their_start_are_polled_at_the_shorter_interval():
    polls = PollSchedule(2, 15)
    for _ in range(20):
        polls.polled(100.0, news=False)
    assert due(polls, 100.0, unstarted=True) == 2


def test_launches_bring_the_next_poll_nearer_and_never_put_it_off():
    polls = PollSchedule(60, 60)
    for _ in range(20):
        polls.polled(100.0, news=False)
    polls.busy(110.0)
    assert due(polls, 110.0) == 1
    for now in (110.3, 110.6, 110.9):
        polls.busy(now)
    assert due(polls, 111.0) == 0


def test_nothing_is_polled_without_attempts_except_on_request():
    polls = PollSchedule(5, 15)
    polls.polled(100.0, news=True)
    assert polls.due(1000.0, live=False, unstarted=False) is None
    polls.ask()
    assert polls.due(1000.0, live=False, unstarted=False) == 0
    assert due(polls, 1000.0) == 0
