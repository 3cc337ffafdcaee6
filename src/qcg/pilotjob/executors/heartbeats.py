"""The heartbeat server: a thread that answers heartbeats of agents while the manager waits for a file system."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Collection, Iterable

import zmq

from qcg.pilotjob.wire.connection_limiter import ConnectionLimiter, LimitedSocket
from qcg.pilotjob.wire.keys import Keys, use_server_keys
from qcg.pilotjob.wire.routing import is_ipv6
from qcg.pilotjob.wire.timing import HANDSHAKE_TIMEOUT

MOST_BYTES = 1024
PENDING_SHARE = 0.25
"""The fraction of all connections that may be without keys. The other ports of the manager may have half of all."""


class HeartbeatServer:
    def __init__(self, keys: Keys, address: str, names: Collection[str]) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._port = self._context.socket(zmq.ROUTER)
        self._port.setsockopt(zmq.IPV6, is_ipv6(address))
        self._port.setsockopt(zmq.MAXMSGSIZE, MOST_BYTES)
        # CURVE accepts only peers that know the manager's public key, which is in the contact file.
        use_server_keys(self._port, keys)
        self._port.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_TIMEOUT)
        # Used by the thread of this server, and without log messages, because a file system that hangs would block it.
        self._limited = LimitedSocket(self._port, ConnectionLimiter(PENDING_SHARE, logs=False))
        self._port.bind(address)
        self.address: str = self._port.getsockopt_string(zmq.LAST_ENDPOINT)
        self._names = {name.encode(): name for name in names}
        self.heard: dict[str, float] = {}
        """By agent, the time of its last answered heartbeat."""
        self._ignored: frozenset[str] = frozenset()
        """Agents whose heartbeats are not answered any more."""
        self._woken, self._wakes = socket.socketpair()
        self._thread = threading.Thread(target=self._answer, name="heartbeats", daemon=True)
        self._thread.start()

    def ignore(self, names: Iterable[str]) -> None:
        """Answer heartbeats of these agents no more: they must be ended, or have to send messages."""
        self._ignored = frozenset(names)

    def close(self) -> None:
        self._wakes.send(b"\0")
        self._thread.join()
        self._limited.close()
        self._port.close(linger=0)
        self._context.term()
        self._woken.close()
        self._wakes.close()

    def _answer(self) -> None:
        poller = zmq.Poller()
        poller.register(self._woken.fileno(), zmq.POLLIN)
        poller.register(self._port, zmq.POLLIN)
        poller.register(self._limited.monitor, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self._woken.fileno() in ready:
                return
            if self._limited.monitor in ready:
                self._limited.limit_connections()
            if self._port not in ready:
                continue
            frames = self._port.recv_multipart()
            name = self._names.get(frames[1]) if len(frames) == 3 else None
            if name is not None and name not in self._ignored:
                # Before the answer, so that every answered heartbeat is recorded.
                self.heard[name] = time.monotonic()
                self._port.send_multipart([frames[0], frames[2]], zmq.NOBLOCK)
