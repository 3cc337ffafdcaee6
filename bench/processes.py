"""Starts processes for measurements, and ends them completely after errors and interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from qcg.pilotjob.cli.signals import signals_deferred

PATIENCE = 20.0
"""Seconds after each signal for a process to end its own processes."""
TIDILY = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
AT_ONCE = (signal.SIGKILL,)
"""Signals for processes that start no other sessions and leave no files behind."""
CAPTURED: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


@contextmanager
def started(
    command: Sequence[str], words: Sequence[signal.Signals] = TIDILY, **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """A process in its own session, so that Ctrl-C reaches this process alone. It is waited for. After an exception it
    gets these signals one after another until it ends."""
    process: subprocess.Popen[str] | None = None
    try:
        with signals_deferred():
            process = subprocess.Popen(command, text=True, start_new_session=True, **options)
        yield process
    except BaseException:
        if process is not None:
            with signals_deferred():
                _end(process, words)
        raise
    finally:
        if process is not None:
            with process:
                pass  # which closes its pipes


def run(
    command: Sequence[str],
    words: Sequence[signal.Signals] = TIDILY,
    *,
    timeout: float | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a process to its end, with any exit code."""
    with started(command, words, **options) as process:
        out, err = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _end(process: subprocess.Popen[str], words: Sequence[signal.Signals]) -> None:
    for word in words:
        # To its children, too, as a terminal does. The pid cannot be reused before the process is waited for.
        if process.poll() is None:
            os.killpg(process.pid, word)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
            break
    killed: set[int] = set()
    while new := _left_of(process.pid) - killed:  # one that was killed may have started another just before
        for pid in new:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= new


def _left_of(session: int) -> set[int]:
    """Processes of a session whose leader has ended."""
    left = set()
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with suppress(ProcessLookupError):
            if os.getsid(pid) == session:
                left.add(pid)
    return left
