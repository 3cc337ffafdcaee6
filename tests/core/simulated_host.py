"""Pretended hosts: each has an agent that comes and goes, and remembers on its disk what it has started."""

from __future__ import annotations

from qcg.pilotjob.core.events import AgentReported, AttemptEnded, AttemptStarted, Event
from qcg.pilotjob.core.records import Attempt
from qcg.pilotjob.host.records import Ended, NodeGrant, Running, Started
from tests.core.core_driver import told


class Host:
    """One node with its agent. What it says is a list of events, for whoever listens."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.connected = False
        self.arrived: dict[str, list[NodeGrant]] = {}
        """Launches that were received and not started yet."""
        self.lanes: dict[str, str] = {}
        """Of all that were ever launched."""
        self.live: dict[str, Running] = {}
        self.ranks: dict[str, list[NodeGrant]] = {}
        """Runs that another host has started, and that have processes here."""
        self.killed: dict[str, str] = {}
        """What is to end, and what the record will say."""
        self.records: list[Event] = []
        self.acknowledged = 0

    def launch(self, attempt: Attempt) -> None:
        assert self.connected
        self.arrived[attempt.id] = told(attempt.grant)
        self.lanes[attempt.id] = attempt.lane.id if attempt.lane is not None else attempt.id

    def startable(self) -> list[str]:
        """Those that stand behind nobody."""
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
        """It ends as it would; or because of the kill, when there was one."""
        if attempt_id in self.killed and reason != "lost":
            exit_code, reason = -15, self.killed[attempt_id]
        running = self.live.pop(attempt_id, None)
        pid, started = (running.pid, running.started) if running is not None else (0, 0.0)
        self.arrived.pop(attempt_id, None)
        self.killed.pop(attempt_id, None)
        message = "" if reason in ("exit", "cancel") else f"it was {reason}"
        self.records.append(AttemptEnded(Ended(attempt_id, now, exit_code, reason, message, pid, started)))

    def news(self) -> list[Event]:
        """Records that nobody has heard yet."""
        news = self.records[self.acknowledged :] if self.connected else []
        self.acknowledged += len(news)
        return news

    def go_silent(self, *, in_flight: bool) -> None:
        """The connection breaks; launches on their way arrive all the same, or never do."""
        self.connected = False
        if in_flight:
            self.arrived.clear()

    def come_back(self, *, everything: bool) -> list[Event]:
        """The agent connects; it repeats what was not acknowledged, or all it ever said, and reports."""
        self.connected = True
        if everything:
            self.acknowledged = 0
        starting = [Running(attempt_id, 0, 0.0, grant) for attempt_id, grant in self.arrived.items()]
        return [*self.news(), AgentReported([self.node], [*self.live.values(), *starting])]

    def die(self, now: float, *, tell: bool) -> list[str]:
        """The agent and all it runs are gone; the next agent finds that out from its disk, or nobody does."""
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
