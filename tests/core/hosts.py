"""Pretended hosts: each has an agent that comes and goes, and remembers on its disk what it has started."""

from __future__ import annotations

from qcg.pilotjob.core.events import AgentReported, Event, RunEnded, RunStarted
from qcg.pilotjob.core.records import Run
from qcg.pilotjob.host.records import Ended, NodeGrant, Running, Started
from tests.core.desk import told


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

    def launch(self, run: Run) -> None:
        assert self.connected
        self.arrived[run.id] = told(run.grant)
        self.lanes[run.id] = run.lane.id if run.lane is not None else run.id

    def startable(self) -> list[str]:
        """Those that stand behind nobody."""
        taken = {self.lanes[run_id] for run_id in self.live}
        found = []
        for run_id in self.arrived:
            if self.lanes[run_id] not in taken:
                taken.add(self.lanes[run_id])
                found.append(run_id)
        return found

    def recall(self, run_id: str, now: float) -> None:
        if self.connected and run_id in self.arrived and run_id not in self.startable():
            self.killed.setdefault(run_id, "closed")
            self.end(run_id, now, -1, "closed")

    def kill(self, run_id: str, reason: str = "cancel") -> None:
        if self.connected and (run_id in self.live or run_id in self.arrived):
            self.killed.setdefault(run_id, reason)

    def start(self, run_id: str, now: float) -> None:
        grant = self.arrived.pop(run_id)
        self.live[run_id] = Running(run_id, 100, now, grant)
        self.records.append(RunStarted(Started(run_id, 100, now, grant)))

    def end(self, run_id: str, now: float, exit_code: int, reason: str) -> None:
        """It ends as it would; or because of the kill, when there was one."""
        if run_id in self.killed and reason != "lost":
            exit_code, reason = -15, self.killed[run_id]
        running = self.live.pop(run_id, None)
        pid, started = (running.pid, running.started) if running is not None else (0, 0.0)
        self.arrived.pop(run_id, None)
        self.killed.pop(run_id, None)
        message = "" if reason in ("exit", "cancel") else f"it was {reason}"
        self.records.append(RunEnded(Ended(run_id, now, exit_code, reason, message, pid, started)))

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
        starting = [Running(run_id, 0, 0.0, grant) for run_id, grant in self.arrived.items()]
        return [*self.news(), AgentReported([self.node], [*self.live.values(), *starting])]

    def die(self, now: float, *, tell: bool) -> list[str]:
        """The agent and all it runs are gone; the next agent finds that out from its disk, or nobody does."""
        gone = [*self.live, *self.arrived]
        self.connected = False
        for run_id in list(self.live):
            if tell:
                self.end(run_id, now, -1, "lost")
        self.live.clear()
        self.ranks.clear()
        self.arrived.clear()
        self.killed.clear()
        return gone
