"""One remote host: keeps a connection, sends launches and orders, and brings back records."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.executors.base import ExecutorObserver, HostState
from qcg.pilotjob.executors.hang_safe import reraise_task_error
from qcg.pilotjob.executors.ssh.attempts import evened_out, in_frames
from qcg.pilotjob.executors.ssh.connection import Connection, Connector
from qcg.pilotjob.executors.ssh.errors import ConnectionProblem
from qcg.pilotjob.executors.ssh.exchange import HostExchange, never_started
from qcg.pilotjob.executors.ssh.job_files import JobFiles
from qcg.pilotjob.executors.ssh.marker import FORGOTTEN, HostMarker
from qcg.pilotjob.executors.ssh.orders import Orders
from qcg.pilotjob.executors.ssh.schedule import Backoff
from qcg.pilotjob.executors.ssh.shutdown import ClosingLink, HostShutdown
from qcg.pilotjob.executors.ssh.transport import RemoteError
from qcg.pilotjob.host.records import EndReason, Launch, Running

log = logging.getLogger(__name__)

MOST_IN_COMMAND = 100
"""Most launches of one jobs-submit in one-shot mode."""
MOST_IN_FRAME = 200
"""Most launches of one frame on a channel: the host answers for each frame, which proves that it is alive."""
MOST_BYTES = 256 << 10
"""Most bytes of the launches of one frame, for slow links."""
MOST_FRAMES = 4
"""Most frames with launches on their way at once."""
STEADY = 10.0
"""Seconds after which a connection counts as one that works: when it is lost, the next one is tried at once."""


class HostLink(ClosingLink):
    """The link to one host, whose only node has the name of the host. Nothing is connected before the first launch."""

    def __init__(
        self,
        connector: Connector,
        acked: Mapping[str, int],
        observer: ExecutorObserver,
        marker: HostMarker,
        files: JobFiles,
    ) -> None:
        """`acked`: by ledger, the last number that is in the journal."""
        self.config = connector.config
        self.name = self.config.name
        self._connector = connector
        self._observer = observer
        self._marker = marker
        self._exchange = HostExchange(self.config, acked, observer, files)
        self._shutdown = HostShutdown(self, self._exchange, observer)
        self._attempts = self._exchange.attempts
        self._acks = self._exchange.acks
        self._files = self._exchange.files
        self._orders = Orders()
        self._backoff = Backoff()
        self._retry = asyncio.Event()
        """Set to end the pause before the next try. Launches and orders do not set it: a try may be a failed login."""
        self._connection: Connection | None = None
        self._task: asyncio.Future[None] | None = None
        self._side_tasks: set[asyncio.Future[None]] = set()
        self._problem: ConnectionProblem | None = None
        self._is_ready = False
        self._is_away = False
        self._has_reported = False
        """The manager knows the attempts of this host."""
        self._submits = 0

    @property
    def connection(self) -> Connection | None:
        """The connection, while there is one."""
        return self._connection if self._is_ready else None

    @property
    def state(self) -> HostState:
        marked = self._marker.state
        return HostState(marked.state, marked.since, marked.address, marked.channel, marked.error)

    # -- for the executor -----------------------------------------------------------------------------------------

    def start(self, *, may_have_attempts: bool) -> None:
        if not may_have_attempts:
            self._report_ready()
        if may_have_attempts or self.config.second_factor == "ask":
            self._begin()

    def send(self, launches: Sequence[Launch], orders: Orders) -> None:
        """Send launches and orders, as soon as there is a connection."""
        for launch in launches:
            self._attempts.add(launch)
        drop = self._attempts.drop_unsent
        ended = [never_started(id, reason, message) for id, reason, message in orders.withdraw_kills(drop)]
        # A manager retracts every attempt that a host reports as unstarted when it connects, also one on its way there.
        unsent = orders.withdraw_retracts(drop, self._attempts.may_wait_in_lane)
        ended += [never_started(id, EndReason.CLOSED, "") for id in unsent]
        if ended:
            asyncio.get_running_loop().call_soon(self._exchange.flow.report, ended)
        if self._is_ready:
            # Otherwise the manager repeats them when it gets the report of this host.
            self._orders.add(orders)
        if launches:
            self._begin()
        self._exchange.wake.set()

    def acknowledge(self, ledger: str, number: int) -> None:
        if self._acks.stored(ledger, number):
            self._exchange.wake_up()

    def poll_soon(self) -> None:
        """Poll the host, for example because a job has sent a message."""
        self._exchange.polls.ask()
        self._exchange.wake.set()

    async def poll(self) -> None:
        """Poll the host, and return when its new records are reported, or the host cannot be reached."""
        connection = self.connection
        if connection is not None:
            with suppress(ConnectionProblem, RemoteError):
                await self._exchange.poll(connection)

    def retry_now(self) -> None:
        """Try to connect at once, where the next attempt would be later."""
        if self._marker.state.state == FORGOTTEN:
            self._begin()
        elif self._task is not None:
            self._retry.set()

    def forget(self) -> None:
        """Stop connecting to this host, and drop the state of its attempts."""
        self.close()
        self._task = None
        self._exchange.forget()
        self._is_away = True
        self._marker.set_or_log(FORGOTTEN)

    def ledgers(self) -> Mapping[str, int]:
        return self._acks.ledgers()

    async def shut_down(self, grace: float, reason: str) -> None:
        """End all attempts, and tidy up. An unreachable host does not keep the manager: a notice says so."""
        if self._task is not None:
            await self._shutdown.run(grace, reason)
            self.close()

    def hurry(self) -> None:
        self._shutdown.hurry()

    def close(self) -> None:
        """Close the connection, and end nothing on the host."""
        for task in [self._task, *self._side_tasks]:
            if task is not None:
                task.cancel()
        self._files.close()
        if self._connection is not None:
            self._connection.close()
        self._is_ready = False

    # -- for the channel ------------------------------------------------------------------------------------------

    def event(self, event: dict[str, Any]) -> None:
        kind = event.get("event")
        if kind == "records":
            self._exchange.records_arrived({str(event["ledger"]): event["records"]})
        elif kind == "notice":
            self._exchange.show(f"{self.name}: {event.get('text', '')}")
        elif kind == "message":
            self._exchange.messages_arrived(
                [[event.get("number"), event.get("id"), event.get("time"), event.get("text")]]
            )

    def ended(self, problem: ConnectionProblem) -> None:
        self._problem = problem
        self._exchange.wake.set()

    # -- for the shutdown -----------------------------------------------------------------------------------------

    def order_now(self, request: dict[str, Any]) -> None:
        self._orders.send_first(request)
        self._exchange.wake.set()

    def stop_working(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def mark_closed(self) -> None:
        self._marker.set_or_log("closed")
        self._connector.forget_uuid()

    # -- the connection -------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._task is None:
            self._retry.clear()
            self._marker.set_or_log("connecting")
            self._task = asyncio.ensure_future(self._run())
            self._task.add_done_callback(reraise_task_error)

    async def _run(self) -> None:
        while True:
            self._problem = None
            connected_at = 0.0
            try:
                self._connection = await self._connector.connect(self)
                await self._take_over(self._connection)
                connected_at = time.monotonic()
                await self._work(self._connection)
            except ConnectionProblem as found:
                problem = found
            except RemoteError as error:
                problem = ConnectionProblem(f"{self.name}: {error}")
            self._lost(problem)
            now = time.monotonic()
            if connected_at and now - connected_at > STEADY:
                self._backoff.succeeded()
                continue
            pause = self._backoff.failed(by_network=problem.by_network)
            log.info("%s: the next connection is tried in %g s", self.name, pause)
            await self._wait(self._retry, pause)

    async def _take_over(self, connection: Connection) -> None:
        """Fetch the records of the host, and report them."""
        await self._exchange.poll(connection)
        self._exchange.polls.polled(time.monotonic(), news=True)
        for notice in self._connector.notices + connection.notices:
            self._exchange.show(notice if notice.startswith(self.name) else f"{self.name}: {notice}")
        host = connection.host
        self._marker.set_or_log(
            "connected",
            address=host.address,
            channel="serve" if connection.serves else "one-shot",
            run_dir=host.run_dir,
            hostname=connection.hostname,
            python=connection.python,
            notices=connection.notices,
            tree="" if connection.host.shared else self._connector.tree,
        )
        if self._is_away:
            self._observer.notice(f"{self.name}: connected again")
        self._is_away = False
        self._is_ready = True
        self._retry.clear()
        self._report_ready()
        self._files.connected(host)

    def _report_ready(self) -> None:
        self._has_reported = True
        held = [Running(ended.id, ended.pid, ended.started, ended.grant) for ended in self._exchange.flow.held]
        self._observer.host_ready(self.name, [self.name], [*self._attempts.all(), *held])

    def _lost(self, problem: ConnectionProblem) -> None:
        """Report the host as unreachable. Launches that were never sent are not among its attempts."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for task in self._side_tasks:
            task.cancel()
        self._is_ready = False
        self._submits = 0
        self._orders = Orders()
        self._files.disconnected()
        self._attempts.connection_lost()
        given_back = self._attempts.give_back()
        if given_back and self._has_reported:
            self._report_ready()
        is_news = self._marker.state.error != str(problem)
        if given_back or is_news or not self._is_away:
            self._observer.host_away(self.name, [self.name], str(problem))
        self._is_away = True
        if is_news:
            running = len(self._attempts.may_run)
            jobs = f" ({pluralize(running, 'job')} may run there)" if running else ""
            self._observer.notice(f"{self.name} is unreachable{jobs}: {problem}")
        self._marker.set_or_log("unreachable", error=str(problem))

    # -- work over the connection ---------------------------------------------------------------------------------

    async def _work(self, connection: Connection) -> None:
        """Send and poll until the connection is lost, which is the ConnectionProblem that it raises."""
        while True:
            self._exchange.wake.clear()
            if self._problem is not None:
                raise self._problem
            await self._send_launches(connection)
            while (request := self._orders.next()) is not None:
                await self._exchange.call_if_admitted(connection, request)
            now = time.monotonic()
            pause = self._poll_pause(connection, now)
            if pause == 0.0:
                await self._exchange.poll(connection)
                continue
            ack_pause = self._acks.pause(now) if connection.serves else None
            if ack_pause == 0.0:
                await self._exchange.send_acks(connection)
                continue
            pauses = [seconds for seconds in (pause, ack_pause) if seconds is not None]
            await self._wait(self._exchange.wake, min(pauses, default=None))

    def _poll_pause(self, connection: Connection, now: float) -> float | None:
        if connection.serves:
            return None
        return self._exchange.polls.due(now, live=self._attempts.has_live, unstarted=self._attempts.has_unstarted)

    async def _send_launches(self, connection: Connection) -> None:
        self._files.stage_in(self._attempts.waiting)
        if self._submits >= MOST_FRAMES:
            return
        launches = self._attempts.take(self._files.may_go)
        if connection.serves:
            batches = in_frames(launches, MOST_IN_FRAME, MOST_BYTES, lambda launch: len(msgspec.json.encode(launch)))
        else:
            batches = evened_out(launches, MOST_IN_COMMAND)
        for batch in batches:
            self._submits += 1
            if connection.serves:
                self._run_beside(self._submit(connection, batch))
            else:
                await self._submit(connection, batch)

    async def _submit(self, connection: Connection, batch: list[Launch]) -> None:
        await self._exchange.submit(connection, batch)
        self._submits -= 1
        self._exchange.wake_up()

    # -- helpers ---------------------------------------------------------------------------------------------------

    async def _wait(self, event: asyncio.Event, seconds: float | None) -> None:
        with suppress(asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(event.wait(), seconds)
        event.clear()

    def _run_beside(self, work: Any) -> None:
        """Run work concurrently with the loop. When it fails, the connection is lost."""

        async def guarded() -> None:
            try:
                await work
            except ConnectionProblem as problem:
                self.ended(problem)
            except RemoteError as error:
                self.ended(ConnectionProblem(f"{self.name}: {error}"))

        task = asyncio.ensure_future(guarded())
        task.add_done_callback(reraise_task_error)
        task.add_done_callback(self._side_tasks.discard)
        self._side_tasks.add(task)
