"""Pid files and locks of agents: at most one agent of a name, which later managers can find."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from qcg.pilotjob.host.hostname import host_name
from qcg.pilotjob.host.process_tree import read_process, send
from qcg.pilotjob.host.safe_open import UnsafeFile, open_own, read_own

log = logging.getLogger(__name__)

MOST_BYTES = 1 << 16
"""Size of the largest pid file that is read; usual ones have about a hundred bytes."""
POLL_INTERVAL = 0.1
"""Seconds between two checks of an agent that seems frozen."""
KILL_TIMEOUT = 5.0
"""Seconds to wait for a killed process to disappear."""


class AgentPid(msgspec.Struct, frozen=True):
    """The content of a pid file."""

    pid: int
    started: int
    """Start time in clock ticks after boot, because a pid may be used again for another process."""
    host: str
    allocation: str = ""
    """The allocation that the agent runs in."""
    cluster: str = ""
    """The cluster of the allocation."""
    outside: bool = False
    """The agent was not started by the batch system, so it may outlive the allocation for a while."""
    batch_system: str = ""
    """The batch system of the allocation; empty in files of earlier versions."""


def write_agent_pid(
    run_dir: Path, name: str, allocation: str = "", cluster: str = "", batch_system: str = "", *, outside: bool = False
) -> None:
    process = read_process(os.getpid())
    assert process is not None
    info = AgentPid(process.pid, process.start_ticks, host_name(), allocation, cluster, outside, batch_system)
    temporary = run_dir / f".agent-{name}.json.{os.getpid()}"
    temporary.touch(mode=0o600)
    temporary.write_bytes(msgspec.json.encode(info))
    temporary.replace(_path(run_dir, name))


def claim(run_dir: Path, name: str) -> bool:
    """Lock the name for this process as long as it lives. False when another agent has it.

    The pid file alone is not enough: two agents that start together would both find none. It is used alone where the
    file system has no locks.
    """
    descriptor = open_own(lock_path(run_dir, name), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    except OSError:
        os.close(descriptor)
    other = read_agent_pid(run_dir, name)
    return other is None or not is_alive(other)


def is_claimed(run_dir: Path, name: str) -> bool:
    """Whether an agent on this host holds the lock of this name."""
    try:
        descriptor = os.open(lock_path(run_dir, name), os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def kill_frozen_agent(run_dir: Path, name: str, seconds: float) -> bool:
    """Kill the agent of this name if it is not scheduled at all for `seconds`, and wait until it is gone.

    False when there is no such agent on this host, or it was scheduled meanwhile.
    """
    other = read_agent_pid(run_dir, name)
    if other is None or not is_alive(other):
        return False
    before, deadline = _context_switches(other.pid), time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL)
        if not is_alive(other) or _context_switches(other.pid) != before:
            return False
    signal_agent(other, signal.SIGKILL)
    deadline = time.monotonic() + KILL_TIMEOUT
    while is_alive(other) and time.monotonic() < deadline:
        time.sleep(0.02)
    return True


def signal_agent(info: AgentPid, number: signal.Signals) -> None:
    """Send a signal to the agent, unless it has ended and another process has its pid."""
    process = read_process(info.pid)
    if process is not None and process.start_ticks == info.started:
        send(process, number)


def _context_switches(pid: int) -> int:
    """The number of context switches of all threads of a process. It grows whenever the process does anything."""
    switches = 0
    with suppress(FileNotFoundError):  # the process has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):  # the thread has ended
                for line in Path(f"/proc/{pid}/task/{thread}/status").read_text().splitlines():
                    field, _, count = line.partition(":")
                    if field.endswith("_ctxt_switches"):
                        switches += int(count)
    return switches


def lock_path(run_dir: Path, name: str) -> Path:
    """The path of the lock file, which exists as long as the run directory does."""
    return run_dir / f"agent-{name}.lock"


def read_agent_pid(run_dir: Path, name: str) -> AgentPid | None:
    try:
        return msgspec.json.decode(read_own(_path(run_dir, name), MOST_BYTES), type=AgentPid)
    except UnsafeFile as unsafe:
        log.warning("ignored %s: %s", unsafe.filename, unsafe.reason)
        return None
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def is_damaged(run_dir: Path, name: str) -> bool:
    """Whether there is a pid file of the caller's own that cannot be decoded."""
    try:
        return bool(read_own(_path(run_dir, name), MOST_BYTES) is not None and read_agent_pid(run_dir, name) is None)
    except OSError:
        return False


def remove_agent_pid(run_dir: Path, name: str) -> None:
    """Remove the pid file. One that stays does little harm, because it names a process that is gone."""
    try:
        _path(run_dir, name).unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s cannot be removed: %s", _path(run_dir, name), error.strerror)


def is_alive(info: AgentPid) -> bool:
    """Whether the process is on this host and still runs."""
    process = read_process(info.pid)
    return info.host == host_name() and process is not None and not process.dead and process.start_ticks == info.started


def _path(run_dir: Path, name: str) -> Path:
    return run_dir / f"agent-{name}.json"
