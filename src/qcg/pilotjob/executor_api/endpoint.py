"""The socket of an executor for its workers, which authenticate with the keys of its contact file."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import zmq
from zmq.utils import z85

from qcg.pilotjob.executor_api.calls import Call, Outcome
from qcg.pilotjob.host.safe_open import read_own
from qcg.pilotjob.wire.connection_limiter import ConnectionLimiter, LimitedSocket
from qcg.pilotjob.wire.contact import MOST_BYTES_OF_FILE
from qcg.pilotjob.wire.keys import make_keys, use_client_keys, use_server_keys
from qcg.pilotjob.wire.parts import ENCRYPTION, PART, split
from qcg.pilotjob.wire.sockets import CollectableContext, receive_all
from qcg.pilotjob.wire.timing import HANDSHAKE_TIMEOUT, SOCKET_HEARTBEAT

OUTPUT, STARTED = ".out", ".begun"
"""Suffixes of the files of a worker: its output, and the number of the last call that it has started."""
SILENCE = 60000
"""Milliseconds without an answer to heartbeats after which a connection is closed."""
HELLO, DONE, CALL, LEAVE = b"hello", b"done", b"call", b"leave"
_ZAP = "inproc://zeromq.zap.01"


class WorkersContact(msgspec.Struct, frozen=True):
    """Address and keys for workers, and the module search path of the functions."""

    address: str
    server_key: str
    client_public: str
    client_secret: str
    python_path: list[str]


class Answer(msgspec.Struct):
    worker: str
    call: int
    outcome: Outcome


class Hello(msgspec.Struct):
    worker: str


def read_contact(path: Path) -> WorkersContact:
    return msgspec.json.decode(read_own(path, MOST_BYTES_OF_FILE), type=WorkersContact)


def worker_socket(context: zmq.Context[zmq.Socket[bytes]], contact: WorkersContact, worker: str) -> zmq.Socket[bytes]:
    """The socket of a worker, not connected yet."""
    socket = context.socket(zmq.DEALER)
    _set_options(socket)
    socket.setsockopt_string(zmq.IDENTITY, worker)
    use_client_keys(socket, contact)
    return socket


class Endpoint:
    """Accepts workers. For one thread, whose `poller` watches its sockets."""

    def __init__(self, host: str, poller: zmq.Poller) -> None:
        keys = make_keys()
        self._context = CollectableContext()
        self._guard = self._context.socket(zmq.REP)
        self._guard.bind(_ZAP)
        self._allowed = z85.decode(keys.client_public.encode())
        self._router = self._context.socket(zmq.ROUTER)
        _set_options(self._router)
        self._router.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._router.setsockopt(zmq.MAXMSGSIZE, PART + ENCRYPTION)
        self._router.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_TIMEOUT)
        self._router.setsockopt_string(zmq.ZAP_DOMAIN, "workers")
        use_server_keys(self._router, keys)
        self._limited = LimitedSocket(self._router, ConnectionLimiter())
        self._router.bind(f"tcp://{host}:*")
        self._address = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        self._keys = keys
        poller.register(self._guard, zmq.POLLIN)
        poller.register(self._router, zmq.POLLIN)
        poller.register(self._limited.monitor, zmq.POLLIN)

    def write_contact(self, path: Path, python_path: list[str]) -> None:
        """Write the contact file, which only its owner can read."""
        keys = self._keys
        contact = WorkersContact(self._address, keys.server_public, keys.client_public, keys.client_secret, python_path)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(contact))

    def receive(self) -> list[Hello | Answer]:
        """Return all received messages."""
        self._limited.limit_connections()
        self._authenticate()
        messages: list[Hello | Answer] = []
        for worker, kind, *rest in receive_all(self._router):
            if kind == HELLO:
                messages.append(Hello(worker.decode()))
            elif kind == DONE:
                number, succeeded, seconds = msgspec.msgpack.decode(rest[0], type=tuple[int, bool, float])
                messages.append(Answer(worker.decode(), number, Outcome(succeeded, b"".join(rest[1:]), seconds)))
        return messages

    def send(self, worker: str, call: Call) -> None:
        self._router.send_multipart([worker.encode(), CALL, b"%d" % call.number, call.function, call.arguments])

    def dismiss(self, worker: str) -> None:
        self._router.send_multipart([worker.encode(), LEAVE])

    def close(self) -> None:
        self._limited.close()
        self._router.close(1000)
        self._guard.close(0)
        self._context.term()

    def _authenticate(self) -> None:
        """Answer the authentication requests (ZAP) of the socket."""
        for version, request, _, _, _, _, *credentials in receive_all(self._guard):
            verdict = (b"200", b"OK") if credentials == [self._allowed] else (b"400", b"not a worker of this executor")
            self._guard.send_multipart([version, request, *verdict, b"worker", b""])


def answer_frames(call: bytes, outcome: Outcome) -> list[bytes]:
    """The frames of the answer of a worker."""
    return [DONE, msgspec.msgpack.encode((int(call), outcome.succeeded, outcome.seconds)), *split(outcome.value)]


def _set_options(socket: zmq.Socket[bytes]) -> None:
    for option, value in (
        (zmq.SNDHWM, 0),
        (zmq.RCVHWM, 0),
        (zmq.HEARTBEAT_IVL, SOCKET_HEARTBEAT),
        (zmq.HEARTBEAT_TIMEOUT, SILENCE),
    ):
        socket.setsockopt(option, value)
