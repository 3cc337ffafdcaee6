"""Signals that end a command only after the processes it started have ended."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from qcg.pilotjob.common.exit_codes import killed_by

TERMINATING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def exit_on_signals() -> dict[signal.Signals, Any]:
    """Let each terminating signal raise `SystemExit` with the exit code that shells use. Returns the old handlers."""
    numbers = [number for number in TERMINATING if signal.getsignal(number) is not signal.SIG_IGN]

    def end(number: int, frame: object) -> NoReturn:
        for other in numbers:  # a second signal would interrupt the cleanup
            signal.signal(other, signal.SIG_IGN)
        sys.exit(killed_by(number))

    return {number: signal.signal(number, end) for number in numbers}


@contextmanager
def exiting_on_signals() -> Iterator[None]:
    """`exit_on_signals` until the block ends."""
    before = exit_on_signals()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Deliver terminating signals after the block, so that no process is left half started or half ended."""
    received: list[int] = []
    caught = [number for number in TERMINATING if callable(signal.getsignal(number))]
    before = {number: signal.signal(number, lambda number, frame: received.append(number)) for number in caught}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        signal.raise_signal(received[0])


@contextmanager
def awaiting_signal() -> Iterator[Callable[[], None]]:
    """A function that waits for a terminating signal, in the main thread, for a command that then cleans up.

    The signal writes to a socket, whatever the thread does at that moment. A handler that sets an event could interrupt
    the wait for that event, and then neither of them would end.
    """
    caught = [number for number in TERMINATING if signal.getsignal(number) is not signal.SIG_IGN]
    received, signalled = socket.socketpair()

    def wait() -> None:
        while not any(number in caught for number in received.recv(4096)):
            pass

    with received, signalled:
        signalled.setblocking(False)
        wakeup_before = signal.set_wakeup_fd(signalled.fileno(), warn_on_full_buffer=False)
        before = {number: signal.signal(number, lambda number, frame: None) for number in caught}
        try:
            yield wait
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup_before)
