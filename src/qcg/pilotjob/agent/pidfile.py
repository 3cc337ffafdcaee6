"""Which process is the agent of a name, on which host: for a manager that comes later."""

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
"""Of a pid file, which has about a hundred."""
LOOK = 0.1
DYING = 5.0
"""Seconds for a process that was killed to be gone."""


class AgentPid(msgspec.Struct, frozen=True):
    pid: int
    started: int
    """When the process started, in clock ticks after boot: a pid alone may be given to another process."""
    host: str
    allocation: str = ""
    """The allocation that it runs in."""
    cluster: str = ""
    """The cluster of the allocation."""
    outside: bool = False
    """The batch system has not started it, so it may outlive the allocation by a while."""
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
    """Be the only agent of this name, for as long as this process lives. False when there is another.

    The pid file alone cannot tell: two agents that start together would both find none. Where the file system has no
    locks, it has to do.
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
    """Whether an agent of this name lives, as far as its lock can tell: one on this host."""
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


def end_frozen(run_dir: Path, name: str, seconds: float) -> bool:
    """Kill the agent of this name if it does nothing at all for so long, and wait until it is gone. False when there is
    none on this host, or it lives."""
    other = read_agent_pid(run_dir, name)
    if other is None or not is_alive(other):
        return False
    before, deadline = _turns(other.pid), time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(LOOK)
        if not is_alive(other) or _turns(other.pid) != before:
            return False
    signal_agent(other, signal.SIGKILL)
    deadline = time.monotonic() + DYING
    while is_alive(other) and time.monotonic() < deadline:
        time.sleep(0.02)
    return True


def signal_agent(info: AgentPid, number: signal.Signals) -> None:
    """Unless it has ended, and another process has its pid."""
    process = read_process(info.pid)
    if process is not None and process.start_ticks == info.started:
        send(process, number)


def _turns(pid: int) -> int:
    """How often threads of a process have begun and ceased to run: it grows with the least that it does."""
    turns = 0
    with suppress(FileNotFoundError):  # it has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):  # this thread has
                for line in Path(f"/proc/{pid}/task/{thread}/status").read_text().splitlines():
                    what, _, count = line.partition(":")
                    if what.endswith("_ctxt_switches"):
                        turns += int(count)
    return turns


def lock_path(run_dir: Path, name: str) -> Path:
    """There for as long as the run directory is."""
    return run_dir / f"agent-{name}.lock"


def read_agent_pid(run_dir: Path, name: str) -> AgentPid | None:
    try:
        return msgspec.json.decode(read_own(_path(run_dir, name), MOST_BYTES), type=AgentPid)
    except UnsafeFile as unsafe:
        log.warning("passed over %s: %s", unsafe.filename, unsafe.reason)
        return None
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def is_damaged(run_dir: Path, name: str) -> bool:
    """Whether there is a pid file of one's own which says nothing."""
    try:
        return bool(read_own(_path(run_dir, name), MOST_BYTES) is not None and read_agent_pid(run_dir, name) is None)
    except OSError:
        return False


def remove_agent_pid(run_dir: Path, name: str) -> None:
    """A file that stays does little harm: it names a process that is gone."""
    try:
        _path(run_dir, name).unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s cannot be removed: %s", _path(run_dir, name), error.strerror)


def is_alive(info: AgentPid) -> bool:
    """On this host, and still the same process."""
    process = read_process(info.pid)
    return info.host == host_name() and process is not None and not process.dead and process.start_ticks == info.started


def _path(run_dir: Path, name: str) -> Path:
    return run_dir / f"agent-{name}.json"
