"""Failures in groups of the same reason."""

from __future__ import annotations

import re
from typing import NamedTuple

from qcg.pilotjob.journal.end_causes import message_of_end

MOST_KEPT = 200
"""Groups that are counted on their own. Failures for further reasons share one group."""
LONGEST = 400
"""Characters of a message by which failures are compared."""
OTHER = "other reasons"

_EXIT = r"exit code \d+"
_SIGNAL = r"ended by signal \d+"
_VARIABLE = r"'[^']*'|\"[^\"]*\"|/[^\s,;:]+|\d+"
"""Parts that differ between messages of the same reason: quoted names, paths and numbers."""
_WORDS = (
    (r"wall time|time limit", "timeout"),
    (r"memory", "memory"),
    (r"\blost\b|no record of it|was not recorded", "lost"),
)


class FailureGroup(NamedTuple):
    reason: str
    """`exit`, `signal`, `timeout`, `memory`, `lost` or `other`."""
    message: str
    """The message of the example."""
    example: tuple[int, int]
    """Number and position of the first job or iteration that failed."""
    number: int


class FailureGroups:
    """Counts failures by their messages. The number of groups is bounded, whatever the messages are."""

    def __init__(self) -> None:
        self._groups: dict[str, FailureGroup] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, message: str, example: tuple[int, int], number: int = 1) -> None:
        key = key_of(message)
        found = self._groups.get(key)
        if found is None and len(self._groups) >= MOST_KEPT:
            key, message = OTHER, OTHER
            found = self._groups.get(key)
        if found is None:
            found = FailureGroup(reason_of(message), message, example, 0)
        self._groups[key] = found._replace(number=found.number + number, example=min(found.example, example))

    def largest(self, most: int) -> list[FailureGroup]:
        return sorted(self._groups.values(), key=lambda group: -group.number)[:most]


def key_of(message: str) -> str:
    """The common part of messages of the same reason."""
    message = message_of_end(message[:LONGEST])
    if re.match(_EXIT, message) or re.match(_SIGNAL, message):
        return message
    return re.sub(_VARIABLE, "#", message)


def reason_of(message: str) -> str:
    """The reason as a word for programs."""
    if re.match(_EXIT, message):
        return "exit"
    if re.match(_SIGNAL, message):
        return "signal"
    return next((word for pattern, word in _WORDS if re.search(pattern, message)), "other")
