"""Checks before the submission of a run: jobs that could never run in the allocation are reported at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from qcg.pilotjob.cli.console import echo_err
from qcg.pilotjob.cli.request_problems import never_run, problems_of
from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.cluster.time_limits import time_limit
from qcg.pilotjob.common.options import Options, grace_period
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.events import Submit
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.interfaces.file import read_requests
from qcg.pilotjob.journal.descriptions import DamagedDescription
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.journal.metadata import FILE_REQUESTS_DONE, FILE_REQUESTS_TOTAL, OPTIONS, DamagedMetadata
from qcg.pilotjob.journal.saved_run import unfinished_jobs
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.manager.named_counters import counters_of_run, with_named_counters


class Time(msgspec.Struct, frozen=True):
    """The time of a manager in one allocation."""

    limit: str | None
    """Time limit of the allocation, as the user wrote it."""
    time_limit: float | None = None
    """Value of --time-limit: seconds after which the manager ends, where that is earlier."""
    grace: float | None = None

    @property
    def seconds(self) -> float | None:
        minutes = time_limit(self.limit) if self.limit is not None else None
        given = [None if minutes is None else 60.0 * minutes, self.time_limit]
        return min((seconds for seconds in given if seconds is not None), default=None)

    @property
    def for_jobs(self) -> float | None:
        """Seconds from the start until the grace period, in which jobs can start and jobs with a wall time must end."""
        if self.seconds is None:
            return None
        return self.seconds - grace_period(self.grace, self.seconds)

    def __str__(self) -> str:
        of_manager = self.time_limit is not None and self.seconds == self.time_limit
        return f"--time-limit {self.time_limit:g}" if of_manager else f"--time {self.limit}"


class UnfinishedPart(msgspec.Struct, frozen=True):
    """The unfinished part of a run, read from its registry."""

    jobs: list[JobDescription]
    all_read: bool
    """All requests of its file were carried out."""
    options: Options


def read_unfinished_part(run_dir: Path) -> UnfinishedPart:
    """The unfinished part of a run. Raises BatchError when its registry cannot be read."""
    try:
        with snapshot(run_dir / FILE_NAME) as connection:
            jobs = [job.description for job in unfinished_jobs(connection)]
            total, done = FILE_REQUESTS_TOTAL.read(connection), FILE_REQUESTS_DONE.read(connection)
            options = OPTIONS.read(connection) or Options()
    except (DamagedMetadata, DamagedDescription) as error:
        raise BatchError(f"the registry of {run_dir} is damaged: {error}") from None
    except JournalError as error:
        raise BatchError(str(error).rstrip(".")) from None
    return UnfinishedPart(jobs, options.file_path is None or 0 < total == done, options)


def _core(nodes: Sequence[NodeSpec], named: tuple[str, ...]) -> Core:
    """A core with these nodes and with the counters of `--resource`."""
    specs = with_named_counters(nodes, named)
    return Core(specs, counters=counters_of_run(named, specs))


def check_file(file: Path, nodes: Sequence[NodeSpec], time: Time, wd: Path, named: tuple[str, ...] = ()) -> None:
    """Refuse a request file with jobs that could never run on these nodes. Raises BatchError.

    `wd`: the working directory of the manager, at which relative paths start. `named`: values of `--resource`."""
    core = _core(nodes, named)
    _refuse(str(file), core, problems_of(read_requests(file), core, warnings=[], wd=wd), time)


def check_rest(
    run_dir: Path, jobs: list[JobDescription], nodes: Sequence[NodeSpec], time: Time, named: tuple[str, ...] = ()
) -> None:
    core = _core(nodes, named)
    # Their prerequisites have ended, or are among them.
    happened = core.handle(Submit([msgspec.structs.replace(job, after=(), outcomes=()) for job in jobs]), 0.0)
    _refuse(str(run_dir), core, never_run(happened), time)


def _refuse(what: str, core: Core, problems: list[str], time: Time) -> None:
    seconds = time.for_jobs
    if seconds is not None and seconds <= 0:
        raise BatchError(
            f"{time} is not longer than --grace {time.grace:g}, the seconds before the end in which no job is started:"
            " nothing would ever run; give more time, or less grace"
        )
    problems += _too_long(core, time)
    for problem in problems:
        echo_err(problem)
    if problems:
        against = (
            f"{pluralize(core.state.pool.total_cores, 'core')} on {pluralize(len(core.state.pool.local.nodes), 'node')}"
        )
        raise BatchError(
            f"{what} has {pluralize(len(problems), 'problem')}, checked against {against}; nothing was submitted"
        )


def _too_long(core: Core, time: Time) -> list[str]:
    """Sentences about jobs whose wall time is longer than the allocation: they are never started."""
    whole, seconds = time.seconds, time.for_jobs
    if whole is None or seconds is None:
        return []
    longest = {job.name: max((entry.wall_time for entry in job.entries), default=0) for job in core.state.jobs.values()}
    return [
        f"job {name!r} can never run: its wall time of {wanted:g} s is not over within {time}, less the"
        f" {whole - seconds:g} s before the end (--grace)"
        for name, wanted in longest.items()
        if wanted >= seconds
    ]
