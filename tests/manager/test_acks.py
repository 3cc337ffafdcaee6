"""Records that agents may forget."""

from __future__ import annotations

from qcg.pilotjob.manager.acks import AckTracker


def test_handled_records_are_settled_once() -> None:
    acknowledging = AckTracker()
    acknowledging.handled("n1", 3)
    acknowledging.handled("n2", 8)
    assert acknowledging.settled(()) == {"n1": 3, "n2": 8}
    assert acknowledging.settled(()) == {}


def test_a_held_end_also_holds_later_records_of_the_same_host() -> None:
    acknowledging = AckTracker()
    acknowledging.handled("n1", 5)
    acknowledging.hold("n1", 4, "7.1")
    acknowledging.handled("n2", 9)
    assert acknowledging.settled({"7.1"}) == {"n1": 3, "n2": 9}
    acknowledging.handled("n1", 6)
    assert acknowledging.settled({"7.1"}) == {}
    assert acknowledging.settled(()) == {"n1": 6}


def test_the_first_of_several_held_records_counts() -> None:
    acknowledging = AckTracker()
    acknowledging.handled("n1", 9)
    acknowledging.hold("n1", 6, "8.1")
    acknowledging.hold("n1", 2, "7.1")
    assert acknowledging.settled({"7.1", "8.1"}) == {"n1": 1}
    assert acknowledging.settled({"8.1"}) == {"n1": 5}
