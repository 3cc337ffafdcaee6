"""An agent's connection to its manager: found through the contact file, and made again whenever it breaks."""

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

DOUBT = 1.5 * AGENT_HEARTBEAT
"""Seconds of silence after which the contact file is read, to see whether there still is a manager."""
SLOW_PACE = 2.5
"""Factor for all intervals where no manager takes this node for lost because of silence: the manager is on the same
machine, and a connection breaks only when one of the two processes dies, which the other notices at once."""
HELLO_TIMEOUT = 2.0
MOST_SHORT_TIMEOUTS = 6
"""Seconds to wait for the answer to Hello before a new connection is made. After this many the timeout is longer,
because the manager is busy or not there."""
LOOK = 0.5
"""Seconds between two reads of the contact file while there is no manager."""
SELDOM = 2.0
SELDOM_AFTER = 60.0
"""Many agents on a shared file system read it less often when their manager does not come back soon."""


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
        """Watches this line, whatever sockets it has just now."""
        self._log = log
        self._context = zmq.Context()
        self._contact: Contact | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._complaint = ""
        self.up = False
        """The manager has welcomed this agent over this line."""
        self.is_run_over = False
        """The manager has taken its contact file away, at the last look."""
        self._down_since = time.monotonic()
        self._opened = 0.0
        self._attempts = 0
        self._greeted = 0.0
        """When the last Hello was said."""
        self._heard = 0.0
        self._beat = 0.0
        self._next_look = 0.0

    def next_deadline(self) -> float:
        if not self.up:
            return self._next_look
        pace = self._pace()
        return min(
            self._beat + pace * AGENT_HEARTBEAT,
            max(self._heard + pace * DOUBT, self._next_look),
            self._heard + pace * AGENT_SILENCE,
        )

    def keep(self, now: float) -> None:
        """Beat, notice silence, and follow the contact file while there is nobody at the other end."""
        if self.up:
            pace = self._pace()
            if now - self._heard >= pace * AGENT_SILENCE:
                self._log("the manager is silent; looking for it")
                self._break(now)
            elif now - self._beat >= pace * AGENT_HEARTBEAT:
                self._beat = now
                self.send(protocol.Beat(now))
            if self.up and now >= max(self._heard + pace * DOUBT, self._next_look):
                self._next_look = now + LOOK
                self._find(now)
        elif now >= self._next_look:
            self._next_look = now + (LOOK if now - self._down_since < SELDOM_AFTER else SELDOM)
            self._look(now)

    def _pace(self) -> float:
        return 1 if self._fence.is_set else SLOW_PACE

    def welcomed(self) -> None:
        # The line may have broken right after the welcome.
        self.up = self._socket is not None
        self._attempts = 0
        self._liveness.forget()
        self._fence.known_at(self._greeted)

    def say_hello(self) -> None:
        self.up = False
        self._greeted = time.monotonic()
        self.send(self._hello)

    def send(self, message: protocol.FromAgent) -> None:
        if self._socket is not None:
            # Where somebody else answers by now there is nobody to send to. The monitor tells of it.
            with suppress(zmq.Again):
                self._socket.send_multipart(split(protocol.encode(message)), zmq.NOBLOCK)
            self._poller.doubt(self._socket)

    def receive(self, ready: set[zmq.Socket[bytes] | int]) -> list[protocol.FromManager]:
        """All that has arrived. `ready` is what the poller saw."""
        messages: list[protocol.FromManager] = []
        if self.up and self._fence.has_fallen:
            # Whatever waits there was meant for jobs that are taken for lost by now.
            self._break(time.monotonic())
        if self._socket is not None and self._socket in ready:
            self._heard = time.monotonic()
            self._liveness.forget()
            for frames in receive_all(self._socket):
                try:
                    messages.append(protocol.decode_from_manager(b"".join(frames)))
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    self._log(f"a message from the manager could not be read: {error}")
        if self._monitor is not None and self._monitor in ready and any(monitor_events(self._monitor)):
            # It tells one thing only: the other end has closed the line, or died.
            self._break(time.monotonic())
        return messages

    def close(self) -> None:
        """Let the last words out, for a second at most."""
        self._close(linger=1000)
        self._heartbeat.close()
        self._context.term()

    def _look(self, now: float) -> None:
        found = self._find(now)
        patience = HELLO_TIMEOUT if self._attempts < MOST_SHORT_TIMEOUTS else AGENT_SILENCE
        if found is None or (self._socket and found == self._contact and now - self._greeted < patience):
            return  # nobody there, or still knocking
        self._close(linger=0)
        try:
            self._open(found, now)
        except ContactError as error:
            self._complain(str(error))

    def _find(self, now: float) -> Contact | None:
        """What the contact file says, and what it means for the jobs."""
        try:
            stamped = contact.read_stamped(self._run_dir)
            if stamped is None and not self._lock.exists():
                raise ContactError(f"{self._run_dir} is not to be seen from here")
        except (ContactError, OSError) as error:
            self._liveness.could_not_look()
            self._complain(str(error))
            return None
        self.is_run_over = stamped is None
        self._update_liveness(stamped, now)
        return stamped[0] if stamped else None

    def _complain(self, complaint: str) -> None:
        """Once, as long as it stays the same."""
        if complaint != self._complaint:
            self._complaint = complaint
            self._log(complaint)

    def _update_liveness(self, stamped: tuple[Contact, int] | None, now: float) -> None:
        """A manager that has just come, or come back, gives each node all the time there is. Where there is none,
        nobody counts, as far as this look tells: the next one has to say the same."""
        is_new = stamped is not None and stamped[0] != self._contact
        came = self._liveness.saw(stamped[1] if stamped else None, now) or is_new
        if came:
            self._attempts = 0
        if came or self._liveness.gone:
            self._fence.known_at(now)

    def _open(self, found: Contact, now: float) -> None:
        agents = found.agents
        if agents is None:
            raise ContactError(f"the manager of {self._run_dir} connects to its hosts itself and expects no agents")
        socket = self._socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IPV6, is_ipv6(agents.address))
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.setsockopt(zmq.RECONNECT_IVL, int(LOOK * 1000))
        self._monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        try:
            use_client_keys(socket, agents)
            socket.connect(agents.address)
        except zmq.ZMQError as error:
            self._close(linger=0)
            raise ContactError(f"the contact file of {self._run_dir} leads nowhere: {error}") from None
        self._poller.register(socket)
        self._poller.register(self._monitor)
        self._heartbeat.follow(agents)
        self._contact = found
        self._opened = now
        self._attempts += 1
        self.say_hello()

    def _break(self, now: float) -> None:
        """The line is gone. Whatever was on its way will be in the report over the next one."""
        if self.up:
            self._down_since = now
        self._close(linger=0)
        # At once, unless this line has only just been made: no storm when it breaks again and again.
        self._next_look = max(now, self._opened + LOOK)

    def _close(self, linger: int) -> None:
        self.up = False
        if self._socket is not None:
            self._socket.disable_monitor()
        for socket in (self._socket, self._monitor):
            if socket is not None:
                self._poller.unregister(socket)
                socket.close(linger)
        self._socket = self._monitor = None
