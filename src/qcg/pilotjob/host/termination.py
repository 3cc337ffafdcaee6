"""Ends the process trees of jobs, and passes signals on to their processes.

Nothing here waits: each step reads /proc and signals the processes that it finds, until a step finds none.
"""

import os
import signal
import time
from typing import Dict, Iterable, List, Optional, Set, Tuple

from qcg.pilotjob.host import process_tree
from qcg.pilotjob.host.ledger import OpenStart

GIVE_UP_AFTER = 30.0
"""Seconds after the first SIGKILL. A process that stays that long hangs in the kernel or belongs to another user."""

LAUNCHER_GRACE = 3.0
"""Seconds for a launcher such as mpirun to end its other processes, also on other nodes, before it is killed itself."""

_SHORTEST_PAUSE = 0.01
_LONGEST_PAUSE = 0.25


def is_first_process(process: process_tree.Process, start: OpenStart) -> bool:
    """Whether this is the process that was started, and not a later one with its pid."""
    # One tick of tolerance, for kernels that round the other way.
    return process.pid == start.pid and start.since - 1 <= process.start_ticks <= start.until + 1


def may_be_killed_from_outside(exit_code: int, start: OpenStart) -> bool:
    """Whether a signal sent to others as well may have ended the job. A launcher of processes on other nodes may
    answer such a signal with any exit code."""
    if not exit_code:
        return False
    return exit_code in (-signal.SIGTERM, -signal.SIGKILL) or exit_code > 128 or len(start.grant) > 1


class Termination:
    """The end of one job's process tree: SIGTERM first, SIGKILL when the grace period is over."""

    def __init__(self, start: OpenStart, kill_at: float) -> None:
        self._start = start
        self.kill_at = kill_at
        self.known: Dict[int, process_tree.Process] = {}
        """Members seen so far. They stay members when their parent is gone."""
        self.has_ranks = False
        """Some members were started by launchers, or could have been."""
        self._interrupted = False
        """A member was signalled while the first process was still running."""

    def has_succeeded_before(self, exit_code: int) -> bool:
        """Whether the job has succeeded by itself before any signal. A failure may be the answer to a signal that a
        batch system has sent, and the success of a launcher to the end of its processes on other nodes."""
        return exit_code == 0 and not self._interrupted and len(self._start.grant) <= 1

    def members(self, snapshot: process_tree.Snapshot) -> Dict[int, process_tree.Process]:
        roots = snapshot.same(list(self.known.values())) + snapshot.marked(self._start.marker)
        leader = snapshot.processes.get(self._start.pid)
        if leader is None or is_first_process(leader, self._start):
            # While a session has members, the kernel gives its number to no other process.
            roots += snapshot.session(self._start.pid)
        return snapshot.with_descendants(roots)

    def find_members(self, snapshot: process_tree.Snapshot) -> Dict[int, process_tree.Process]:
        """The members, from which the next call finds the processes whose parents are gone by then."""
        self.known = self.members(snapshot)
        return self.known

    def kill_by(self, kill_at: float) -> None:
        """Shorten the grace period to end at this time at the latest."""
        self.kill_at = min(self.kill_at, kill_at)

    def signal_members(self, members: Dict[int, process_tree.Process], now: float) -> None:
        """Signal members that were not signalled before, and members whose grace period is over."""
        launchers = process_tree.launchers(members.values())
        self.has_ranks = self.has_ranks or len(launchers) < len(members)
        signalled = (self.known.keys() & members.keys()) - launchers
        if members and not self._interrupted:
            # Not from the snapshot: by now the process may have ended.
            first = process_tree.read_process(self._start.pid)
            self._interrupted = first is not None and is_first_process(first, self._start) and not first.dead
        # Parents first: a shell that saw its child die before its own signal would continue with the next command.
        for process in sorted(members.values(), key=lambda process: (process.start_ticks, process.pid)):
            known = self.known.get(process.pid)
            is_new = known is None or known.start_ticks != process.start_ticks
            if is_new and process.parent in signalled:
                # Its parent started it after SIGTERM, as part of its own clean-up.
                is_new = False
            if process.pid in launchers:
                # A launcher answers SIGTERM by killing its processes, also on other nodes: not before their grace
                # period is over. Killed by SIGKILL, it would leave them running.
                if now >= self.kill_at + LAUNCHER_GRACE:
                    process_tree.send(process, signal.SIGKILL)
                elif now >= self.kill_at or (is_new and not self.has_ranks):
                    process_tree.send(process, signal.SIGTERM)
            elif now >= self.kill_at:
                process_tree.send(process, signal.SIGKILL)
            elif is_new:
                process_tree.send(process, signal.SIGTERM)
                process_tree.send(process, signal.SIGCONT)
        self.known.update(members)


def termination_of_earlier(start: OpenStart, kill_at: float) -> Termination:
    """The end of a job that an earlier process of this host has started."""
    first = process_tree.read_process(start.pid) if start.pid else None
    if first is None or not is_first_process(first, start):
        # By now its pid, and the session with that number, may belong to any other process.
        start = start._replace(pid=-1)
    return Termination(start, kill_at)


class TerminationOfAll(Termination):
    """The end of everything that descends from this process, except for some children."""

    def __init__(self, kill_at: float, spared: Iterable[int] = ()) -> None:
        Termination.__init__(self, OpenStart("", os.getpid(), 0.0, [], 0, 0), kill_at)
        self._spared = spared

    def members(self, snapshot: process_tree.Snapshot) -> Dict[int, process_tree.Process]:
        children = snapshot.children(self._start.pid)
        return snapshot.with_descendants([child for child in children if child.pid not in self._spared])


_SWEEP = "sweep "
"""Before the id, the key of a sweep."""


class Terminations:
    """All process trees that are being ended, by job id. One snapshot of /proc serves them all."""

    def __init__(self) -> None:
        self._terminations: Dict[str, Termination] = {}
        self.sweeping: Set[str] = set()
        """Ids of jobs of other hosts whose processes are being ended here."""
        self._swept: List[str] = []
        self._next_step = 0.0
        self._not_before = 0.0
        self._pause = _SHORTEST_PAUSE

    def __contains__(self, key: str) -> bool:
        return key in self._terminations

    def has_succeeded_before(self, key: str, exit_code: int) -> bool:
        """Whether a job has succeeded by itself before any signal of its termination."""
        return self._terminations[key].has_succeeded_before(exit_code)

    def begin(self, key: str, termination: Termination) -> None:
        self._terminations[key] = termination
        self.step_soon()

    def sweep(self, markers: Dict[str, str], kill_at: float) -> None:
        """End the processes that have these markers, by the ids of their jobs."""
        for id, marker in markers.items():
            self.sweeping.add(id)
            self.begin(_SWEEP + id, Termination(OpenStart(marker, -1, 0.0, [], 0, 0), kill_at))

    def take_swept(self) -> List[str]:
        """Ids passed to `sweep` of which no process is left, since the last call."""
        swept, self._swept = self._swept, []
        return swept

    def remove(self, key: str) -> None:
        del self._terminations[key]
        if key.startswith(_SWEEP):
            self.sweeping.discard(key[len(_SWEEP) :])
            self._swept.append(key[len(_SWEEP) :])

    def kill_by(self, kill_at: float) -> None:
        """Shorten every grace period to end at this time at the latest."""
        for termination in self._terminations.values():
            termination.kill_by(kill_at)
        self.step_soon()

    def step_soon(self) -> None:
        """Something has changed: take the next step at the next opportunity."""
        self._next_step = self._not_before
        self._pause = _SHORTEST_PAUSE

    def next_step(self) -> Optional[float]:
        return self._next_step if self._terminations else None

    def step(self, now: float) -> List[Tuple[str, List[int]]]:
        """Signal the processes that are left. Returns the keys of ended trees, each with the pids that do not end."""
        if not self._terminations or now < self._next_step:
            return []
        began = time.monotonic()
        # A termination may have begun after `now`: without a grace period, it would begin with SIGTERM.
        now = max(now, began)
        snapshot = process_tree.Snapshot()
        over: List[Tuple[str, List[int]]] = []
        claimed: Set[int] = {os.getpid()}
        for key, termination in self._terminations.items():
            members = termination.members(snapshot)
            own = {pid: process for pid, process in members.items() if pid not in claimed}
            claimed.update(own)
            termination.signal_members(own, now)
            if not own:
                over.append((key, []))
            elif now >= termination.kill_at + GIVE_UP_AFTER:
                over.append((key, sorted(own)))
        self._plan_next_step(now, time.monotonic() - began)
        return over

    def _plan_next_step(self, now: float, cost: float) -> None:
        # Two thirds of the time stay free for other work, however many processes there are.
        self._not_before = time.monotonic() + 2 * cost
        next_step = now + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        for termination in self._terminations.values():
            if now < termination.kill_at < next_step:
                next_step = termination.kill_at
        self._next_step = max(next_step, self._not_before)


_FORWARDERS = {b"mpirun", b"mpiexec", b"mpiexec.hydra", b"orterun", b"prterun", b"srun"}
"""Launchers that pass a signal on to the processes they started, on all nodes: the processes would get it twice."""


def send_signal(jobs: Iterable[OpenStart], number: int) -> None:
    """Send a signal to all processes of these jobs that have a handler for it. The signal would end the others."""
    snapshot = process_tree.Snapshot()
    for job in jobs:
        members = Termination(job, 0.0).members(snapshot)
        forwarded: Set[int] = set()
        for process in members.values():
            if process_tree.name_of(process.pid) in _FORWARDERS:
                forwarded.update(snapshot.with_descendants(snapshot.children(process.pid)))
        for process in members.values():
            if process.pid not in forwarded and process_tree.catches(process.pid, number):
                process_tree.send(process, number)
