"""Ends jobs that exceed their memory limit: the kernel does it in a cgroup where one can be made, or else their
processes are watched.

Only jobs with a limit are watched. The pauses between two measurements are short while memory grows towards a limit,
and never so short that measuring takes more than a small part of the time."""

import os
import resource
import time
from typing import Callable, Dict, Iterable, List, Optional, Tuple

from qcg.pilotjob.host import process_tree
from qcg.pilotjob.host.job import ActiveJob
from qcg.pilotjob.host.memory_groups import MemoryGroups, own_cgroup
from qcg.pilotjob.host.records import EndReason, Usage
from qcg.pilotjob.host.termination import Termination
from qcg.pilotjob.host.usage import bytes_text

SHORTEST_PAUSE = 0.05
LONGEST_PAUSE = 0.5
MOST_WORK = 0.05
"""The part of a core that measurements take at most, unless there are thousands of processes on the machine."""
LONGEST_REST = 1.0
"""Longest pause in seconds, however much work a measurement is."""
_PAGE = os.sysconf("SC_PAGE_SIZE") >> 10
_KILLED = (-9, 137)
"""Exit codes after SIGKILL: of a process, and of a shell whose command got it."""

_ADVICE = 'ask for more with "mem"'


def over_limit(peak: int, limit: int) -> str:
    """The message of a job that used more memory than its limit; both in KiB."""
    return "The job used %s of memory, more than the %s of its limit; %s." % (
        bytes_text(peak << 10),
        bytes_text(limit << 10),
        _ADVICE,
    )


def at_limit(limit: int) -> str:
    """The message of a job that the kernel ended at its limit in KiB."""
    return "The job used all of the %s of memory of its limit, and the kernel ended it; %s." % (
        bytes_text(limit << 10),
        _ADVICE,
    )


OUT_OF_MEMORY = (
    "The kernel ended the job because memory ran out on its node, or in the cgroup of its agent; ask for as much as it"
    ' needs with "mem".'
)


class _Watched:
    __slots__ = ("peak", "termination", "used", "used_at")

    def __init__(self, job: ActiveJob) -> None:
        self.termination = Termination(job.start, 0.0)
        """Finds the processes of the job."""
        self.peak = 0
        self.used = 0
        """Memory at the last measurement, in KiB as the peak."""
        self.used_at = 0.0


class MemoryLimits:
    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._groups: Optional[MemoryGroups] = None
        self._kernel_kills = _KernelKills()
        self._in_groups: Dict[str, str] = {}
        """Directories of the cgroups of jobs, by id."""
        self._watched: Dict[str, _Watched] = {}
        self.next_measurement: Optional[float] = None
        """When `measure` has something to do next, in monotonic seconds."""

    def begin(self, job: ActiveJob) -> None:
        """Enforce the limit of a job that was just started."""
        if self._groups is None:
            self._groups = MemoryGroups(self._log)
            self._kernel_kills.find_cgroup()
        group = self._groups.limit(job.id, job.start.pid, job.memory_limit)
        if group:
            self._in_groups[job.id] = group
            return
        self._watched[job.id] = _Watched(job)
        soon = time.monotonic() + SHORTEST_PAUSE
        self.next_measurement = soon if self.next_measurement is None else min(self.next_measurement, soon)

    def measure(self, now: float, jobs: Dict[str, ActiveJob]) -> List[Tuple[ActiveJob, str]]:
        """Measure all watched jobs. Returns the jobs above their limits, each with its message."""
        over = []
        began = _cpu_time()
        snapshot = process_tree.Snapshot()
        pause = LONGEST_PAUSE
        for id, watched in self._watched.items():
            limit = jobs[id].memory_limit
            members = watched.termination.find_members(snapshot)
            used = _memory_of(members, watched.peak)
            watched.peak = max(watched.peak, used)
            if used > limit:
                over.append((jobs[id], over_limit(used, limit)))
            elif not watched.used_at:
                pause = SHORTEST_PAUSE
            elif used > watched.used:
                growth = (used - watched.used) / max(now - watched.used_at, 0.001)
                pause = min(pause, (limit - used) / growth / 2)
            watched.used, watched.used_at = used, now
        # Not the time that passed: on a busy machine this thread waits for a core, and jobs continue meanwhile.
        work = _cpu_time() - began
        self.next_measurement = time.monotonic() + max(pause, SHORTEST_PAUSE, min(work / MOST_WORK, LONGEST_REST))
        return over

    def ended(self, job: ActiveJob) -> None:
        """Complete the usage of a job without processes, and its reason if the kernel has ended it. To be called for
        jobs with a limit, and for jobs that `may_be_out_of_memory`."""
        watched = self._watched.pop(job.id, None)
        if watched is not None and job.usage is not None:
            job.usage = job.usage._replace(memory=max(job.usage.memory, watched.peak))
        if not self._watched:
            self.next_measurement = None
        kernel_killed = may_be_out_of_memory(job) and self._kernel_kills.took_one()
        group = self._in_groups.pop(job.id, "")
        if group and self._groups is not None:
            counted = self._groups.ended(group)
            if job.usage is not None:
                job.usage = _with_group(job.usage, counted.user, counted.system, counted.peak)
            if counted.oom_kills and job.reason == EndReason.EXIT and job.exit_code:
                job.reason = EndReason.MEMORY
                job.message = at_limit(job.memory_limit) if counted.reached_limit else OUT_OF_MEMORY
        if kernel_killed and job.reason == EndReason.EXIT:
            job.reason, job.message = EndReason.MEMORY, OUT_OF_MEMORY

    def close(self) -> None:
        """To be called when no process of a job is left."""
        if self._groups is not None:
            self._groups.remove_left()


def may_be_out_of_memory(job: ActiveJob) -> bool:
    return job.exit_code in _KILLED and job.reason == EndReason.EXIT


def _with_group(usage: Usage, user: int, system: int, peak: int) -> Usage:
    """The usage with the counters of the cgroup, also of processes that nobody has waited for. Its CPU time is less
    where the job ran a moment before it was put there."""
    return usage._replace(
        user=max(user, usage.user), system=max(system, usage.system), memory=peak if peak else usage.memory
    )


def _cpu_time() -> float:
    """CPU time of this thread in seconds."""
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_utime + used.ru_stime


def _memory_of(pids: Iterable[int], peak: int) -> int:
    """The memory of processes in KiB. Memory that several of them share counts once, where that can make a peak."""
    residents = {pid: _resident(pid) for pid in pids}
    total = sum(residents.values())
    if len(residents) == 1 or total <= peak:
        return total
    return sum([_proportional(pid) for pid in residents])


def _resident(pid: int) -> int:
    fields = _content("/proc/%d/statm" % pid).split()
    return int(fields[1]) * _PAGE if len(fields) > 1 else 0


def _proportional(pid: int) -> int:
    """Memory of a process with its part of what it shares; all its memory where the kernel does not tell."""
    for line in _content("/proc/%d/smaps_rollup" % pid).splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1])
    # Read now: a process that has just ended has none, and had all of what it shared.
    return _resident(pid)


class _KernelKills:
    """Counts the processes that the kernel has killed in the cgroup of this process because memory ran out, without
    cgroups below it."""

    def __init__(self) -> None:
        self._paths: List[str] = []
        self._seen = 0
        self.find_cgroup()

    def find_cgroup(self) -> None:
        """Look up the cgroup of this process, which may have been moved to another one."""
        path = _events_path()
        if path and path not in self._paths:
            self._paths.append(path)
            self._seen += _kills(path)

    def took_one(self) -> bool:
        """Whether there was one more than calls of this method have reported."""
        if sum([_kills(path) for path in self._paths]) <= self._seen:
            return False
        self._seen += 1
        return True


def _kills(path: str) -> int:
    for line in _content(path).splitlines():
        if line.startswith(b"oom_kill "):
            return int(line.split()[1])
    return 0


def _events_path() -> str:
    """The file that counts these kills: of version 2 of cgroups, or of version 1."""
    own = own_cgroup()
    # Since Linux 5.2. The file memory.events also counts kills in cgroups below, such as those of jobs.
    if own and os.path.exists(own + "/memory.events.local"):
        return own + "/memory.events.local"
    for line in _content("/proc/self/cgroup").decode("utf-8", "replace").splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return "/sys/fs/cgroup/memory%s/memory.oom_control" % path
    return ""


def _content(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""
