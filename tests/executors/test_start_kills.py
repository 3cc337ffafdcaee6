"""Agents that end when the command that started them is killed."""

from __future__ import annotations

from qcg.pilotjob.executors.start_kills import AFTER_KILL, StartKills


def test_a_start_command_is_kept_after_two_agents_that_ended_with_it():
    kills = StartKills()
    for now, found in ((10.0, False), (30.0, True)):
        assert kills.may_kill(["n1", "n2"])
        kills.killed(["n1", "n2"], now)
        assert kills.restarted("n1", now + AFTER_KILL) is found
    assert not kills.may_kill(["n1", "n2"])
    assert kills.may_kill(["n2"])


def test_an_agent_that_was_active_after_the_kill_did_not_end_with_it():
    kills = StartKills()
    for now in (10.0, 30.0, 50.0):
        kills.killed(["n1"], now)
        assert not kills.restarted("n1", now + AFTER_KILL + 0.1)
    assert kills.may_kill(["n1"])


def test_an_agent_whose_start_command_was_not_killed_did_not_end_with_it():
    kills = StartKills()
    kills.killed(["n1"], 10.0)
    assert not kills.restarted("n1", 10.0)
    for _ in range(3):
        assert not kills.restarted("n1", 10.0), "it was started again since"
    assert kills.may_kill(["n1"])
