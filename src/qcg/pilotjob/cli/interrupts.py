"""Ctrl-C ends a command with exit code 130 at any time. This module imports as little as possible, because it is loaded
before the handler is installed."""

from __future__ import annotations

import os
import signal
import sys

from qcg.pilotjob.common.exit_codes import INTERRUPTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

RERAISE_DELAY = 0.01
"""Seconds until a lost exception is raised again: by then the destructor that lost it has returned."""


def raises_keyboard_interrupt() -> bool:
    """Whether SIGINT raises KeyboardInterrupt: not in a shell's background job, nor after a handler was installed."""
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def reraise_lost_interrupt() -> None:
    """Raise KeyboardInterrupt and SystemExit again when a signal raises them in a destructor or in the callback of a
    weak reference, where Python only prints exceptions."""
    print_exception = sys.unraisablehook
    code: object = None

    def on_unraisable(lost: sys.UnraisableHookArgs) -> None:
        nonlocal code
        if issubclass(lost.exc_type, (KeyboardInterrupt, SystemExit)):
            code = getattr(lost.exc_value, "code", None)
            signal.setitimer(signal.ITIMER_REAL, RERAISE_DELAY)
        else:
            print_exception(lost)

    def raise_again(number: int, frame: object) -> None:
        if code is None:
            signal.raise_signal(signal.SIGINT)
        else:
            sys.exit(code)  # type: ignore[arg-type]

    sys.unraisablehook = on_unraisable
    signal.signal(signal.SIGALRM, raise_again)


class ExitOnInterrupt:
    """Context manager in which Ctrl-C exits the process at once, without an exception.

    An exception raised while a connection is made would leave a socket that nothing closes, and one raised while
    modules are loaded may be printed and forgotten.
    """

    def __init__(self, notice: Callable[[], None] | None = None) -> None:
        """`notice`: prints a message before the exit."""
        self._notice = notice
        self._installed = raises_keyboard_interrupt()

    def __enter__(self) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, self._exit)

    def __exit__(self, *error: object) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _exit(self, number: int, frame: object) -> None:
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
            if self._notice is not None:
                self._notice()
        except (OSError, RuntimeError):  # RuntimeError: the signal came while a line was printed
            pass
        os._exit(INTERRUPTED)
