"""The deadline of a manager: `--time-limit`, the end of the allocation, and the steps shortly before.

No job is started that would not end in time. At the beginning of the grace period running jobs get a signal, where the
user wants that, and shortly before the end the manager shuts down: another manager continues with the jobs that are
left. All times are measured with a clock that does not jump when the time of day is set.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import time
from functools import partial

from qcg.pilotjob.cluster.base import Allocation
from qcg.pilotjob.cluster.errors import AllocationOver, ClusterError
from qcg.pilotjob.cluster.registry import batch_system
from qcg.pilotjob.common.clock import Clock
from qcg.pilotjob.common.options import Options, grace_period
from qcg.pilotjob.core.can_progress import why_over
from qcg.pilotjob.core.events import Deadline, Warned
from qcg.pilotjob.core.orphaned import host_node_of
from qcg.pilotjob.core.shutdown import KILL_GRACE, Cause
from qcg.pilotjob.executors.hang_safe import call_in_thread
from qcg.pilotjob.manager.manager import Manager

log = logging.getLogger(__name__)

TICK = 0.5
IDLE_TICK = 5.0
"""Seconds between two checks of the time while there are no jobs."""
READ_AGAIN = 120.0
READ_SOON = 30.0
"""Bounds for the seconds between two queries of the end of the allocation, because limits can change: a sixth of
the remaining time."""
QUERY_TIMEOUT = 20.0
"""Seconds that the batch system has to answer."""
SHORT_QUERY_TIMEOUT = 3.0
"""Seconds that the batch system has when the known end is near, and it is queried once more."""
END_MARGIN = 15.0
"""Seconds before the end at which running jobs are ended, because records have to be sent and written. Half of a short
grace period."""
SHORT_KILL_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL when the batch system may kill everything five seconds after its own SIGTERM."""
DRIFT = 1.0
"""Seconds by which the deadline in the core, which is a time of day, may differ before it is set anew."""


class ManagerDeadline:
    """Requests the shutdown of its manager when the time is over, or when none of the remaining jobs can be started."""

    def __init__(self, manager: Manager, options: Options, allocation: Allocation | None, clock: Clock) -> None:
        self._engine = manager.engine
        self._manager = manager
        self._options = options
        self._allocation = allocation
        self._clock = clock
        self._began = clock.steady()
        self._offset = self._began - clock.wall()
        """Offset from the time of day to the steady clock. Fixed, so that it does not follow a clock that is set
        later."""
        self._allocation_end = self._steady(allocation.end) if allocation is not None else None
        self._read_at = self._began
        self._warned = False
        self._quickly = False
        self._last_error = ""
        self._all_read = False
        """No more requests come from a file."""

    def requests_read(self) -> None:
        """No more requests come from a file."""
        self._all_read = True

    async def watch(self) -> None:
        while not self._manager.shutdown.is_requested:
            await self._check()
            await asyncio.sleep(self._until_next_check())

    def end_now(self, why: str) -> None:
        """The batch system ends the allocation within seconds."""
        self._quickly = True
        self._manager.shutdown.request(Cause.TIME, why)

    @property
    def kill_grace(self) -> float:
        """Seconds for running jobs between SIGTERM and SIGKILL, when the time is over."""
        if self._quickly:
            return SHORT_KILL_GRACE
        end = self._end
        margin = END_MARGIN if end is None else _end_margin(self._grace(end))
        return min(KILL_GRACE, margin / 2)

    @property
    def is_end_of_allocation(self) -> bool:
        """The batch system ends jobs that the manager has no time to end."""
        return self._quickly or (self._allocation_end is not None and self._end == self._allocation_end)

    def _steady(self, time_of_day: float | None) -> float | None:
        return None if time_of_day is None else time_of_day + self._offset

    @property
    def _end(self) -> float | None:
        limit = self._options.time_limit
        ends = [self._allocation_end, self._began + limit if limit is not None else None]
        return min((end for end in ends if end is not None), default=None)

    def _grace(self, end: float) -> float:
        return grace_period(self._options.grace, end - self._began)

    def _until_next_check(self) -> float:
        if self._engine.state.unfinished or not self._all_read:
            return TICK
        end = self._end
        left = math.inf if end is None else end - self._grace(end) - self._clock.steady()
        return min(max(left / 2, TICK), IDLE_TICK)

    async def _check(self) -> None:
        if self._clock.steady() - self._read_at >= self._pause():
            await self._read_end(QUERY_TIMEOUT)
        end = self._end
        if end is not None:
            await self._count_down(end)
        self._set_deadline()
        shutdown = self._manager.shutdown
        if (
            self._all_read
            and self._manager.end_when_done.is_set()
            and not (self._engine.gathering or shutdown.is_requested)
        ):
            why = why_over(self._engine.state, self._clock.wall())
            if why is not None:
                shutdown.request(Cause.TIME, why)

    def _pause(self) -> float:
        left = math.inf if self._allocation_end is None else self._allocation_end - self._read_at
        return min(max(left / 6, READ_SOON), READ_AGAIN)

    async def _count_down(self, end: float) -> None:
        grace, now = self._grace(end), self._clock.steady
        if now() < end - grace:
            self._warned = False
            return
        if not self._warned:
            end = await self._read_end_again()
            if now() >= end - grace:
                self._warn(end)
        if now() >= end - _end_margin(grace) and now() >= await self._read_end_again() - _end_margin(grace):
            self._manager.shutdown.request(Cause.TIME, "the time of this manager is over")

    async def _read_end_again(self) -> float:
        """The limit may have been raised since it was read."""
        await self._read_end(SHORT_QUERY_TIMEOUT)
        return math.inf if self._end is None else self._end

    def _set_deadline(self) -> None:
        """The core knows the time of day only, so its deadline moves with a clock that is set."""
        end = self._end
        if end is None:
            deadline = None
        else:
            deadline = self._clock.wall() + (end - self._grace(end) - self._clock.steady())
        before = self._engine.state.deadline
        if (deadline is None) != (before is None) or abs((deadline or 0.0) - (before or 0.0)) > DRIFT:
            self._engine.dispatch(Deadline(deadline))

    def _warn(self, end: float) -> None:
        """No job is started any more, because of the deadline; running jobs get a signal where the user wants that."""
        self._warned = True
        signals = ""
        name = self._options.grace_signal
        if name is not None:
            by_node: dict[str, list[str]] = {}
            for attempt in self._engine.state.attempts.values():
                by_node.setdefault(host_node_of(self._engine.state, attempt), []).append(attempt.id)
            self._engine.dispatch(Warned())
            self._engine.executor.signal(by_node, signal.Signals[name])
            signals = f"; running jobs get {name}"
        left = max(end - self._clock.steady(), 0.0)
        self._engine.notice(f"the time of this manager is over in {left:.0f} s: no job is started any more{signals}")

    async def _read_end(self, patience: float) -> None:
        if self._allocation is None:
            return
        self._read_at = self._clock.steady()
        try:
            end_time = batch_system(self._allocation.ref.system).end_time
            end = await call_in_thread(partial(end_time, os.environ, patience), "end of allocation")
        except AllocationOver as error:
            self.end_now(str(error))
            return
        except (ClusterError, OSError) as error:  # OSError: no thread can be started
            if str(error) != self._last_error:
                self._last_error = str(error)
                log.warning("the end of the allocation cannot be queried: %s", error)
            return
        if self._steady(end) != self._allocation_end:
            log.info("the allocation ends at %s now", "no known time" if end is None else time.ctime(end))
            self._allocation_end = self._steady(end)


def _end_margin(grace: float) -> float:
    return min(END_MARGIN, grace / 2)
