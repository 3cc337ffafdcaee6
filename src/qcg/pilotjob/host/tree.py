"""Whole process trees, found through /proc: also children that left their session, also after their parents died."""

import contextlib
import os
import time
from typing import Dict, Iterable, List, NamedTuple, Optional, Set

MARKER = "QCG_PM_STEP_ID"
"""Environment variable that every job has with a value of its own: the thread that leads to its daemons."""

_LAUNCHERS = frozenset(
    (b"srun", b"mpirun", b"mpiexec", b"mpiexec.hydra", b"orterun", b"orted", b"prterun", b"prted", b"hydra_pmi_proxy")
)

_MARKER_START = b"\0" + MARKER.encode("ascii") + b"="
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_CLOCK_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", 7)
_KERNEL_THREADS = 2


class Process(NamedTuple):
    pid: int
    parent: int
    session: int
    began: int
    """Clock ticks after boot. A pid is used again one day; pid and this together are not."""
    dead: bool
    """It has ended and only waits to be reaped."""


def boot_id() -> str:
    """Tells one boot of this machine from the next; empty where the kernel does not say."""
    return _content("/proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip()


def ticks_now() -> int:
    """Now, in the unit of `Process.began`."""
    return int(time.clock_gettime(_CLOCK_BOOTTIME) * _TICKS_PER_SECOND)


def seconds_since(ticks: int) -> float:
    """At least so many have gone by; whoever sets the time of day changes nothing in it."""
    return float(max(ticks_now() - ticks - 1, 0)) / _TICKS_PER_SECOND


def look_at(pid: int) -> Optional[Process]:
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
            process = look_at(int(name))
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
        """All whose marker begins like this."""
        found = (processes for marker, processes in self._marked.items() if marker.startswith(prefix))
        return [process for processes in found for process in processes]

    def same(self, processes: Iterable[Process]) -> List[Process]:
        """Those of `processes`, seen earlier, that still live."""
        now = (self.processes.get(process.pid) for process in processes)
        return [new for new, old in zip(now, processes) if new and new.began == old.began and not new.dead]

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
    """Signal just this process, never a later one with its pid."""
    now = look_at(process.pid)
    if now is None or now.began != process.began:
        return
    # Ended meanwhile; or it runs as another user now, and whoever waits for its end will hear that it stays.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process.pid, number)


def launchers(processes: Iterable[Process]) -> Set[int]:
    """The pids of those that start and end others, also on other nodes."""
    return {process.pid for process in processes if name_of(process.pid) in _LAUNCHERS}


def name_of(pid: int) -> bytes:
    """Of the program that it runs, as far as the kernel keeps it; empty when it is gone."""
    return _content("/proc/%d/comm" % pid).rstrip(b"\n")


def catches(pid: int, number: int) -> bool:
    """Whether it has a handler for this signal."""
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
    """Empty when the process is gone, or belongs to somebody else."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""
