"""A service with a network interface, as its owner and as strangers see it: real processes and sockets."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zmq

from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import ClientsContact
from qcg.pilotjob.wire.parts import request_frames
from tests.support.pilot import start
from tests.support.waiting import wait_for

PATIENCE = 60.0
NO_ANSWER = 1.0
"""Seconds without a reply after which a client counts as rejected."""


class Bare:
    """A client that uses only pyzmq."""

    def __init__(self, address: str, found: ClientsContact | None = None, kind: int = zmq.REQ, unread: int = 0) -> None:
        """`found`: the contact whose keys are used, or None for no keys. `unread`: limit of messages in the receive
        queue, 0: none."""
        self._context = zmq.Context()
        self.socket: zmq.Socket[bytes] = self._context.socket(kind)
        self.socket.linger = 0
        self.socket.rcvhwm, self.socket.sndhwm = unread, 0
        if found is not None and found.server_key:
            self.socket.curve_serverkey = found.server_key.encode()
            self.socket.curve_publickey = found.client_public.encode()
            self.socket.curve_secretkey = found.client_secret.encode()
        self.socket.connect(address)

    def send(self, *frames: bytes) -> None:
        self.socket.send_multipart(frames)

    def receive(self, timeout: float = PATIENCE) -> list[bytes] | None:
        """The next message; None after the timeout."""
        return self.socket.recv_multipart() if self.socket.poll(int(timeout * 1000)) else None

    def ask(self, request: str, **more: Any) -> Any:
        """The reply to a request."""
        return self.ask_text(json.dumps({"request": request, **more}).encode())

    def ask_text(self, text: bytes) -> Any:
        before = [] if self.socket.type == zmq.REQ else [b"one", b""]
        self.send(*before, *request_frames(text))
        received = self.receive()
        assert received is not None, "there was no answer"
        *way_back, reply = received
        assert way_back == before
        return json.loads(reply)

    def close(self) -> None:
        self._context.destroy(linger=0)

    def __enter__(self) -> Bare:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Served:
    """One run and its manager: process, files, memory and replies."""

    def __init__(self, wd: Path, *options: str) -> None:
        self.wd = wd
        self.run_dir = wd / ".qcgpjm-service-x"
        self.process: subprocess.Popen[str]
        self._start("--net", "--wd", str(wd), "--id", "x", *options)

    def _start(self, *arguments: str) -> None:
        self.process = start("qcg-pm-service", *arguments)
        wait_for(lambda: self._find_contact() or self.process.poll() is not None, what="the contact file")
        assert self.process.poll() is None, self.process.communicate()
        # The agent belongs to the service: the leak check of tests that share the service must not count it.
        wait_for(lambda: "connected from" in self.log().rpartition("network interface at")[2], what="the agent")

    def _find_contact(self) -> ClientsContact | None:
        found = contact.read(self.run_dir)
        return found.clients if found is not None and found.pid == self.process.pid else None

    @property
    def contact(self) -> ClientsContact:
        found = self._find_contact()
        assert found is not None
        return found

    def client(self, kind: int = zmq.REQ) -> Bare:
        """A client for requests, with the keys of the run."""
        return Bare(self.contact.address, self.contact, kind)

    def subscriber(self, *topics: str) -> Bare:
        """A subscriber for events. It has been welcomed, so it misses no event."""
        subscriber = Bare(self.contact.publisher, self.contact, zmq.SUB)
        for topic in (*topics, "WEL"):
            subscriber.socket.setsockopt_string(zmq.SUBSCRIBE, topic)
        assert subscriber.receive() == [b"WEL"]
        return subscriber

    def ask(self, request: str, **more: Any) -> Any:
        """Send one request with a new client."""
        with self.client() as client:
            return client.ask(request, **more)

    def data(self, request: str, **more: Any) -> Any:
        reply = self.ask(request, **more)
        assert reply["code"] == 0, reply
        return reply["data"]

    def submit(self, *jobs: dict[str, Any]) -> None:
        self.data("submit", jobs=list(jobs))

    def wait(self, name: str, state: str) -> None:
        def has_state() -> bool:
            return bool(self.data("jobStatus", jobNames=[name])["jobs"][name]["data"]["status"] == state)

        wait_for(has_state, what=f"{name} to be {state}")

    def log(self) -> str:
        try:
            return (self.run_dir / "service.log").read_text()
        except FileNotFoundError:
            return ""

    def memory(self) -> float:
        """The current memory of the manager in megabytes."""
        return self._status("VmRSS")

    def most_memory(self) -> float:
        """The peak memory since `forget_most_memory`."""
        return self._status("VmHWM")

    def computed(self) -> float:
        """Seconds of processor time that the manager has used so far: other load of the machine does not count."""
        return time.clock_gettime((~self.process.pid << 3) | 2)  # the processor clock of another process

    def forget_most_memory(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def _status(self, key: str) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def resume(self, *options: str) -> None:
        self._start("--resume", str(self.run_dir), *options)

    def end(self) -> None:
        """End the service in any state."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        self.process.communicate(timeout=PATIENCE)


@contextmanager
def served(wd: Path, *options: str) -> Iterator[Served]:
    service = Served(wd, *options)
    try:
        yield service
    finally:
        service.end()
