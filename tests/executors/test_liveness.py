"""When agents are away, started again, and lost, with a simulated clock."""

from __future__ import annotations

import itertools

import pytest

from qcg.pilotjob.executors.liveness import (
    FIRST_PAUSE,
    FROZEN,
    LONGEST_PAUSE,
    STALLED,
    STUCK,
    AgentLiveness,
    AgentState,
    LivenessTimes,
    Step,
)

TIMES = LivenessTimes(25.0, 600.0)


def ready(now: float = 0.0) -> AgentLiveness:
    agent = AgentLiveness(TIMES, now)
    assert agent.due(now) == [Step.START]
    agent.start_began(now)
    agent.reported(now)
    return agent


def steps(agent: AgentLiveness, until: float, since: float = 0.0) -> list[tuple[float, Step]]:
    """Steps due while an agent is silent, checked twice a second; each restart fails."""
    found = []
    for tick in range(int(since * 2), int(until * 2) + 1):
        for step in agent.due(tick / 2):
            found.append((tick / 2, step))
            if step is Step.START:
                agent.start_began(tick / 2)
                agent.start_ended(tick / 2)
    return found


def test_the_default_times_are_as_documented():
    assert (TIMES.away, TIMES.restart, TIMES.fence) == pytest.approx((6.0, 8.0, 17.5))


@pytest.mark.parametrize("lost", [20.0, 25.0, 300.0])
def test_a_cut_off_node_ends_its_jobs_before_it_is_lost(lost: float):
    times = LivenessTimes(lost)
    assert times.away < times.restart < times.fence < times.lost - 4


def test_a_silent_agent_is_away_then_started_again_then_lost():
    happened = steps(ready(), 25)
    assert happened[0] == (6.0, Step.AWAY)
    assert happened[1] == (8.0, Step.START)
    assert (25.0, Step.LOST) in happened
    assert [step for _, step in happened].count(Step.AWAY) == 1
    assert [step for _, step in happened].count(Step.LOST) == 1


def test_an_agent_with_recent_messages_needs_no_step():
    agent = ready()
    for second in range(100):
        agent.message_received(float(second))
        assert agent.due(float(second)) == []
    assert agent.state is AgentState.READY


def test_an_agent_that_reports_again_is_ready():
    agent = ready()
    steps(agent, 10)
    assert agent.state is AgentState.AWAY
    agent.reported(10.0)
    assert agent.due(10.5) == []
    assert steps(agent, 20, since=11)[0] == (16.0, Step.AWAY)


def test_a_lost_agent_is_restarted_with_growing_pauses_and_accepted_when_it_connects():
    agent = ready()
    steps(agent, 25)
    start_began = [at for at, step in steps(agent, 1000, since=25.5) if step is Step.START]
    pauses = [later - earlier for earlier, later in itertools.pairwise(start_began)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE
    agent.reported(1000.0)
    assert agent.state is AgentState.READY


def test_a_start_under_way_is_given_up_when_it_takes_too_long():
    agent = AgentLiveness(TIMES, 0.0)
    assert agent.due(0.0) == [Step.START]
    agent.start_began(0.0)
    assert agent.due(STUCK - 1) == []
    assert agent.due(STUCK) == [Step.GIVE_UP_START]
    agent.start_ended(STUCK)
    assert agent.due(STUCK + FIRST_PAUSE) == [Step.START]


def test_an_agent_that_never_connects_is_reported_once_and_still_started():
    happened = steps(AgentLiveness(TIMES, 0.0), 1000)
    assert [at for at, step in happened if step is Step.NEVER_CAME] == [600.0]
    assert not any(step in (Step.AWAY, Step.LOST) for _, step in happened)
    assert happened[-1][1] is Step.START
    assert happened[-1][0] > 900


def test_an_agent_of_an_earlier_manager_is_waited_for_before_another_is_started():
    happened = steps(AgentLiveness(TIMES, 0.0, earlier=TIMES), 25)
    assert happened[0] == (8.0, Step.START)
    assert happened[-1][1] in (Step.LOST, Step.START)
    assert (25.0, Step.LOST) in happened


def test_time_in_which_the_manager_was_suspended_does_not_count_as_silence():
    agent = ready()
    agent.restart_silence(100.0)
    assert agent.due(100.0) == []
    assert agent.due(106.0) == [Step.AWAY]


def test_an_agent_past_its_fence_is_hung_and_replaced_at_once():
    agent = ready()
    assert not agent.is_hung(1000.0)
    happened = steps(agent, 25)
    assert (17.5, Step.START) in happened
    assert not agent.is_hung(17.0)
    assert agent.is_hung(17.5)
    agent.reported(30.0)
    assert not agent.is_hung(100.0)


def test_an_inactive_agent_is_replaced_after_a_delay():
    agent = ready()
    assert agent.replacement_delay(8.0) is None
    steps(agent, 8)
    assert agent.replacement_delay(8.0) == FROZEN
    assert agent.replacement_delay(17.5 - FROZEN) == FROZEN
    assert agent.replacement_delay(17.5 - FROZEN + 0.1) is None
    assert agent.replacement_delay(17.5) == 0.0
    assert AgentLiveness(TIMES, 0.0).replacement_delay(599.0) is None


def test_an_agent_with_heartbeats_only_is_away_and_neither_replaced_nor_lost():
    agent = ready()
    found = []
    for second in range(200):
        agent.heartbeat_received(float(second))
        found += agent.due(float(second))
        assert not agent.ignores_heartbeats(float(second))
    assert found == [Step.AWAY]
    agent.reported(200.0)
    assert agent.state is AgentState.READY


def test_missing_heartbeats_count_as_silence():
    agent = ready()
    agent.due(10.0)
    agent.heartbeat_received(20.0)
    happened = steps(agent, 60, since=20.5)
    assert happened[0] == (28.0, Step.START)
    assert (45.0, Step.LOST) in happened
    assert agent.ignores_heartbeats(45.0)


def test_heartbeats_alone_do_not_count_forever():
    agent = ready()
    assert not agent.ignores_heartbeats(STALLED - 1)
    assert agent.ignores_heartbeats(STALLED)


def test_heartbeats_are_ignored_after_the_fence():
    agent = ready()
    steps(agent, 17)
    assert not agent.ignores_heartbeats(17.0)
    assert agent.ignores_heartbeats(TIMES.fence)


def test_an_agent_that_never_connected_is_not_hung():
    agent = AgentLiveness(TIMES, 0.0)
    assert not agent.is_hung(599.0)


def test_an_agent_that_has_exited_is_not_expected():
    agent = ready()
    agent.exited()
    assert steps(agent, 1000) == []


def test_longer_times_of_an_earlier_manager_apply_until_the_agent_reports():
    longer = LivenessTimes(100.0, 600.0)
    happened = steps(AgentLiveness(TIMES, 0.0, earlier=longer), 150)
    assert [at for at, step in happened if step is Step.LOST] == [100.0]
    assert min(at for at, step in happened if step is Step.START) == 8.0
    agent = AgentLiveness(TIMES, 0.0, earlier=longer)
    agent.reported(10.0)
    assert [at for at, step in steps(agent, 150, since=10) if step is Step.LOST] == [35.0]
