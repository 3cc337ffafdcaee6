"""A plugin that keeps signals as tests expect them, however the tests themselves were started.

Commands end at the signals that tests send them. In a worker of pytest-xdist, SIGCHLD is delivered to the main thread
only, or to threads of the tests: the threads of the worker itself have it blocked.
"""

from __future__ import annotations

import signal

import pytest


def pytest_configure(config: pytest.Config) -> None:
    # A background process of a script ignores SIGINT, and a process of nohup ignores SIGHUP. Their children inherit
    # that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if hasattr(config, "workerinput"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Start the workers with SIGCHLD blocked, which all their threads inherit."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
