"""Signals end a command as they always do, but not before what it has started has ended."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from qcg.pilotjob.common.exit_codes import killed_by

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_tidily() -> dict[signal.Signals, Any]:
    """From now on one of these signals raises `SystemExit`, with the exit code that a shell expects. Their handlers
    before."""
    numbers = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]

    def end(number: int, frame: object) -> NoReturn:
        for other in numbers:  # one is enough: a second one would only disturb the tidying
            signal.signal(other, signal.SIG_IGN)
        sys.exit(killed_by(number))

    return {number: signal.signal(number, end) for number in numbers}


@contextmanager
def ending_tidily() -> Iterator[None]:
    before = end_tidily()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_wait() -> Iterator[None]:
    """Until this is over: nobody can end what is half started, and what is half ended is never ended wholly."""
    waiting: list[int] = []
    caught = [number for number in ENDING if callable(signal.getsignal(number))]
    before = {number: signal.signal(number, lambda number, frame: waiting.append(number)) for number in caught}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if waiting:
        signal.raise_signal(waiting[0])
