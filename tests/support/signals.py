"""A plugin that lets commands end at the signals that tests send them, however the tests themselves were started."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    # What a script starts in the background ignores SIGINT, what nohup starts SIGHUP, and so does all that they start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
