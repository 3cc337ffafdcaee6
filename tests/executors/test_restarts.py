"""Pauses of the manager before it restarts an agent."""

from __future__ import annotations

from qcg.pilotjob.executors.restarts import LONG_LIFE, LONGEST_PAUSE, MOST_FAILED_STARTS, Restarts


def test_failed_starts_have_growing_pauses_until_they_are_hopeless() -> None:
    restarts = Restarts()
    pauses = [restarts.after_failed_start() for _ in range(MOST_FAILED_STARTS)]
    assert pauses == [0.5, 1.0, 2.0, 4.0, None]
    assert restarts.are_hopeless


def test_an_agent_that_connects_ends_a_row_of_failed_starts() -> None:
    restarts = Restarts()
    for _ in range(3):
        for _ in range(MOST_FAILED_STARTS - 1):
            restarts.after_failed_start()
        restarts.after_life_of(0.1)
    assert not restarts.are_hopeless


def test_agents_that_die_soon_after_they_connect_are_restarted_with_growing_pauses() -> None:
    restarts, seconds, starts = Restarts(), 0.0, 0
    while seconds < 90.0:
        seconds += 0.1 + restarts.after_life_of(0.1)
        starts += 1
    assert starts <= 10
    assert max(restarts.after_life_of(0.1) for _ in range(2000)) == LONGEST_PAUSE


def test_an_agent_that_lived_long_is_restarted_at_once() -> None:
    restarts = Restarts()
    assert [restarts.after_life_of(1.0) for _ in range(4)] == [0.0, 0.5, 1.0, 2.0]
    assert restarts.after_life_of(LONG_LIFE) == 0.0
    assert [restarts.after_life_of(1.0) for _ in range(2)] == [0.0, 0.5]
