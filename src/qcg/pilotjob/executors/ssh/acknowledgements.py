"""Acknowledgements to one host: of its records, by ledger, and of messages of its jobs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from qcg.pilotjob.executors.ssh.record_flow import NEAR
from qcg.pilotjob.host.remote.messages import MESSAGES

INTERVAL = 0.25
"""Seconds between two acknowledgements on a channel."""


class Acknowledgements:
    """The numbers to acknowledge. A host repeats everything that is not acknowledged."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        """`numbers`: by ledger, the last record that is in the journal."""
        self._numbers = dict(numbers)
        self._last_message = 0
        self._sent_at = 0.0
        self._is_due = False

    def ledgers(self) -> dict[str, int]:
        """The numbers of the ledgers of the host."""
        return {ledger: number for ledger, number in self._numbers.items() if ledger != NEAR}

    def stored(self, ledger: str, number: int) -> bool:
        """The journal has the records up to this number. Returns whether the number has grown."""
        if number <= self._numbers.get(ledger, 0):
            return False
        self._numbers[ledger] = number
        self._is_due = self._is_due or ledger != NEAR
        return True

    def has_all(self, seen: Mapping[str, int]) -> bool:
        """Whether the journal has all records up to these numbers."""
        return all(self._numbers.get(ledger, 0) >= number for ledger, number in seen.items())

    def new_messages(self, messages: Sequence[Any]) -> list[tuple[str, str]]:
        """The new messages, as attempt id and text; they are acknowledged with the next request."""
        found = []
        for number, id, _, text in messages:
            if isinstance(number, int) and number > self._last_message:
                self._last_message = number
                self._is_due = True
                found.append((str(id), str(text)))
        return found

    def pause(self, now: float) -> float | None:
        """Seconds until something has to be acknowledged over a channel; None: nothing has."""
        return max(0.0, self._sent_at + INTERVAL - now) if self._is_due else None

    def take(self, now: float) -> dict[str, int]:
        """The numbers that the next request acknowledges."""
        self._is_due = False
        self._sent_at = now
        messages = {MESSAGES: self._last_message} if self._last_message else {}
        return {**self.ledgers(), **messages}
