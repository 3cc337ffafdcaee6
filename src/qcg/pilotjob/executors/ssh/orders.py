"""Orders for the attempts of a remote host. Pure."""

from __future__ import annotations

from typing import Any


class Orders:
    """Kills, retracts and signals that wait to be sent."""

    def __init__(self) -> None:
        self.kills: dict[tuple[str, str], list[str]] = {}
        """By reason and message."""
        self.retracts: list[str] = []
        self._requests: list[dict[str, Any]] = []

    def __bool__(self) -> bool:
        return bool(self.kills or self.retracts or self._requests)

    def kill(self, id: str, reason: str, message: str) -> None:
        self.kills.setdefault((reason, message), []).append(id)

    def signal(self, ids: list[str], number: int) -> None:
        self._requests.append({"do": "jobs-kill", "ids": ids, "how": "signal", "signal": number})

    def now(self, request: dict[str, Any]) -> None:
        """Send a request before everything else."""
        self._requests.insert(0, request)

    def add(self, other: Orders) -> None:
        for (reason, message), ids in other.kills.items():
            self.kills.setdefault((reason, message), []).extend(ids)
        self.retracts += other.retracts
        self._requests += other._requests

    def next(self) -> dict[str, Any] | None:
        """The next request; None when there is none."""
        if self._requests:
            return self._requests.pop(0)
        if self.retracts:
            # Before the kills: a launch that waits in a lane would start when the attempt before it is killed.
            ids, self.retracts = self.retracts, []
            return {"do": "jobs-kill", "ids": ids, "how": "retract"}
        while self.kills:
            (reason, message), ids = self.kills.popitem()
            if ids:
                return kill_request(ids, reason, message, None)
        return None


def kill_request(ids: list[str], reason: str, message: str, grace: float | None) -> dict[str, Any]:
    """`grace`: seconds between SIGTERM and SIGKILL; None: as the host does it."""
    request: dict[str, Any] = {"do": "jobs-kill", "ids": ids, "how": "kill", "reason": reason, "message": message}
    return request if grace is None else {**request, "grace": grace}
