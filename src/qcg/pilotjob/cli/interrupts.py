"""Ctrl-C ends a command with 130, wherever it comes."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

INTERRUPTED = 130

SOON = 0.01
"""Seconds until an interrupt that was lost is sent again: by then what could not be interrupted is over."""


def is_heeded() -> bool:
    """Not by what a shell began in the background, nor where a command has a way of its own."""
    main = threading.current_thread() is threading.main_thread()
    return main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def heed_what_is_raised_in_vain() -> None:
    """An interrupt within a destructor or the callback of a weak reference is printed and forgotten: send it again."""
    tell = sys.unraisablehook

    def heed(lost: sys.UnraisableHookArgs) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, SOON)
        else:
            tell(lost)

    sys.unraisablehook = heed
    signal.signal(signal.SIGALRM, lambda number, frame: signal.raise_signal(signal.SIGINT))


@contextmanager
def ending_at_once(last_words: Callable[[], None]) -> Iterator[None]:
    """Without an exception: one that is raised while a connection is made leaves a socket that nobody can close."""

    def end(number: int, frame: object) -> None:
        with suppress(OSError, RuntimeError):  # the latter when it falls into the middle of a line
            if sys.stdout is not None:
                sys.stdout.flush()
            last_words()
        os._exit(INTERRUPTED)

    if not is_heeded():
        yield
        return
    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
