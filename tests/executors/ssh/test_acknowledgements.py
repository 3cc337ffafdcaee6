"""Acknowledgements of a manager to a remote host."""

from __future__ import annotations

from qcg.pilotjob.executors.ssh.acknowledgements import INTERVAL, Acknowledgements
from qcg.pilotjob.executors.ssh.record_flow import NEAR


def test_records_are_acknowledged_once_they_are_stored():
    acks = Acknowledgements({"wizard": 3})
    assert acks.pause(100.0) is None
    assert not acks.stored("wizard", 3)
    assert acks.stored("wizard", 5)
    assert acks.pause(100.0) == 0.0
    assert acks.take(100.0) == {"wizard": 5}
    assert acks.pause(100.0) is None
    acks.stored("wizard", 6)
    assert acks.pause(100.0) == INTERVAL
    assert acks.has_all({"wizard": 6})
    assert not acks.has_all({"wizard": 7})


def test_records_of_this_side_are_not_acknowledged_to_the_host():
    acks = Acknowledgements({})
    assert acks.stored(NEAR, 1)
    assert acks.pause(100.0) is None
    assert acks.take(100.0) == {}
    assert acks.has_all({NEAR: 1})


def test_a_message_is_new_once():
    acks = Acknowledgements({})
    assert acks.new_messages([[10, "1.1", 0.0, "one"], [20, "1.1", 0.0, "two"]]) == [("1.1", "one"), ("1.1", "two")]
    assert acks.new_messages([[10, "1.1", 0.0, "one"], [30, "2.1", 0.0, "three"]]) == [("2.1", "three")]
    assert acks.take(100.0) == {"messages": 30}
