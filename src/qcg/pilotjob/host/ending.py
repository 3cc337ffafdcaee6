"""Ends process trees without ever waiting: each look at /proc signals what it finds, until a look finds nothing."""

import os
import signal
import time
from typing import Dict, List, Optional, Set, Tuple

from qcg.pilotjob.host import tree
from qcg.pilotjob.host.ledger import Opened

GIVE_UP_AFTER = 30.0
"""Seconds after the first SIGKILL; what stays that long sits in the kernel or belongs to another user."""

LAUNCHER_PATIENCE = 3.0
"""Seconds for a launcher to end the rest of its processes, also on other nodes, before it is killed itself."""

_SHORTEST_PAUSE = 0.01
_LONGEST_PAUSE = 0.25


def is_first_process(process: tree.Process, start: Opened) -> bool:
    """Whether it is the one that was started, not a later one with its pid."""
    # One tick of slack, for kernels that round the other way.
    return process.pid == start.pid and start.since - 1 <= process.began <= start.until + 1


def may_be_ended(exit_code: int, start: Opened) -> bool:
    """By a signal that others got as well: a launcher of processes on other nodes may answer it with any code."""
    if not exit_code:
        return False
    return exit_code in (-signal.SIGTERM, -signal.SIGKILL) or exit_code > 128 or len(start.grant) > 1


class Ending:
    """One job's tree on its way out."""

    def __init__(self, start: Opened, kill_at: float) -> None:
        self._start = start
        self.kill_at = kill_at
        self.known: Dict[int, tree.Process] = {}
        """Members seen so far: still members when their parent is gone."""
        self.has_ranks = False
        """Some of them were started by launchers, or could have been."""

    def members(self, snapshot: tree.Snapshot) -> Dict[int, tree.Process]:
        roots = snapshot.same(list(self.known.values())) + snapshot.marked(self._start.marker)
        leader = snapshot.processes.get(self._start.pid)
        if leader is None or is_first_process(leader, self._start):
            # While a session has members, its number is given to no other process.
            roots += snapshot.session(self._start.pid)
        return snapshot.with_descendants(roots)


class EndingOfAll(Ending):
    """Everything that descends from this process."""

    def __init__(self, kill_at: float) -> None:
        Ending.__init__(self, Opened("", os.getpid(), 0.0, [], 0, 0), kill_at)

    def members(self, snapshot: tree.Snapshot) -> Dict[int, tree.Process]:
        return snapshot.with_descendants(snapshot.children(self._start.pid))


class Endings:
    """All trees that are being ended, by job id; one look serves them all."""

    def __init__(self) -> None:
        self._endings: Dict[str, Ending] = {}
        self._next_look = 0.0
        self._not_before = 0.0
        self._pause = _SHORTEST_PAUSE

    def __contains__(self, key: str) -> bool:
        return key in self._endings

    def begin(self, key: str, ending: Ending) -> None:
        self._endings[key] = ending
        self.hurry()

    def drop(self, key: str) -> None:
        del self._endings[key]

    def kill_by(self, kill_at: float) -> None:
        """Shorten what is left of every grace."""
        for ending in self._endings.values():
            ending.kill_at = min(ending.kill_at, kill_at)
        self.hurry()

    def hurry(self) -> None:
        """Something has changed: look again at the next opportunity."""
        self._next_look = self._not_before
        self._pause = _SHORTEST_PAUSE

    def next_look(self) -> Optional[float]:
        return self._next_look if self._endings else None

    def look(self, now: float) -> List[Tuple[str, List[int]]]:
        """Signal what is there. The keys whose tree is over, each with the pids that would not go."""
        if not self._endings or now < self._next_look:
            return []
        began = time.monotonic()
        snapshot = tree.Snapshot()
        over: List[Tuple[str, List[int]]] = []
        claimed: Set[int] = {os.getpid()}
        for key, ending in self._endings.items():
            members = ending.members(snapshot)
            theirs = {pid: process for pid, process in members.items() if pid not in claimed}
            claimed.update(theirs)
            _signal(ending, theirs, now)
            if not theirs:
                over.append((key, []))
            elif now >= ending.kill_at + GIVE_UP_AFTER:
                over.append((key, sorted(theirs)))
        self._plan(now, time.monotonic() - began)
        return over

    def _plan(self, now: float, cost: float) -> None:
        # Two thirds of the time stay free for other work, however many processes there are.
        self._not_before = time.monotonic() + 2 * cost
        next_look = now + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        for ending in self._endings.values():
            if now < ending.kill_at < next_look:
                next_look = ending.kill_at
        self._next_look = max(next_look, self._not_before)


def _signal(ending: Ending, members: Dict[int, tree.Process], now: float) -> None:
    launchers = tree.launchers(members.values())
    ending.has_ranks = ending.has_ranks or len(launchers) < len(members)
    told = (ending.known.keys() & members.keys()) - launchers
    # Parents first: a shell that saw its child die before its own signal would go on with the next command.
    for process in sorted(members.values(), key=lambda process: (process.began, process.pid)):
        known = ending.known.get(process.pid)
        new = known is None or known.began != process.began
        if new and process.parent in told:
            # It was started after its parent was told to end, by what that does with its grace.
            new = False
        if process.pid in launchers:
            # It answers SIGTERM by killing what it has started, on other nodes too: that comes after their grace.
            # Killed itself, it would leave them running.
            if now >= ending.kill_at + LAUNCHER_PATIENCE:
                tree.send(process, signal.SIGKILL)
            elif now >= ending.kill_at or (new and not ending.has_ranks):
                tree.send(process, signal.SIGTERM)
        elif now >= ending.kill_at:
            tree.send(process, signal.SIGKILL)
        elif new:
            tree.send(process, signal.SIGTERM)
            tree.send(process, signal.SIGCONT)
    ending.known.update(members)
