"""The connection of an agent to its manager, found through the contact file and made again whenever it breaks."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import zmq

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.agent.fence import Fence
from qcg.pilotjob.agent.heartbeat import Heartbeat
from qcg.pilotjob.agent.manager_liveness import ManagerLiveness
from qcg.pilotjob.agent.pidfile import lock_path
from qcg.pilotjob.agent.poller import Poller
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import Contact, ContactError
from qcg.pilotjob.wire.keys import use_client_keys
from qcg.pilotjob.wire.parts import split
from qcg.pilotjob.wire.routing import is_ipv6
from qcg.pilotjob.wire.sockets import monitor_events, receive_all
from qcg.pilotjob.wire.timing import AGENT_HEARTBEAT, AGENT_SILENCE

SUSPECT_AFTER = 1.5 * AGENT_HEARTBEAT
"""Seconds of silence after which the contact file is read, to find out whether there still is a manager."""
SLOW_PACE = 2.5
"""Factor for all intervals where no manager takes this node for lost because of silence: the manager is on the same
machine, and a connection breaks only when one of the two processes dies, which the other notices at once."""
HELLO_TIMEOUT = 2.0
"""Seconds to wait for the answer to Hello before a new connection is made."""
MOST_SHORT_TIMEOUTS = 6
"""Attempts after which the timeout is longer, because the manager is busy or gone."""
READ_INTERVAL = 0.5
"""Seconds between two reads of the contact file while there is no manager."""
SLOW_READ_INTERVAL = 2.0
SLOW_READ_AFTER = 60.0
"""Seconds without a manager after which the contact file is read less often, to spare a shared file system."""


class Connection:
    def __init__(
        self,
        run_dir: Path,
        hello: protocol.Hello,
        poller: Poller,
        log: Callable[[str], None],
        fence: Fence,
    ) -> None:
        self._run_dir = run_dir
        self._lock = lock_path(run_dir, hello.agent)
        self._fence = fence
        self._heartbeat = Heartbeat(hello.agent, fence)
        self._liveness = ManagerLiveness()
        self._hello = hello
        self._poller = poller
        """Polls the sockets of the current connection."""
        self._log = log
        self._context = zmq.Context()
        self._contact: Contact | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._last_problem = ""
        self.up = False
        """The manager has welcomed this agent over the current connection."""
        self.is_run_over = False
        """There was no contact file at the last read: its manager removed it at the end of the run."""
        self._down_since = time.monotonic()
        self._opened_at = 0.0
        self._attempts = 0
        self._hello_sent_at = 0.0
        self._received_at = 0.0
        self._beat_sent_at = 0.0
        self._next_read = 0.0

    def next_deadline(self) -> float:
        if not self.up:
            return self._next_read
        pace = self._pace()
        return min(
            self._beat_sent_at + pace * AGENT_HEARTBEAT,
            max(self._received_at + pace * SUSPECT_AFTER, self._next_read),
            self._received_at + pace * AGENT_SILENCE,
        )

    def maintain(self, now: float) -> None:
        """Send heartbeats, break a silent connection, and connect to the manager of the contact file."""
        if self.up:
            pace = self._pace()
            if now - self._received_at >= pace * AGENT_SILENCE:
                self._log("the manager is silent; looking for it")
                self._break(now)
            elif now - self._beat_sent_at >= pace * AGENT_HEARTBEAT:
                self._beat_sent_at = now
                self.send(protocol.Beat(now))
            if self.up and now >= max(self._received_at + pace * SUSPECT_AFTER, self._next_read):
                self._next_read = now + READ_INTERVAL
                self._read_contact(now)
        elif now >= self._next_read:
            self._next_read = now + (READ_INTERVAL if now - self._down_since < SLOW_READ_AFTER else SLOW_READ_INTERVAL)
            self._connect_if_found(now)

    def _pace(self) -> float:
        return 1 if self._fence.is_armed else SLOW_PACE

    def welcomed(self) -> None:
        # The connection may have broken right after the welcome.
        self.up = self._socket is not None
        self._attempts = 0
        self._liveness.reset()
        self._fence.renew(self._hello_sent_at)

    def send_hello(self) -> None:
        self.up = False
        self._hello_sent_at = time.monotonic()
        self.send(self._hello)

    def send(self, message: protocol.FromAgent) -> None:
        if self._socket is not None:
            # Another process may listen at this address by now. The monitor reports the end of the connection.
            with suppress(zmq.Again):
                self._socket.send_multipart(split(protocol.encode(message)), zmq.NOBLOCK)
            self._poller.recheck(self._socket)

    def receive(self, ready: set[zmq.Socket[bytes] | int]) -> list[protocol.FromManager]:
        """The messages that have arrived. `ready` is the result of the poller."""
        messages: list[protocol.FromManager] = []
        if self.up and self._fence.lease_expired:
            # Unread messages are about jobs that the manager takes for lost by now.
            self._break(time.monotonic())
        if self._socket is not None and self._socket in ready:
            self._received_at = time.monotonic()
            self._liveness.reset()
            for frames in receive_all(self._socket):
                try:
                    messages.append(protocol.decode_from_manager(b"".join(frames)))
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    self._log(f"a message from the manager could not be read: {error}")
        if self._monitor is not None and self._monitor in ready and any(monitor_events(self._monitor)):
            # The only event that it reports: the manager has closed the connection, or died.
            self._break(time.monotonic())
        return messages

    def close(self) -> None:
        """Close it after the last messages are sent, or after a second."""
        self._close(linger=1000)
        self._heartbeat.close()
        self._context.term()

    def _connect_if_found(self, now: float) -> None:
        found = self._read_contact(now)
        patience = HELLO_TIMEOUT if self._attempts < MOST_SHORT_TIMEOUTS else AGENT_SILENCE
        if found is None or (self._socket and found == self._contact and now - self._hello_sent_at < patience):
            return  # no manager, or its answer may still come
        self._close(linger=0)
        try:
            self._open(found, now)
        except ContactError as error:
            self._log_once(str(error))

    def _read_contact(self, now: float) -> Contact | None:
        """Read the contact file and update the liveness of the manager. None when there is none or it is unreadable."""
        try:
            stamped = contact.read_stamped(self._run_dir)
            if stamped is None and not self._lock.exists():
                raise ContactError(f"{self._run_dir} is not visible on this node")
        except (ContactError, OSError) as error:
            self._liveness.reset()
            self._log_once(str(error))
            return None
        self.is_run_over = stamped is None
        self._update_liveness(stamped, now)
        return stamped[0] if stamped else None

    def _log_once(self, problem: str) -> None:
        """Log a problem, unless it is the last one that was logged."""
        if problem != self._last_problem:
            self._last_problem = problem
            self._log(problem)

    def _update_liveness(self, stamped: tuple[Contact, int] | None, now: float) -> None:
        """Renew the lease when a manager has just started or come back, and at each read that shows no manager."""
        is_new = stamped is not None and stamped[0] != self._contact
        came = self._liveness.update(stamped[1] if stamped else None, now) or is_new
        if came:
            self._attempts = 0
        if came or self._liveness.gone:
            self._fence.renew(now)

    def _open(self, found: Contact, now: float) -> None:
        agents = found.agents
        if agents is None:
            raise ContactError(f"the manager of {self._run_dir} connects to its hosts itself and expects no agents")
        socket = self._socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IPV6, is_ipv6(agents.address))
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.setsockopt(zmq.RECONNECT_IVL, int(READ_INTERVAL * 1000))
        self._monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        try:
            use_client_keys(socket, agents)
            socket.connect(agents.address)
        except zmq.ZMQError as error:
            self._close(linger=0)
            raise ContactError(f"the address in the contact file of {self._run_dir} cannot be used: {error}") from None
        self._poller.register(socket)
        self._poller.register(self._monitor)
        self._heartbeat.follow(agents)
        self._contact = found
        self._opened_at = now
        self._attempts += 1
        self.send_hello()

    def _break(self, now: float) -> None:
        """Close the connection. The report over the next one repeats all records that were on their way."""
        if self.up:
            self._down_since = now
        self._close(linger=0)
        # At once, unless this connection is new: one that keeps breaking must not be made in a busy loop.
        self._next_read = max(now, self._opened_at + READ_INTERVAL)

    def _close(self, linger: int) -> None:
        self.up = False
        if self._socket is not None:
            self._socket.disable_monitor()
        for socket in (self._socket, self._monitor):
            if socket is not None:
                self._poller.unregister(socket)
                socket.close(linger)
        self._socket = self._monitor = None
