"""Process trees, read from /proc: also children that left their session, and orphans.

A process belongs to a job if it descends from the job's first process or has the job's marker in its environment.
"""

import contextlib
import os
import time
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Set

from qcg.pilotjob.host.records import STEP_ID

_LAUNCHERS = frozenset(
    (b"srun", b"mpirun", b"mpiexec", b"mpiexec.hydra", b"orterun", b"orted", b"prterun", b"prted", b"hydra_pmi_proxy")
)

_MARKER_START = b"\0" + STEP_ID.encode("ascii") + b"="
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_CLOCK_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", 7)
_KERNEL_THREADS = 2
_PR_SET_CHILD_SUBREAPER = 36


class Process(NamedTuple):
    pid: int
    parent: int
    session: int
    start_ticks: int
    """Clock ticks after boot. A pid is used again one day; pid and start together are not."""
    dead: bool
    """It has ended and only waits to be reaped."""


def boot_id() -> str:
    """An id that differs for each boot of this machine; empty where the kernel has none."""
    return _content("/proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip()


def ticks_now() -> int:
    """The present time, in the unit of `Process.start_ticks`."""
    return int(time.clock_gettime(_CLOCK_BOOTTIME) * _TICKS_PER_SECOND)


def seconds_since(ticks: int) -> float:
    """Seconds since then, rounded down. Changes of the time of day do not matter."""
    return float(max(ticks_now() - ticks - 1, 0)) / _TICKS_PER_SECOND


def read_process(pid: int) -> Optional[Process]:
    """The process with this pid; None when there is none."""
    content = _content("/proc/%d/stat" % pid)
    if not content:
        return None
    # The name in the second field may hold blanks and parentheses; state is the first field after it.
    fields = content[content.rindex(b")") + 2 :].split(None, 20)
    # A dead main thread whose other threads still run looks like a zombie, but is none.
    dead = fields[0] in b"ZXx" and int(fields[17]) <= 1
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), dead)


class Snapshot:
    """All processes of this machine at one moment."""

    def __init__(self) -> None:
        self.processes: Dict[int, Process] = {}
        self._children: Dict[int, List[Process]] = {}
        self._sessions: Dict[int, List[Process]] = {}
        self._marked: Dict[str, List[Process]] = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            process = read_process(int(name))
            if process is None or process.parent == _KERNEL_THREADS:
                continue
            self.processes[process.pid] = process
            if process.dead:
                continue
            self._children.setdefault(process.parent, []).append(process)
            self._sessions.setdefault(process.session, []).append(process)
            marker = _marker_of(process.pid)
            if marker:
                self._marked.setdefault(marker, []).append(process)

    def children(self, pid: int) -> List[Process]:
        return self._children.get(pid, [])

    def session(self, pid: int) -> List[Process]:
        return self._sessions.get(pid, [])

    def marked(self, marker: str) -> List[Process]:
        return self._marked.get(marker, []) if marker else []

    def marked_with(self, prefix: str) -> List[Process]:
        """Processes whose marker begins with this prefix."""
        found = (processes for marker, processes in self._marked.items() if marker.startswith(prefix))
        return [process for processes in found for process in processes]

    def same(self, processes: Iterable[Process]) -> List[Process]:
        """The processes of an earlier snapshot that are still alive."""
        now = (self.processes.get(process.pid) for process in processes)
        return [new for new, old in zip(now, processes) if new and new.start_ticks == old.start_ticks and not new.dead]

    def with_descendants(self, roots: Iterable[Process]) -> Dict[int, Process]:
        found: Dict[int, Process] = {}
        ahead = list(roots)
        while ahead:
            process = ahead.pop()
            if process.pid not in found:
                found[process.pid] = process
                ahead.extend(self.children(process.pid))
        return found


def send(process: Process, number: int) -> None:
    """Send a signal to this process, never to a later one with its pid."""
    now = read_process(process.pid)
    if now is None or now.start_ticks != process.start_ticks:
        return
    # It has ended, or runs as another user by now: then its termination reports that it does not end.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process.pid, number)


def adopt_orphans(log: Callable[[str], None]) -> None:
    """Make this process the parent of orphans among its descendants, so that it can reap and find them."""
    import ctypes  # here: commands only look at processes

    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        log("This kernel gives orphans to init: %s." % os.strerror(ctypes.get_errno()))


def launchers(processes: Iterable[Process]) -> Set[int]:
    """The pids of launchers, which start and end processes also on other nodes."""
    return {process.pid for process in processes if name_of(process.pid) in _LAUNCHERS}


def name_of(pid: int) -> bytes:
    """The name of the program, as far as the kernel keeps it; empty when the process is gone."""
    return _content("/proc/%d/comm" % pid).rstrip(b"\n")


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for this signal."""
    for line in _content("/proc/%d/status" % pid).splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _marker_of(pid: int) -> str:
    environment = b"\0" + _content("/proc/%d/environ" % pid)
    start = environment.find(_MARKER_START)
    if start < 0:
        return ""
    start += len(_MARKER_START)
    return environment[start : environment.find(b"\0", start)].decode("utf-8", "surrogateescape")


def _content(path: str) -> bytes:
    """Empty when the process is gone or belongs to another user."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""
