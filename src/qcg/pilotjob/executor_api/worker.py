"""The worker process: makes the calls of an executor one by one, until it is dismissed or the executor ends."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path

import zmq

from qcg.pilotjob.common.environment import EXECUTOR_CONTACT, EXECUTOR_WORKER
from qcg.pilotjob.executor_api.calls import perform
from qcg.pilotjob.executor_api.endpoint import CALL, HELLO, STARTED, answer_frames, read_contact, worker_socket

CONNECT_TIMEOUT = 60_000


def work() -> None:
    contact_path = Path(os.environ.pop(EXECUTOR_CONTACT))
    contact = read_contact(contact_path)
    started_fd = os.open(
        contact_path.with_name(os.environ[EXECUTOR_WORKER] + STARTED), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    sys.path[:] = contact.python_path
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = worker_socket(context, contact, os.environ[EXECUTOR_WORKER])
    # It reports one event only: the executor has closed the connection, or died.
    monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    poller.register(monitor, zmq.POLLIN)
    # Line buffering, so that output is in the file even when the function ends this process.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    socket.connect(contact.address)
    _send(socket, [HELLO])
    _prepare()
    patience: int | None = CONNECT_TIMEOUT
    while ready := dict(poller.poll(patience)):
        if socket in ready:
            patience = None
            kind, *call = socket.recv_multipart()
            if kind != CALL:
                break
            number, function, arguments = call
            # Written before the call: answers may be lost when the function ends this process, the file is not.
            os.pwrite(started_fd, b"%20d" % int(number), 0)
            _send(socket, answer_frames(number, perform(function, arguments)))
            sys.stdout.flush()
        elif monitor in ready:
            break
    socket.disable_monitor()
    monitor.close()
    socket.close(1000)
    context.term()
    os.close(started_fd)


def _send(socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
    """Send a message. Without its executor a plain send would block for ever; the monitor reports that."""
    with suppress(zmq.Again):
        socket.send_multipart(frames, zmq.NOBLOCK)


def _prepare() -> None:
    """Import modules that every call needs before the first call arrives."""
    importlib.import_module("cloudpickle")


if __name__ == "__main__":
    work()
