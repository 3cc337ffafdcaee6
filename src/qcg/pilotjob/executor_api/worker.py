"""A worker: a job that makes the calls of an executor, one after the other, until it is told to leave or nobody is
there any more."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path

import zmq

from qcg.pilotjob.common.environment import EXECUTOR_CONTACT, EXECUTOR_WORKER
from qcg.pilotjob.executor_api.calls import perform
from qcg.pilotjob.executor_api.endpoint import BEGUN, CALL, HELLO, answer_frames, line_to, read_contact

CONNECT_TIMEOUT = 60_000


def work() -> None:
    place = Path(os.environ.pop(EXECUTOR_CONTACT))
    contact = read_contact(place)
    begun = os.open(
        place.with_name(os.environ[EXECUTOR_WORKER] + BEGUN), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    sys.path[:] = contact.python_path
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    line = line_to(context, contact, os.environ[EXECUTOR_WORKER])
    # It tells one thing only: the executor has closed the line, or died.
    monitor = line.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    poller = zmq.Poller()
    poller.register(line, zmq.POLLIN)
    poller.register(monitor, zmq.POLLIN)
    # What was printed is in the file, also when the function ends this process.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    line.connect(contact.address)
    _tell(line, [HELLO])
    _prepare()
    patience: int | None = CONNECT_TIMEOUT
    while ready := dict(poller.poll(patience)):
        if line in ready:
            patience = None
            kind, *call = line.recv_multipart()
            if kind != CALL:
                break
            number, function, arguments = call
            # An answer may still be under way when the function ends this process: the file is not.
            os.pwrite(begun, b"%20d" % int(number), 0)
            _tell(line, answer_frames(number, perform(function, arguments)))
            sys.stdout.flush()
        elif monitor in ready:
            break
    line.disable_monitor()
    monitor.close()
    line.close(1000)
    context.term()
    os.close(begun)


def _tell(line: zmq.Socket[bytes], frames: list[bytes]) -> None:
    """Where somebody else answers by now, a plain send would wait for ever. The monitor tells of it."""
    with suppress(zmq.Again):
        line.send_multipart(frames, zmq.NOBLOCK)


def _prepare() -> None:
    """Import now what every call needs, while there is none."""
    importlib.import_module("cloudpickle")


if __name__ == "__main__":
    work()
