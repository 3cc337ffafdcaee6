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
    place = Path(os.environ.pop(EXECUTOR_CONTACT))
    contact = read_contact(place)
    begun = os.open(
        place.with_name(os.environ[EXECUTOR_WORKER] + STARTED), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    sys.path[:] = contact.python_path
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    line = worker_socket(context, contact, os.environ[EXECUTOR_WORKER])
    # It reports one event only: the executor has closed the connection, or died.
    monitor = line.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    poller = zmq.Poller()
    poller.register(line, zmq.POLLIN)
    poller.register(monitor, zmq.POLLIN)
    # Line buffering, so that output is in the file even when the function ends this process.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    line.connect(contact.address)
    _send(line, [HELLO])
    _prepare()
    patience: int | None = CONNECT_TIMEOUT
    while ready := dict(poller.poll(patience)):
        if line in ready:
            patience = None
            kind, *call = line.recv_multipart()
            if kind != CALL:
                break
            number, function, arguments = call
            # Written before the call: answers may be lost when the function ends this process, the file is not.
            os.pwrite(begun, b"%20d" % int(number), 0)
            _send(line, answer_frames(number, perform(function, arguments)))
            sys.stdout.flush()
        elif monitor in ready:
            break
    line.disable_monitor()
    monitor.close()
    line.close(1000)
    context.term()
    os.close(begun)


def _send(line: zmq.Socket[bytes], frames: list[bytes]) -> None:
    """Send a message. Without its executor a plain send would block for ever; the monitor reports that."""
    with suppress(zmq.Again):
        line.send_multipart(frames, zmq.NOBLOCK)


def _prepare() -> None:
    """Import modules that every call needs before the first call arrives."""
    importlib.import_module("cloudpickle")


if __name__ == "__main__":
    work()
