"""Copies for the jobs of one host in one direction: one batch at a time, repeated when it fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from qcg.pilotjob.executors.hang_safe import reraise_task_error
from qcg.pilotjob.executors.ssh.errors import ConnectionProblem
from qcg.pilotjob.executors.ssh.job_files import ConnectedHost

log = logging.getLogger(__name__)

MOST_IN_BATCH = 200
"""Most jobs whose files one command copies."""
MOST_FAILURES = 5
"""Failures in a row after which a batch is given up. A host that cannot be reached does not count."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between two attempts to copy a batch."""

T = TypeVar("T")


class CopyLane(Generic[T]):
    """Jobs wait here until their files are copied or given up, so that no failure can lose one."""

    def __init__(
        self,
        copy: Callable[[ConnectedHost, list[T]], Coroutine[Any, Any, None]],
        give_up: Callable[[ConnectedHost, list[T], str], None],
    ) -> None:
        """`copy`: copies the files of a batch; raises ConnectionProblem when it is to be repeated. `give_up`: gets a
        batch that has failed too often, and a clause that says why."""
        self._copy = copy
        self._give_up = give_up
        self._host: ConnectedHost | None = None
        self._waiting: list[T] = []
        self._task: asyncio.Future[None] | None = None
        self._reconnected = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    @property
    def waiting(self) -> Sequence[T]:
        """The jobs whose files are not copied."""
        return self._waiting

    def add(self, jobs: Sequence[T]) -> None:
        self._waiting += jobs
        self._begin()

    def connected(self, host: ConnectedHost) -> None:
        self._host = host
        self._reconnected.set()
        self._begin()

    def disconnected(self) -> None:
        """The channel is lost. A copy that is under way may still succeed over its own connection."""
        self._host = None

    def clear(self) -> None:
        """Forget all jobs, and end the copy that is under way."""
        self.close()
        self._waiting = []

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _begin(self) -> None:
        if self._host is not None and self._waiting and (self._task is None or self._task.done()):
            self._task = asyncio.ensure_future(self._run())
            self._task.add_done_callback(reraise_task_error)

    async def _run(self) -> None:
        failures, pause = 0, FIRST_PAUSE
        batch = self._waiting[:MOST_IN_BATCH]
        while batch and (host := self._host) is not None:
            self._reconnected.clear()
            try:
                await self._copy(host, batch)
            except (ConnectionProblem, OSError) as problem:
                if self._host is not host:
                    continue  # it belonged to a connection that is lost; the batch is copied over the next one
                failures += not (isinstance(problem, ConnectionProblem) and problem.by_network)
                if failures < MOST_FAILURES:
                    log.warning("%s; files are copied again in %g s", problem, pause)
                    with suppress(asyncio.TimeoutError, TimeoutError):
                        await asyncio.wait_for(self._reconnected.wait(), pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
                    continue
                log.warning("%s; the copy was given up after %d failures", problem, failures)
                self._give_up(host, batch, str(problem))
            del self._waiting[: len(batch)]
            batch = self._waiting[:MOST_IN_BATCH]
            failures, pause = 0, FIRST_PAUSE
