"""The end of a manager's time, which comes before the end of its jobs: with the allocation, or when it was told so.

Nothing is started that would not be done in time. A while before the end running jobs get a signal, where that is
wanted, and shortly before it they are ended and wait again: another manager goes on with them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import time

from qcg.pilotjob.cluster.errors import AllocationOver, ClusterError
from qcg.pilotjob.cluster.slurm import Allocation, find_end
from qcg.pilotjob.core.displaced import node_of
from qcg.pilotjob.core.events import Deadline, NodesLost, Suspend, Warned
from qcg.pilotjob.core.outlook import why_over
from qcg.pilotjob.executors.supervision import Supervision
from qcg.pilotjob.interfaces.pilot import Pilot
from qcg.pilotjob.options import Options

log = logging.getLogger(__name__)

TICK = 0.5
SELDOM = 5.0
"""Seconds between two looks at the time while no job needs any."""
READ_AGAIN = 120.0
READ_SOON = 30.0
"""Seconds between two questions when the allocation ends, for limits are changed: a sixth of what is left, and not
more or less than these."""
PATIENCE = 20.0
"""Seconds for the controller to answer then."""
SHORT_PATIENCE = 3.0
"""The same when the end is near as far as is known, and it is asked once more."""
GRACE = 60.0
LARGEST_PART = 0.1
"""Of all the time there is, for a grace that nobody has chosen."""
LAST = 15.0
"""Seconds before the end at which what still runs is ended: it takes a while until all is told and written. Half of a
grace that is short."""
KILL_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL then."""
SHORT_KILL_GRACE = 2.0
"""The same when it has to be quick: after its own SIGTERM, Slurm may wait five seconds until it kills everything."""
ENDING = 4.0
"""Seconds that agents have to end, besides."""


class Closing:
    def __init__(self, pilot: Pilot, options: Options, allocation: Allocation | None) -> None:
        self._engine = pilot.engine
        self._pilot = pilot
        self._options = options
        self._allocation = allocation
        self._began = time.time()
        self._allocation_end = allocation.end if allocation is not None else None
        self._read_at = self._began
        self._warned = False
        self._quickly = False
        self._said = ""
        self.all_read = False
        """No more requests come from a file."""
        self.over = asyncio.Event()
        """The time is over, or nothing can be done with what is left of it."""
        self.why = ""
        """A sentence, once it is."""

    async def watch(self) -> None:
        while not self.over.is_set():
            await self._look()
            await asyncio.sleep(self._until_next_look())

    def _until_next_look(self) -> float:
        if self._engine.state.unfinished or not self.all_read:
            return TICK
        end = self._end
        left = math.inf if end is None else end - self._grace(end) - time.time()
        return min(max(left / 2, TICK), SELDOM)

    def now(self, why: str) -> None:
        """Somebody else ends everything very soon."""
        self._quickly = True
        self._close(why)

    async def carry_out(self, agents: Supervision) -> None:
        """End what runs, so that it waits for another manager, and the agents."""
        engine = self._engine
        engine.executor.exit_reason = "closed"
        engine.dispatch(Suspend(self.why))
        # Before anything else: whatever happens now, the next manager knows that these runs are to be run again.
        engine.try_to_commit()
        engine.executor.flush()
        end = self._end
        last = LAST if end is None else _last(self._grace(end))
        grace = SHORT_KILL_GRACE if self._quickly else min(KILL_GRACE, last / 2)
        ending = asyncio.ensure_future(agents.end(grace))
        # Where nobody else ends the jobs, they have ended when the agents say so.
        await asyncio.wait({ending}, timeout=grace + ENDING if self._ends_with_allocation else None)
        if not ending.done():
            log.warning("not all agents have said goodbye; their jobs end with the allocation")
            ending.cancel()
        if engine.state.runs:
            engine.dispatch(NodesLost([spec.name for spec in engine.state.nodes], self.why))

    @property
    def _ends_with_allocation(self) -> bool:
        return self._quickly or (self._allocation_end is not None and self._end == self._allocation_end)

    @property
    def _end(self) -> float | None:
        limit = self._options.time_limit
        ends = [self._allocation_end, self._began + limit if limit is not None else None]
        return min((end for end in ends if end is not None), default=None)

    def _grace(self, end: float) -> float:
        if self._options.grace is not None:
            return self._options.grace
        return min(GRACE, LARGEST_PART * (end - self._began))

    async def _look(self) -> None:
        if time.time() - self._read_at >= self._pause():
            await self._read_end(PATIENCE)
        end = self._end
        if end is not None:
            await self._count_down(end)
        self._set_deadline()
        if self.all_read and self._pilot.end_when_done.is_set() and not (self._engine.gathering or self.over.is_set()):
            why = why_over(self._engine.state, time.time())
            if why is not None:
                self._close(why)

    def _pause(self) -> float:
        left = math.inf if self._allocation_end is None else self._allocation_end - self._read_at
        return min(max(left / 6, READ_SOON), READ_AGAIN)

    async def _count_down(self, end: float) -> None:
        grace = self._grace(end)
        if time.time() < end - grace:
            self._warned = False
            return
        if not self._warned:
            end = await self._read_end_again()
            if time.time() >= end - grace:
                self._warn(end)
        if time.time() >= end - _last(grace) and time.time() >= await self._read_end_again() - _last(grace):
            self._close("the time of this manager is over")

    async def _read_end_again(self) -> float:
        """The limit may have been raised since it was read."""
        await self._read_end(SHORT_PATIENCE)
        return math.inf if self._end is None else self._end

    def _set_deadline(self) -> None:
        end = self._end
        deadline = None if end is None else end - self._grace(end)
        if deadline != self._engine.state.deadline:
            self._engine.dispatch(Deadline(deadline))

    def _warn(self, end: float) -> None:
        """No job is started any more, because of the deadline; those that run are told, where that is wanted."""
        self._warned = True
        told = ""
        name = self._options.grace_signal
        if name is not None:
            by_node: dict[str, list[str]] = {}
            for run in self._engine.state.runs.values():
                by_node.setdefault(node_of(self._engine.state, run), []).append(run.id)
            self._engine.dispatch(Warned())
            self._engine.executor.signal(by_node, signal.Signals[name])
            told = f"; those that run get {name}"
        left = max(end - time.time(), 0.0)
        self._engine.notice(f"the time of this manager is over in {left:.0f} s: no job is started any more{told}")

    def _close(self, why: str) -> None:
        if not self.over.is_set():
            self.why = why
            self.over.set()

    async def _read_end(self, patience: float) -> None:
        if self._allocation is None:
            return
        self._read_at = time.time()
        try:
            end = await asyncio.get_running_loop().run_in_executor(None, find_end, os.environ, patience)
        except AllocationOver as error:
            self.now(str(error))
            return
        except ClusterError as error:
            if str(error) != self._said:
                self._said = str(error)
                log.warning("when the allocation ends cannot be asked: %s", error)
            return
        if end != self._allocation_end:
            log.info("the allocation ends at %s now", "no known time" if end is None else time.ctime(end))
            self._allocation_end = end


def _last(grace: float) -> float:
    return min(LAST, grace / 2)
