"""Messages of jobs to the manager: stored first, so that they outlive every connection, and delivered in order.

    .service/messages           one JSON array a line: id of the attempt, time, text
    .service/messages.acked     the number of bytes that the manager has

The number of a message is the position of its end in the file.
"""

import contextlib
import json
import os
from typing import Any, List

from qcg.pilotjob.host.remote.files import append_lines
from qcg.pilotjob.host.remote.layout import Layout
from qcg.pilotjob.host.remote.ledger_view import read_acked, write_acked

MESSAGES = "messages"
"""Name under which messages are acknowledged, beside the names of ledgers."""


def store(layout: Layout, id: str, at: float, text: str) -> None:
    """Raises OSError."""
    append_lines(layout.messages, (json.dumps([id, at, text]) + "\n").encode("ascii"))


class Messages:
    """The messages of a run, read by a command or by a channel."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._taken = -1
        """Position up to which `take` has returned messages; -1: none, so it begins with what is not acknowledged."""

    def unacknowledged(self) -> List[Any]:
        """All messages that the manager does not have: number, id, time, text. `take` does not repeat them."""
        found = self._read(read_acked(self._layout, MESSAGES))
        self._taken = found[-1][0] if found else read_acked(self._layout, MESSAGES)
        return found

    def take(self) -> List[Any]:
        """The messages since the last call."""
        if self._taken < 0:
            return self.unacknowledged()
        found = self._read(self._taken)
        if found:
            self._taken = found[-1][0]
        return found

    def acknowledge(self, number: int) -> None:
        if number > 0:
            write_acked(self._layout, MESSAGES, number)

    def _read(self, start: int) -> List[Any]:
        try:
            if os.stat(self._layout.messages).st_size <= start:
                return []
            with open(self._layout.messages, "rb") as file:
                file.seek(start)
                content = file.read()
        except OSError:
            return []  # records must get through, even if messages cannot be read
        found = []
        for line in content[: content.rfind(b"\n") + 1].splitlines(keepends=True):
            start += len(line)
            with contextlib.suppress(ValueError):
                id, at, text = json.loads(line.decode("ascii", "replace"))
                found.append([start, id, at, text])
        return found
