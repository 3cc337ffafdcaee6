"""Makes the report on a run from its directory: one that has ended, that crashed, or that is still going on."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from pathlib import Path

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.host.records import OUTPUT
from qcg.pilotjob.journal import reading, tallies
from qcg.pilotjob.journal.damage import unreadable_of
from qcg.pilotjob.journal.descriptions import DamagedDescription, decode_description
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.journal.metadata import RESOURCES, DamagedMetadata
from qcg.pilotjob.journal.records import JobRecord, RunRecord
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.launch.compose import stream_paths
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.report.errors import ReportError
from qcg.pilotjob.report.run_report import Failure, RunReport, Slow
from qcg.pilotjob.report.summary import Ending, Summary, statistics_of, summarise
from qcg.pilotjob.report.tail import end_of_output
from qcg.pilotjob.runs.discovery import ForeignRunError, RunsError, has_manager, with_registry

NONE_STARTED = "none of its iterations was started, because of what they wait for"


def analyse(path: Path, most: int = 10, *, ended: bool = False) -> RunReport:
    """The report on a run directory, or on the newest one in a working directory.

    At most `most` of the slowest and of the failed jobs are listed. `ended`: its manager is known to be at work no
    more, although it may not have been able to write that.
    """
    try:
        run_dir, foreign = _run_of(path)
        # Before its registry is read: what was written last is seen, when it has just ended.
        at_work = not (ended or foreign) and has_manager(run_dir)
        with snapshot(run_dir / FILE_NAME, foreign=foreign, whole=not ended) as connection:
            return _Report(run_dir, connection, foreign).of(summarise(connection, most, at_work=at_work))
    except (JournalError, RunsError) as error:
        raise ReportError(str(error)) from error


def _run_of(path: Path) -> tuple[Path, bool]:
    """The run to report on, and whether it is another user's: such a run has to be named itself."""
    try:
        return with_registry(path), False
    except ForeignRunError:
        return path, True


class _Report:
    """Puts into words what the summary has kept."""

    def __init__(self, run_dir: Path, connection: sqlite3.Connection, foreign: bool) -> None:
        self.foreign = foreign
        self.directory = run_dir.absolute()
        self.connection = connection
        self.unreadable = unreadable_of(connection)
        self.site = Site(
            root_wd=os.fspath(self.directory.parent), instance="", output=os.fspath(self.directory / OUTPUT)
        )

    def of(self, summary: Summary) -> RunReport:
        cores_of_nodes = self._cores_of_nodes()
        cores = None if cores_of_nodes is None else sum(cores_of_nodes)
        possible = (cores or 0) * summary.span
        return RunReport(
            directory=os.fspath(self.directory),
            finished=summary.finished,
            at_work=summary.at_work,
            jobs=_by_name(summary.jobs),
            iterations=_by_name(summary.iterations),
            started=summary.first if summary.jobs else None,
            ended=summary.last if summary.jobs else None,
            queue_times=statistics_of(summary.queue_times),
            run_times=statistics_of(summary.run_times),
            nodes=None if cores_of_nodes is None else len(cores_of_nodes),
            cores=cores,
            busy_core_seconds=summary.busy_core_seconds,
            utilisation=summary.busy_core_seconds / possible if possible else None,
            slowest=[self._slow(ending) for ending in summary.slowest],
            failures=[self._failure(ending) for ending in summary.failures],
            failed=summary.failed,
            omitted=[f"{job.name} OMITTED: {job.message or self._omitted_iterations(job)}" for job in summary.omitted],
            unreadable=self.unreadable,
        )

    def _omitted_iterations(self, job: JobRecord) -> str:
        """The reason of an OMITTED job whose iterations were decided one by one."""
        states = tallies.iteration_states(self.connection, job.seq)
        others = [f"{states[state]} {state.name}" for state in State if states[state] and state is not State.OMITTED]
        if not others:
            return NONE_STARTED
        omitted = job.iterations - sum(states[state] for state in State if state is not State.OMITTED)
        was, waits = ("was", "it waits") if omitted == 1 else ("were", "they wait")
        return (
            f"{omitted} of its {job.iterations} iterations {was} not started, because of what {waits} for"
            f" (the others: {', '.join(others)})"
        )

    def _cores_of_nodes(self) -> list[int] | None:
        try:
            nodes = RESOURCES.read(self.connection)
            return None if nodes is None else [node.cores for node in nodes]
        except DamagedMetadata as error:
            self.unreadable.append(f"meta {RESOURCES.name!r}: {error}")
            return None

    def _slow(self, ending: Ending) -> Slow:
        run = ending.run
        assert run is not None
        assert run.started is not None
        assert run.ended is not None
        seconds = max(run.ended - run.started, 0.0)
        allocation = "" if run.grant is None else str(run.grant)
        return Slow(self._name(ending, self._description(ending)), run.state.name, seconds, allocation)

    def _failure(self, ending: Ending) -> Failure:
        description = self._description(ending)
        streams = (
            {} if description is None or ending.run is None else self._streams(ending.job.name, description, ending.run)
        )
        # Another user's run names any file, also one of the reader's that nobody else should see.
        path, lines = end_of_output({} if self.foreign else streams)
        return Failure(
            name=self._name(ending, description),
            message=ending.job.message if ending.run is None else ending.run.message,
            exit_code=None if ending.run is None else ending.run.exit_code,
            stderr=streams.get("stderr"),
            last_lines=lines,
            last_lines_of=path,
        )

    def _description(self, ending: Ending) -> JobDescription | None:
        job = ending.job
        spec = reading.spec_of(self.connection, job.seq)
        try:
            return None if spec is None else decode_description(spec, job.seq, job.name)
        except DamagedDescription as error:
            self.unreadable.append(str(error))
            return None

    def _name(self, ending: Ending, description: JobDescription | None) -> str:
        if ending.run is None or ending.run.position < 0 or description is None or description.iteration is None:
            return ending.job.name
        return f"{ending.job.name}:{description.iteration.indices()[ending.run.position]}"

    def _streams(self, job: str, description: JobDescription, record: RunRecord) -> dict[str, str]:
        """The files that this run wrote to, variables in place as at its launch, and those of its saved output."""
        grant = record.grant or Grant(())
        named = stream_paths(description, job, record.position, grant, self.site, saved=False)
        saved = stream_paths(description, job, record.position, grant, self.site, saved=bool(record.pid))
        return {stream: path for stream, path in saved.items() if stream in named or os.path.exists(path)}


def _by_name(counts: Counter[State]) -> dict[str, int]:
    return {state.name: counts[state] for state in State if counts[state]}
