"""The way of records from the ledgers of a host to the manager, in the order of their numbers.

An end that waits for the copy of its outputs must not keep later ones of its ledger, which may be of other jobs. While
one is held, later records are reported under the name of this side's own ledger, `GROUP/@near`. So the journal knows
no number of the far ledger from the held one on, and after a crash the host reports all of them again; records that
the manager had already handled are recognised by their ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from qcg.pilotjob.executors.base import NumberedRecord
from qcg.pilotjob.host.records import Ended, Record, Started

NEAR = "@near"
"""The name of the ledger for records of this side: ends of attempts that were never sent, and overtaking records."""


class RecordFlow:
    def __init__(
        self, group: str, acked: Mapping[str, int], deliver: Callable[[str, Sequence[NumberedRecord]], None]
    ) -> None:
        """`acked`: by ledger, the last number in the journal. `deliver`: gets the host name, and records."""
        self._group = group
        self._deliver = deliver
        self._seen = {ledger: number for ledger, number in acked.items() if ledger != NEAR}
        self._near = acked.get(NEAR, 0)
        self._held: dict[str, dict[int, Ended]] = {}
        """By ledger and number, the ends that wait."""
        self._started: set[str] = set()
        """Attempts whose starts were delivered, and whose ends were not."""

    @property
    def seen(self) -> Mapping[str, int]:
        """By ledger, the last number that has arrived."""
        return self._seen

    @property
    def is_holding(self) -> bool:
        return any(self._held.values())

    @property
    def held(self) -> list[Ended]:
        """The ends that wait: to the manager, these attempts still run."""
        return [ended for waiting in self._held.values() for ended in waiting.values()]

    def fresh(self, ledger: str, records: Sequence[NumberedRecord]) -> list[NumberedRecord]:
        """The records that have not arrived before."""
        seen = self._seen.get(ledger, 0)
        return [record for record in records if record.number > seen]

    def arrived(
        self, ledger: str, records: Sequence[NumberedRecord], holds: Callable[[Ended], bool]
    ) -> list[NumberedRecord]:
        """Deliver fresh records. Returns the ends that are held: `release` delivers them later. The starts of these
        attempts are delivered at once."""
        held = []
        passing: list[NumberedRecord] = []
        overtaking: list[Ended | Started] = []
        for record in records:
            body = record.body
            if isinstance(body, Ended) and holds(body):
                held.append(record)
                self._held.setdefault(ledger, {})[record.number] = body
                if body.started and body.id not in self._started:
                    overtaking.append(Started(body.id, body.pid, body.started, body.grant))
            elif self._held.get(ledger):
                overtaking.append(body)
            else:
                passing.append(record)
                self._note(body)
        if records:
            self._seen[ledger] = max(self._seen.get(ledger, 0), records[-1].number)
        if passing:
            self._deliver(f"{self._group}/{ledger}", passing)
        if overtaking:
            self.report(overtaking)
        return held

    def release(self, ledger: str, number: int, ended: Ended) -> None:
        """Deliver an end that was held."""
        self._held[ledger].pop(number, None)
        if self._held[ledger]:
            self.report([ended])
        else:
            self._note(ended)
            self._deliver(f"{self._group}/{ledger}", [Record(self._seen[ledger], ended)])

    def clear(self) -> None:
        """Drop the ends that are held."""
        self._held = {}
        self._started = set()

    def report(self, bodies: Sequence[Ended | Started]) -> None:
        """Deliver records under the name of this side's own ledger."""
        records = []
        for body in bodies:
            self._near += 1
            self._note(body)
            records.append(Record(self._near, body))
        self._deliver(f"{self._group}/{NEAR}", records)

    def _note(self, body: Ended | Started) -> None:
        if isinstance(body, Started):
            self._started.add(body.id)
        else:
            self._started.discard(body.id)
