"""Ctrl-C ends a command with 130, wherever it comes. Loaded before it is taken care of: it needs next to nothing."""

from __future__ import annotations

import os
import signal
import sys

from qcg.pilotjob.common.exit_codes import INTERRUPTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SOON = 0.01
"""Seconds until what was lost is raised again: by then what could not be interrupted is over."""


def is_heeded() -> bool:
    """Not by what a shell began in the background, nor where a command has a way of its own."""
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def heed_what_is_raised_in_vain() -> None:
    """What a signal raises within a destructor or the callback of a weak reference is printed and forgotten: raise it
    again."""
    tell = sys.unraisablehook
    code: object = None

    def heed(lost: sys.UnraisableHookArgs) -> None:
        nonlocal code
        if issubclass(lost.exc_type, (KeyboardInterrupt, SystemExit)):
            code = getattr(lost.exc_value, "code", None)
            signal.setitimer(signal.ITIMER_REAL, SOON)
        else:
            tell(lost)

    def again(number: int, frame: object) -> None:
        if code is None:
            signal.raise_signal(signal.SIGINT)
        else:
            sys.exit(code)  # type: ignore[arg-type]

    sys.unraisablehook = heed
    signal.signal(signal.SIGALRM, again)


class EndingAtOnce:
    """Without an exception: one that is raised while a connection is made leaves a socket that nobody can close, and
    one while modules are loaded may be printed and forgotten."""

    def __init__(self, last_words: Callable[[], None] | None = None) -> None:
        self._last_words = last_words
        self._heeded = is_heeded()

    def __enter__(self) -> None:
        if self._heeded:
            signal.signal(signal.SIGINT, self._end)

    def __exit__(self, *error: object) -> None:
        if self._heeded:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _end(self, number: int, frame: object) -> None:
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
            if self._last_words is not None:
                self._last_words()
        except (OSError, RuntimeError):  # the latter when it falls into the middle of a line
            pass
        os._exit(INTERRUPTED)
