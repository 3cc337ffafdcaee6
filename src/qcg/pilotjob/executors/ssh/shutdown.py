"""The end of the work on one remote host: its attempts end, their records and files arrive, and it is tidied up."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.executors.base import ExecutorObserver
from qcg.pilotjob.executors.ssh.connection import Connection
from qcg.pilotjob.executors.ssh.errors import ConnectionProblem
from qcg.pilotjob.executors.ssh.exchange import HostExchange, never_started
from qcg.pilotjob.executors.ssh.orders import kill_request
from qcg.pilotjob.executors.ssh.transport import RemoteError

LAST_RECORDS = 10.0
"""Seconds in addition to the grace period for the last attempts to end."""
HURRIED_RECORDS = 2.0
"""Seconds for the last attempts to end once they are killed at once."""
LAST_ACKS = 2.0
TIDY_PATIENCE = 10.0


class ClosingLink(ABC):
    """The link to a host, as its shutdown sees it."""

    @property
    @abstractmethod
    def connection(self) -> Connection | None:
        """The connection, while there is one."""

    @abstractmethod
    def retry_now(self) -> None:
        """Try to connect at once, where the next attempt would be later."""

    @abstractmethod
    def order_now(self, request: dict[str, Any]) -> None:
        """Send a request before everything else."""

    @abstractmethod
    def stop_working(self) -> None:
        """Send nothing more over the connection, and keep it open."""

    @abstractmethod
    def mark_closed(self) -> None:
        """Record that nothing of this run is left on the host."""


class HostShutdown:
    def __init__(self, link: ClosingLink, exchange: HostExchange, observer: ExecutorObserver) -> None:
        self._link = link
        self._exchange = exchange
        self._observer = observer
        self._name = exchange.name
        self._reason = ""
        """Why the attempts end; empty before the shutdown."""
        self._hurries = False
        self._give_up_at = 0.0
        """The time of the event loop at which the records of the last attempts are not awaited any longer."""

    def hurry(self) -> None:
        """Kill attempts at once, and wait neither for a connection nor for copies of files. Before the shutdown: as
        soon as it begins."""
        self._hurries = True
        self._give_up_at = min(self._give_up_at, _now() + HURRIED_RECORDS)
        if self._reason and self._exchange.attempts.may_run:
            self._kill(0.0)
        self._exchange.changed.set()

    async def run(self, grace: float, reason: str) -> None:
        """End all attempts, and tidy up. An unreachable host does not keep the manager: a notice says so."""
        exchange = self._exchange
        self._reason = reason
        grace = 0.0 if self._hurries else grace
        unsent = [never_started(id, reason, "") for id in exchange.attempts.give_back()]
        if unsent:
            exchange.flow.report(unsent)
        self._give_up_at = _now() + (HURRIED_RECORDS if self._hurries else grace + LAST_RECORDS)
        await self._end_attempts(grace)
        if exchange.attempts.may_run or exchange.flow.is_holding:
            self._report_remaining()
        elif (connection := self._link.connection) is not None:
            with suppress(asyncio.TimeoutError, TimeoutError, ConnectionProblem, RemoteError, OSError):
                await asyncio.wait_for(self._tidy(connection), TIDY_PATIENCE)
        if unretrieved := exchange.files.unretrieved:
            self._observer.notice(
                f"{self._name}: the logs of {pluralize(unretrieved, 'attempt')} were not retrieved; `qcg-pm cat-log`"
                " shows them as long as the host has them"
            )

    async def _end_attempts(self, grace: float) -> None:
        exchange = self._exchange
        exchange.wake.set()
        self._link.retry_now()
        if exchange.attempts.may_run:
            while self._link.connection is None and self._is_patient:
                await self._wait_for_change()
            if self._link.connection is not None:
                self._kill(0.0 if self._hurries else grace)
        while exchange.attempts.may_run and self._is_patient:
            exchange.polls.ask()
            exchange.wake.set()
            await self._wait_for_change()
        while not self._hurries and (exchange.flow.is_holding or self._copies_files) and self._is_patient:
            await self._wait_for_change()

    @property
    def _is_patient(self) -> bool:
        """Whether the records of the last attempts are still awaited."""
        if self._hurries and self._link.connection is None:
            return False
        return _now() < self._give_up_at

    def _kill(self, grace: float) -> None:
        self._link.order_now(kill_request(self._exchange.attempts.may_run, self._reason, "", grace))

    @property
    def _copies_files(self) -> bool:
        return self._exchange.files.is_busy and self._link.connection is not None

    def _report_remaining(self) -> None:
        """Say why the host stays marked as one with attempts, so that a resumed manager connects to it."""
        if running := len(self._exchange.attempts.may_run):
            self._observer.notice(
                f"{self._name}: the results of {pluralize(running, 'job')} are not known, and some may still be"
                " running; --resume finds them"
            )
        if held := len(self._exchange.flow.held):
            self._observer.notice(
                f"{self._name}: the outputs of {pluralize(held, 'ended job')} were not copied; --resume copies them"
            )

    async def _tidy(self, connection: Connection) -> None:
        """Wait until the last records are acknowledged, and remove what only a running manager needs."""
        with suppress(asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(self._all_acknowledged(), LAST_ACKS)
        self._link.stop_working()
        await self._exchange.send_acks(connection)
        await self._exchange.call_if_admitted(connection, {"do": "remote-tidy", "remove": False})
        if not self._is_acknowledged:
            self._observer.notice(
                f"{self._name}: the last records of this host are not in the registry; --resume reads them"
            )
        elif not self._exchange.files.is_busy:
            self._link.mark_closed()
        await connection.close_shared()

    @property
    def _is_acknowledged(self) -> bool:
        """Whether all records of the host are in the journal."""
        return self._exchange.acks.has_all(self._exchange.flow.seen)

    async def _all_acknowledged(self) -> None:
        while self._exchange.files.is_busy or not self._is_acknowledged:
            await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        self._exchange.changed.clear()
        remaining = self._give_up_at - _now()
        pause = remaining if 0.0 < remaining < 1.0 else 1.0
        with suppress(asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(self._exchange.changed.wait(), pause)


def _now() -> float:
    return asyncio.get_running_loop().time()
