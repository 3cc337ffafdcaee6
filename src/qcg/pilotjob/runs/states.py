"""The states of runs, determined from their files."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

import msgspec

from qcg.pilotjob.core.job_states import State, counts_by_name
from qcg.pilotjob.journal import aggregates
from qcg.pilotjob.journal.damage import in_words, unreadable_of
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.held_jobs import HeldJobs
from qcg.pilotjob.journal.metadata import BATCH_SYSTEM, FILE_REQUESTS_DONE, FILE_REQUESTS_TOTAL, NODES_OF_ALLOCATION
from qcg.pilotjob.journal.registry_files import FILE_NAME
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.runs.liveness import has_agents, hosts_with_attempts
from qcg.pilotjob.runs.manager_process import is_manager_alive, registry_holder
from qcg.pilotjob.runs.rundir import LOG_NAME
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import ContactError

_FILES_OF_MANAGER = (FILE_NAME, f"{FILE_NAME}-wal", LOG_NAME, "jobs.report")


class RunState(Enum):
    LIVE = "live"
    """It has a live manager."""
    ENDED = "ended"
    """All its jobs are final."""
    LEFT = "left"
    """Its manager ended with unfinished jobs or requests."""
    CRASHED = "crashed"
    """Its manager died with unfinished jobs or requests."""
    EMPTY = "empty"
    """It has no registry: it is about to start, or could not start."""
    DAMAGED = "damaged"
    """A part of its registry, or all of it, cannot be read: jobs that are left may be missing in it."""


class RunInfo(msgspec.Struct, frozen=True):
    """The state of a run, determined from its files."""

    run_dir: Path
    state: RunState
    last_change: float
    """Epoch seconds of the last write to the registry, the log or the report."""
    jobs: dict[str, int] = {}
    """Numbers of jobs by state; states without jobs are left out."""
    requests_left: int = 0
    """Requests of its file that were not executed."""
    address: str = ""
    """Address of a live manager with a network interface."""
    pid: int = 0
    """Pid of a live manager; 0 when it is not known."""
    host: str = ""
    allocation: str = ""
    """The allocation that the latest manager used."""
    batch_system: str = ""
    """Name of the batch system of the allocation."""
    only_held: bool = False
    """Whether only held jobs, and jobs that wait for them, are left."""
    agents: bool | None = False
    """Whether agents without a manager are alive; None when that is not known."""
    problem: str = ""
    """The unreadable part of the registry, or the reason."""
    hosts: tuple[str, ...] = ()
    """Remote hosts on which jobs of the run may still be running."""

    @property
    def total_jobs(self) -> int:
        return sum(self.jobs.values())

    @property
    def jobs_left(self) -> int:
        return sum(self.jobs.get(state.name, 0) for state in State if not state.is_final)

    def age(self, now: float) -> float:
        """Seconds since the last change."""
        return max(now - self.last_change, 0.0)


def inspect_run(run_dir: Path) -> RunInfo:
    """The state of one run. Raises FileNotFoundError when its directory is removed meanwhile."""
    run_dir = run_dir.absolute()
    last_change = _last_change(run_dir)
    live = _live_manager(run_dir)
    if not (run_dir / FILE_NAME).exists():
        return RunInfo(run_dir, RunState.EMPTY, last_change) if live is None else _live(run_dir, last_change, live)
    try:
        with snapshot(run_dir / FILE_NAME) as connection:
            counts = aggregates.job_states(connection)
            done = FILE_REQUESTS_DONE.read(connection)
            total = FILE_REQUESTS_TOTAL.read(connection)
            allocation, system = NODES_OF_ALLOCATION.read(connection), BATCH_SYSTEM.read(connection)
            unreadable = unreadable_of(connection)
            only_held = live is None and HeldJobs(connection).are_all_left()
    except (JournalError, OSError) as error:
        if live is not None:
            return _live(run_dir, last_change, live)
        return RunInfo(run_dir, RunState.DAMAGED, last_change, problem=str(error), agents=has_agents(run_dir))
    jobs = counts_by_name(counts)
    left = max(total - done, 0)
    found = RunInfo(
        run_dir,
        RunState.ENDED,
        last_change,
        jobs,
        left,
        allocation=allocation,
        batch_system=system,
        only_held=only_held,
    )
    if live is not None:
        address, pid, host = live
        return msgspec.structs.replace(found, state=RunState.LIVE, address=address, pid=pid, host=host)
    agents = has_agents(run_dir)
    found = msgspec.structs.replace(found, hosts=hosts_with_attempts(run_dir))
    if unreadable:
        problem = f"not readable: {in_words(unreadable)}"
        return msgspec.structs.replace(found, state=RunState.DAMAGED, problem=problem, agents=agents)
    if not (found.jobs_left or found.requests_left):
        return msgspec.structs.replace(found, agents=agents)
    state = RunState.CRASHED if _died(run_dir) else RunState.LEFT
    return msgspec.structs.replace(found, state=state, agents=agents)


def _live(run_dir: Path, last_change: float, live: tuple[str, int, str]) -> RunInfo:
    address, pid, host = live
    return RunInfo(run_dir, RunState.LIVE, last_change, address=address, pid=pid, host=host)


def _live_manager(run_dir: Path) -> tuple[str, int, str] | None:
    """Address, pid and host of the live manager, as far as they are known; None without a live manager."""
    try:
        found = contact.read(run_dir)
    except (ContactError, OSError):
        found = None
    if found is not None and is_manager_alive(run_dir, found):
        return found.clients.address if found.clients else "", found.pid, found.host
    holder = registry_holder(run_dir)
    return None if holder is None else ("", holder, "")


def _died(run_dir: Path) -> bool:
    """Whether the manager died: one that ends removes its contact file, or its pid from it."""
    try:
        found = contact.read(run_dir)
    except (ContactError, OSError):
        return False
    return found is not None and found.pid != 0


def _last_change(run_dir: Path) -> float:
    times = []
    for name in _FILES_OF_MANAGER:
        try:
            times.append((run_dir / name).stat().st_mtime)
        except OSError:
            continue
    return max(times) if times else run_dir.stat().st_mtime


def inspect_runs(runs: list[Path]) -> list[RunInfo]:
    """The states of these runs in the same order, without runs that were removed meanwhile."""
    found = []
    for run_dir in runs:
        try:
            found.append(inspect_run(run_dir))
        except FileNotFoundError:
            continue
    return found


def age_in_words(seconds: float) -> str:
    """`5 s`, `12 min`, `3 h`, `8 days`: the largest unit that fits."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= (2 * size if unit == "days" else size):
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"
