"""The processes below this one, as /proc tells."""

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
    """A process, told from a later one with the same pid by its start time."""

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
    """From now on a process whose parent ends becomes a child of this one, however deep it was.

    This also means that it stays a zombie until it is waited for: `is_alive` knows, `os.kill(pid, 0)` does not.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def is_alive(pid: int) -> bool:
    """Whether this process runs. One that has ended and was not waited for yet does not."""
    stat = _stat(pid)
    return stat is not None and stat[0] not in "ZX"


def is_killed(pid: int) -> bool:
    """Whether it has got a SIGKILL, and is not dead yet."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    masks = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(mask >> (signal.SIGKILL - 1) & 1 for mask in masks)


def identify(pid: int) -> Process | None:
    """The process that has this pid now, unless it has ended."""
    stat = _stat(pid)
    return Process(pid, stat[1]) if stat is not None and stat[0] not in "ZX" else None


def set_apart(process: Process) -> None:
    """From now on this one, and what is below it, is not among the `descendants` of this process.

    For a world of its own, with somebody else who looks after what is left behind there.
    """
    _apart.add(process)


def descendants(root: int | None = None) -> set[Process]:
    """Every process below this one, or below another, that has not ended. Ended orphans are waited for on the way."""
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
    """The pids of a process: here, and in each of the namespaces that it is in. None of a process that is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(word) for line in status.splitlines() if line.startswith("NSpid:") for word in line.split()[1:]]


def end(processes: set[Process], timeout: float = 5.0) -> None:
    """Kill these and wait until they are gone."""
    deadline = time.monotonic() + timeout
    while (left := {one for one in processes if identify(one.pid) == one}) and time.monotonic() < deadline:
        for process in left:
            with suppress(ProcessLookupError):  # it has just ended by itself
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
        pass  # it ended while we looked; its children are ours by now, and the next look sees them
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
    with suppress(ChildProcessError):  # somebody else has waited for it
        os.waitpid(pid, os.WNOHANG)


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped this process."""
    stat = _stat(pid)
    return stat is not None and stat[0] == "T"
