"""Orders for the attempts of a remote host. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Orders:
    """Kills, retracts and signals that wait to be sent."""

    def __init__(self) -> None:
        self._kills: dict[tuple[str, str], list[str]] = {}
        """By reason and message."""
        self._retracts: list[str] = []
        self._requests: list[dict[str, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._kills or self._retracts or self._requests)

    def kill(self, id: str, reason: str, message: str) -> None:
        self._kills.setdefault((reason, message), []).append(id)

    def retract(self, ids: list[str]) -> None:
        self._retracts += ids

    def withdraw_kills(self, is_withdrawn: Callable[[str], bool]) -> list[tuple[str, str, str]]:
        """Remove the kills of attempts for which this is true. Returns id, reason and message of each."""
        withdrawn = []
        for (reason, message), ids in self._kills.items():
            found = {id for id in ids if is_withdrawn(id)}
            withdrawn += [(id, reason, message) for id in found]
            self._kills[reason, message] = [id for id in ids if id not in found]
        return withdrawn

    def withdraw_retracts(self, is_withdrawn: Callable[[str], bool], is_possible: Callable[[str], bool]) -> set[str]:
        """Remove the retracts of attempts for which `is_withdrawn` is true. Returns the ids of these attempts.

        Retracts of attempts for which `is_possible` is false are removed before, and not returned."""
        possible = [id for id in self._retracts if is_possible(id)]
        withdrawn = {id for id in possible if is_withdrawn(id)}
        self._retracts = [id for id in possible if id not in withdrawn]
        return withdrawn

    def signal(self, ids: list[str], number: int) -> None:
        self._requests.append({"do": "jobs-kill", "ids": ids, "how": "signal", "signal": number})

    def send_first(self, request: dict[str, Any]) -> None:
        """Send a request before all other orders."""
        self._requests.insert(0, request)

    def add(self, other: Orders) -> None:
        for (reason, message), ids in other._kills.items():
            self._kills.setdefault((reason, message), []).extend(ids)
        self._retracts += other._retracts
        self._requests += other._requests

    def next(self) -> dict[str, Any] | None:
        """The next request; None when there is none."""
        if self._requests:
            return self._requests.pop(0)
        if self._retracts:
            # Before the kills: a launch that waits in a lane would start when the attempt before it is killed.
            ids, self._retracts = self._retracts, []
            return {"do": "jobs-kill", "ids": ids, "how": "retract"}
        while self._kills:
            (reason, message), ids = self._kills.popitem()
            if ids:
                return kill_request(ids, reason, message, None)
        return None


def kill_request(ids: list[str], reason: str, message: str, grace: float | None) -> dict[str, Any]:
    """`grace`: seconds between SIGTERM and SIGKILL; None: as the host does it."""
    request: dict[str, Any] = {"do": "jobs-kill", "ids": ids, "how": "kill", "reason": reason, "message": message}
    return request if grace is None else {**request, "grace": grace}
