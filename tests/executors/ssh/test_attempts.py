"""Attempts of a remote host: waiting, sent and live ones."""

from __future__ import annotations

from typing import Any

from qcg.pilotjob.executors.ssh.attempts import RemoteAttempts, evened_out
from qcg.pilotjob.host.records import Ended, Launch, Record, Running, Started

GRANT: list[Any] = [("wizard", (0,), ())]


def launch(id: str, lane: str = "") -> Launch:
    return Launch(id, ["true"], {}, [], "w", None, None, None, None, None, False, GRANT, lane=lane)


def running(id: str, pid: int = 0) -> Running:
    return Running(id, pid, 0.0, GRANT)


def started(id: str) -> Record:
    return Record(1, Started(id, 7, 1.0, GRANT))


def ended(id: str) -> Record:
    return Record(2, Ended(id, 2.0, 0, "exit", "", 7, 1.0))


def ids(attempts: RemoteAttempts) -> list[str]:
    return [one.id for one in attempts.all()]


def take(attempts: RemoteAttempts) -> list[str]:
    return [one.id for one in attempts.take(lambda launch: True)]


def made(*waiting: str) -> RemoteAttempts:
    attempts = RemoteAttempts()
    for id in waiting:
        attempts.add(launch(id))
    return attempts


def test_a_launch_is_live_from_its_arrival_here_to_its_end_there():
    attempts = made("1.1")
    assert ids(attempts) == ["1.1"]
    assert take(attempts) == ["1.1"]
    assert ids(attempts) == ["1.1"]
    attempts.answered(["1.1"])
    assert attempts.has_unstarted
    attempts.recorded([started("1.1")])
    assert attempts.all() == [Running("1.1", 7, 1.0, GRANT)]
    attempts.recorded([ended("1.1")])
    assert attempts.is_empty


def test_launches_without_an_answer_are_sent_again_before_later_ones():
    attempts = made("1.1")
    take(attempts)
    attempts.add(launch("2.1"))
    attempts.connection_lost()
    assert attempts.may_run == ["1.1"]
    assert take(attempts) == ["1.1", "2.1"]


def test_a_launch_that_arrived_before_the_connection_was_lost_is_not_sent_again():
    attempts = made("1.1", "2.1")
    take(attempts)
    attempts.connection_lost()
    attempts.reported([running("1.1", 7)])
    assert take(attempts) == ["2.1"]


def test_an_end_that_overtakes_the_answer_counts():
    attempts = made("1.1")
    take(attempts)
    attempts.recorded([ended("1.1")])
    attempts.answered(["1.1"])
    assert attempts.is_empty


def test_only_launches_that_were_never_sent_are_given_back():
    attempts = made("1.1")
    take(attempts)
    attempts.connection_lost()
    attempts.add(launch("2.1"))
    assert attempts.give_back() == ["2.1"]
    assert ids(attempts) == ["1.1"]
    assert not attempts.drop_unsent("1.1")


def test_a_launch_that_the_next_connection_does_not_find_was_never_sent():
    attempts = made("1.1")
    take(attempts)
    attempts.connection_lost()
    assert not attempts.drop_unsent("1.1")
    attempts.reported([])
    assert attempts.may_run == []
    assert ids(attempts) == ["1.1"], "it is sent again"
    assert attempts.drop_unsent("1.1"), "unless it is cancelled before"


def test_a_host_that_has_lost_an_accepted_attempt_is_noticed():
    attempts = made("1.1", "2.1")
    take(attempts)
    attempts.answered(["1.1"])
    assert [one.id for one in attempts.reported([])] == ["1.1"]
    assert ids(attempts) == ["2.1"]
    assert not attempts.reported([])


def test_launches_that_may_not_go_yet_stay():
    attempts = made("1.1", "2.1")
    assert [one.id for one in attempts.take(lambda launch: launch.id == "2.1")] == ["2.1"]
    assert take(attempts) == ["1.1"]


def test_batches_are_evened_out():
    launches = [launch(f"{number}.1") for number in range(201)]
    batches = evened_out(launches, 100)
    assert [len(batch) for batch in batches] == [67, 67, 67]
    assert [one for batch in batches for one in batch] == launches
    assert evened_out([], 100) == []
    assert [len(batch) for batch in evened_out(launches[:100], 100)] == [100]


def test_only_launches_behind_another_one_may_wait_in_a_lane():
    attempts = RemoteAttempts()
    attempts.add(launch("1.1"))
    attempts.add(launch("2.1", lane="1.1"))
    assert not attempts.may_wait_in_lane("1.1")
    assert attempts.may_wait_in_lane("2.1")
    attempts.take(lambda launch: True)
    assert not attempts.may_wait_in_lane("1.1")
    assert attempts.may_wait_in_lane("sent.by.an.earlier.manager")
