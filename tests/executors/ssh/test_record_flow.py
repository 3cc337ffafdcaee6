"""Records on their way to the manager, some of which wait for files."""

from __future__ import annotations

from collections.abc import Sequence

from qcg.pilotjob.executors.base import NumberedRecord
from qcg.pilotjob.executors.ssh.record_flow import RecordFlow
from qcg.pilotjob.host.records import Ended, Record, Started


def ended(id: str) -> Ended:
    return Ended(id, 2.0, 0, "exit", "", 7, 0.0)


class Flow:
    def __init__(self, **acked: int) -> None:
        self.delivered: list[tuple[str, int, str]] = []
        self.flow = RecordFlow("wizard", acked, self._deliver)

    def _deliver(self, host: str, records: Sequence[NumberedRecord]) -> None:
        self.delivered += [(host, record.number, record.body.id) for record in records]

    def arrive(self, first: int, *names: str, held: str = "") -> list[int]:
        records = [Record(number, ended(name)) for number, name in enumerate(names, first)]
        fresh = self.flow.fresh("v", records)
        return [record.number for record in self.flow.arrived("v", fresh, lambda end: end.id == held)]


def test_records_are_delivered_once_under_the_name_of_their_ledger():
    flow = Flow()
    flow.arrive(1, "a", "b")
    flow.arrive(1, "a", "b", "c")
    assert flow.delivered == [("wizard/v", 1, "a"), ("wizard/v", 2, "b"), ("wizard/v", 3, "c")]


def test_records_that_the_journal_has_are_not_delivered_again():
    flow = Flow(v=2)
    flow.arrive(1, "a", "b", "c")
    assert flow.delivered == [("wizard/v", 3, "c")]


def test_a_held_end_is_overtaken_without_being_acknowledged():
    flow = Flow()
    assert flow.arrive(1, "a", "slow", "c", held="slow") == [2]
    assert flow.delivered == [("wizard/v", 1, "a"), ("wizard/@near", 1, "c")]
    flow.arrive(4, "d")
    assert flow.delivered[2:] == [("wizard/@near", 2, "d")]
    assert flow.flow.is_holding
    flow.flow.release("v", 2, ended("slow"))
    assert flow.delivered[3:] == [("wizard/v", 4, "slow")]
    flow.arrive(5, "e")
    assert flow.delivered[4:] == [("wizard/v", 5, "e")]


def test_the_number_of_a_ledger_moves_on_when_the_last_held_end_is_released():
    flow = Flow()
    flow.arrive(1, "one", held="one")
    flow.arrive(2, "two", held="two")
    flow.flow.release("v", 1, ended("one"))
    assert flow.delivered == [("wizard/@near", 1, "one")]
    flow.flow.release("v", 2, ended("two"))
    assert flow.delivered[1:] == [("wizard/v", 2, "two")]


def test_numbers_of_this_side_continue_those_of_an_earlier_manager():
    flow = Flow(**{"@near": 41})
    flow.flow.report([ended("x")])
    assert flow.delivered == [("wizard/@near", 42, "x")]


def test_the_start_of_an_attempt_is_delivered_while_its_end_is_held():
    delivered: list[object] = []
    flow = RecordFlow("wizard", {}, lambda host, records: delivered.extend(record.body for record in records))
    start = Started("a", 7, 1.0, [])
    flow.arrived(
        "v", [Record(1, start), Record(2, ended("a")), Record(3, ended("b")._replace(started=1.0))], lambda end: True
    )
    assert delivered == [start, Started("b", 7, 1.0, [])]
