"""Descendant processes, read from /proc."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PR_SET_CHILD_SUBREAPER = 36


class Process(NamedTuple):
    """A process, identified by pid and start time: a later process may reuse the pid."""

    pid: int
    started: int

    def __str__(self) -> str:
        try:
            command = Path(f"/proc/{self.pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
        except (FileNotFoundError, ProcessLookupError):
            command = b""
        return f"{self.pid} {command.decode(errors='replace') or '(gone)'}"


_apart: set[Process] = set()


def adopt_orphans() -> None:
    """Make this process the new parent of all orphans below it.

    This also means that it stays a zombie until it is waited for: `is_alive` knows, `os.kill(pid, 0)` does not.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def is_alive(pid: int) -> bool:
    """Whether this process runs. A zombie does not run."""
    stat = _stat(pid)
    return stat is not None and stat[0] not in "ZX"


def is_killed(pid: int) -> bool:
    """Whether the process has got a SIGKILL, and is not dead yet."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    masks = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(mask >> (signal.SIGKILL - 1) & 1 for mask in masks)


def identify(pid: int) -> Process | None:
    """The process that has this pid now; None when it has ended."""
    stat = _stat(pid)
    return Process(pid, stat[1]) if stat is not None and stat[0] not in "ZX" else None


def set_apart(process: Process) -> None:
    """Exclude this process and the processes below it from `descendants`.

    For namespaces whose owner cleans up.
    """
    _apart.add(process)


def descendants(root: int | None = None) -> set[Process]:
    """Every process below this one, or below another, that has not ended. Ended orphans are reaped on the way."""
    found = set()
    below = _children(root or os.getpid())
    own = set() if root else set(below)
    while below:
        pid = below.pop()
        stat = _stat(pid)
        if stat is None:
            continue
        state, started = stat
        process = Process(pid, started)
        if state in "ZX":
            if pid in own:
                _reap(pid)
        elif root or process not in _apart:
            found.add(process)
            below += _children(pid)
    return found


def children(pid: int) -> set[Process]:
    return {process for child in _children(pid) if (process := identify(child))}


def inner_pids(pid: int) -> list[int]:
    """The pids of a process: here, and in each of its namespaces. Empty when the process has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(word) for line in status.splitlines() if line.startswith("NSpid:") for word in line.split()[1:]]


def end(processes: set[Process], timeout: float = 5.0) -> None:
    """Kill these processes and wait until they have ended."""
    deadline = time.monotonic() + timeout
    while (left := {one for one in processes if identify(one.pid) == one}) and time.monotonic() < deadline:
        for process in left:
            with suppress(ProcessLookupError):  # the process has just ended by itself
                os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.005)
        for process in left:
            _reap(process.pid)


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            children += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        pass  # it ended during the search; the next search finds its children below this process
    return children


def _stat(pid: int) -> tuple[str, int] | None:
    """(state, start time in clock ticks), or `None` when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _reap(pid: int) -> None:
    with suppress(ChildProcessError):  # another thread has reaped the process
        os.waitpid(pid, os.WNOHANG)


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped this process."""
    stat = _stat(pid)
    return stat is not None and stat[0] == "T"
