"""Limits the memory of jobs with cgroups (version 2), where this process may make some.

It may below a cgroup that gives its children the memory controller. Where it does not yet, that can be changed if the
cgroup holds nothing but this process and its descendants, or is delegated to its user by systemd.
"""

import contextlib
import errno
import os
import re
from typing import Callable, Dict, List, NamedTuple, Optional, Set

from qcg.pilotjob.host import process_tree

_OWN = "qcg-pm-agent"
"""Name of the cgroup for this process itself: a cgroup with children that have controllers holds no processes."""
_NOT_IN_NAMES = re.compile(r"[^0-9A-Za-z.]")


class GroupUsage(NamedTuple):
    """Counters of the kernel for a cgroup."""

    oom_kills: int
    """Number of processes that the kernel killed because memory ran out: in this cgroup, in one above it, or on the
    machine."""
    reached_limit: bool
    """Memory ran out in this cgroup."""
    peak: int
    """Peak memory in KiB; 0 where the kernel does not report it."""
    user: int
    """CPU time in microseconds, as the next one; 0 where the kernel does not report it."""
    system: int


def own_cgroup() -> str:
    """The directory of the cgroup (version 2) of this process; empty without one."""
    path = ""
    for line in _read("/proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            path = line[3:]
    for line in _read("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        if path and after.startswith("cgroup2 "):
            root, mount_point = before.split()[3:5]
            inside = os.path.relpath(path, root) if root != "/" else path.lstrip("/")
            return os.path.normpath(os.path.join(mount_point, inside))
    return ""


class MemoryGroups:
    """Makes and removes the cgroups of jobs."""

    def __init__(self, log: Callable[[str], None], own: Optional[str] = None) -> None:
        """`own`: the cgroup of this process; None: it is looked up."""
        self._log = log
        self._own = own_cgroup() if own is None else own
        if os.path.basename(self._own) == _OWN:
            # An earlier process has divided the cgroup.
            self._own = os.path.dirname(self._own)
        self._parent = self._prepare()
        """The parent of the cgroups of jobs; empty where none can be made."""
        self._left: List[str] = []
        """Cgroups of ended jobs that could not be removed yet."""

    def limit(self, id: str, pid: int, limit: int) -> str:
        """Put a process that was just started into a cgroup of its own with `limit` KiB of memory. Returns its
        directory; empty where there is none."""
        if not self._parent:
            return ""
        group = os.path.join(self._parent, "qcg-pm-%d-%s" % (os.getpid(), _NOT_IN_NAMES.sub("-", id)))
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(group)
            _write(group, "memory.max", str(limit << 10))
            # These do not exist everywhere. Swap space is no memory, and a job of which one process is left is no job.
            with contextlib.suppress(OSError):
                _write(group, "memory.swap.max", "0")
            with contextlib.suppress(OSError):
                _write(group, "memory.oom.group", "1")
            self._move_tree(pid, group)
        except OSError as error:
            self._log("No cgroup can be made in %s (%s): memory is watched instead." % (self._parent, error.strerror))
            self._remove(group)
            self._parent = ""
            return ""
        return group

    def ended(self, group: str) -> GroupUsage:
        """Return the counters of the kernel, and remove the cgroup."""
        events, cpu = _table(group, "memory.events"), _table(group, "cpu.stat")
        peak = _read(os.path.join(group, "memory.peak")).strip()
        self._left.append(group)
        self.remove_left()
        return GroupUsage(
            events.get("oom_kill", 0),
            events.get("oom", 0) > 0,
            int(peak) >> 10 if peak.isdigit() else 0,
            cpu.get("user_usec", 0),
            cpu.get("system_usec", 0),
        )

    def remove_left(self) -> None:
        """Remove the cgroups of ended jobs that still had processes before."""
        self._left = [left for left in self._left if not self._remove(left)]

    def _prepare(self) -> str:
        if not self._own or "memory" not in _read(os.path.join(self._own, "cgroup.controllers")).split():
            return ""
        try:
            if "memory" not in _read(os.path.join(self._own, "cgroup.subtree_control")).split():
                if not self._may_be_divided():
                    return ""
                leaf = os.path.join(self._own, _OWN)
                with contextlib.suppress(FileExistsError):
                    os.mkdir(leaf)
                for pid in _read(os.path.join(self._own, "cgroup.procs")).split():
                    _move(int(pid), leaf)
                _write(self._own, "cgroup.subtree_control", "+memory")
            return self._own if os.access(self._own, os.W_OK) else ""
        except OSError as error:
            self._log("The cgroup %s gives no memory controller to jobs: %s." % (self._own, error.strerror))
            return ""

    def _may_be_divided(self) -> bool:
        """Whether the processes in the own cgroup may be moved to another one."""
        with contextlib.suppress(OSError):
            if os.getxattr(self._own, "user.delegate") == b"1":
                return True
        snapshot = process_tree.Snapshot()
        own = snapshot.with_descendants([snapshot.processes[os.getpid()]])
        members = _read(os.path.join(self._own, "cgroup.procs")).split()
        return bool(members) and all(int(pid) in own for pid in members)

    def _move_tree(self, pid: int, group: str) -> None:
        """Move a process, and children that it had before it was moved: later ones begin in its cgroup."""
        moved: Set[int] = set()
        ahead = [pid]
        while ahead:
            one = ahead.pop()
            if one not in moved:
                moved.add(one)
                _move(one, group)
                ahead += [int(child) for child in _read("/proc/%d/task/%d/children" % (one, one)).split()]

    def _remove(self, group: str) -> bool:
        try:
            os.rmdir(group)
        except OSError as error:
            # Its last processes are just ending.
            return error.errno != errno.EBUSY
        return True


def _move(pid: int, group: str) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        _write(group, "cgroup.procs", str(pid))


def _table(group: str, name: str) -> Dict[str, int]:
    lines = [line.split() for line in _read(os.path.join(group, name)).splitlines()]
    return {fields[0]: int(fields[1]) for fields in lines if len(fields) == 2 and fields[1].isdigit()}


def _write(group: str, name: str, text: str) -> None:
    descriptor = os.open(os.path.join(group, name), os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)


def _read(path: str) -> str:
    """Empty when there is no such file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
