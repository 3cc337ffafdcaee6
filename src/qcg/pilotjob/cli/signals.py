"""Signals that end a command only after the processes it started have ended."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
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
