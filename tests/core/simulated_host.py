"""Simulated hosts: each has an agent that connects and disconnects, and a ledger that survives."""

from __future__ import annotations

from qcg.pilotjob.core.events import AttemptEnded, AttemptStarted, Event, HostReported
from qcg.pilotjob.core.records import Attempt
from qcg.pilotjob.host.records import Ended, NodeGrant, Running, Started
from tests.core.core_driver import reported_grant


class SimulatedHost:
    """One node with its agent; its reports are lists of events."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.connected = False
        self.arrived: dict[str, list[NodeGrant]] = {}
        """Launches received and not started yet."""
        self.lanes: dict[str, str] = {}
        """Lane of every attempt that was ever launched."""
        self.live: dict[str, Running] = {}
        self.ranks: dict[str, list[NodeGrant]] = {}
        """Attempts started by another host with processes on this one."""
        self.killed: dict[str, str] = {}
        """Attempts to be ended, with the reason for their end record."""
        self.records: list[Event] = []
        self.acknowledged = 0

    def launch(self, attempt: Attempt) -> None:
        assert self.connected
        self.arrived[attempt.id] = reported_grant(attempt.grant)
        self.lanes[attempt.id] = attempt.lane.id if attempt.lane is not None else attempt.id

    def startable(self) -> list[str]:
        """The attempts that are first in their lane."""
        taken = {self.lanes[attempt_id] for attempt_id in self.live}
        found = []
        for attempt_id in self.arrived:
            if self.lanes[attempt_id] not in taken:
                taken.add(self.lanes[attempt_id])
                found.append(attempt_id)
        return found

    def retract(self, attempt_id: str, now: float) -> None:
        if self.connected and attempt_id in self.arrived and attempt_id not in self.startable():
            self.killed.setdefault(attempt_id, "closed")
            self.end(attempt_id, now, -1, "closed")

    def kill(self, attempt_id: str, reason: str = "cancel") -> None:
        if self.connected and (attempt_id in self.live or attempt_id in self.arrived):
            self.killed.setdefault(attempt_id, reason)

    def start(self, attempt_id: str, now: float) -> None:
        grant = self.arrived.pop(attempt_id)
        self.live[attempt_id] = Running(attempt_id, 100, now, grant)
        self.records.append(AttemptStarted(Started(attempt_id, 100, now, grant)))

    def end(self, attempt_id: str, now: float, exit_code: int, reason: str) -> None:
        """End an attempt, with the reason of the kill if there was one."""
        if attempt_id in self.killed and reason != "lost":
            exit_code, reason = -15, self.killed[attempt_id]
        running = self.live.pop(attempt_id, None)
        pid, started = (running.pid, running.started) if running is not None else (0, 0.0)
        self.arrived.pop(attempt_id, None)
        self.killed.pop(attempt_id, None)
        message = "" if reason in ("exit", "cancel") else f"it was {reason}"
        self.records.append(AttemptEnded(Ended(attempt_id, now, exit_code, reason, message, pid, started)))

    def unreported(self) -> list[Event]:
        """Records that have not been reported yet."""
        unreported = self.records[self.acknowledged :] if self.connected else []
        self.acknowledged += len(unreported)
        return unreported

    def disconnect(self, *, in_flight: bool) -> None:
        """Break the connection; `in_flight`: launches on their way are lost."""
        self.connected = False
        if in_flight:
            self.arrived.clear()

    def reconnect(self, *, everything: bool) -> list[Event]:
        """Connect the agent; it repeats unacknowledged records, or `everything`, and reports its live attempts."""
        self.connected = True
        if everything:
            self.acknowledged = 0
        starting = [Running(attempt_id, 0, 0.0, grant) for attempt_id, grant in self.arrived.items()]
        return [*self.unreported(), HostReported([self.node], [*self.live.values(), *starting])]

    def die(self, now: float, *, tell: bool) -> list[str]:
        """Kill the agent and its attempts; with `tell`, the next agent reports them as lost from its ledger."""
        gone = [*self.live, *self.arrived]
        self.connected = False
        for attempt_id in list(self.live):
            if tell:
                self.end(attempt_id, now, -1, "lost")
        self.live.clear()
        self.ranks.clear()
        self.arrived.clear()
        self.killed.clear()
        return gone
