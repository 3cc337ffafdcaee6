"""Creates the report on a run from its run directory, whether the run has ended, crashed or is still running."""

from __future__ import annotations

import math
import os
import sqlite3
from pathlib import Path
from typing import Any

from qcg.pilotjob.core.job_states import State, counts_by_name
from qcg.pilotjob.journal import aggregates
from qcg.pilotjob.journal.aggregates import Used
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.journal.metadata import RESOURCES, DamagedMetadata
from qcg.pilotjob.journal.records import JobRecord
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.report.errors import ReportError
from qcg.pilotjob.report.formats import AGENT_MEMORY
from qcg.pilotjob.report.record import cpu_efficiency, memory_of
from qcg.pilotjob.report.recorded_failures import RecordedFailures
from qcg.pilotjob.report.run_report import RunReport, Slow
from qcg.pilotjob.report.summary import Outcome, Summary, statistics_of, summarise
from qcg.pilotjob.runs.discovery import ForeignRunError, RunsError, newest_readable_run
from qcg.pilotjob.runs.manager_process import has_manager

NONE_STARTED = "none of its iterations was started, because of what they wait for"


def analyse(path: Path, most: int = 10, *, ended: bool = False) -> RunReport:
    """The report on a run directory, or on the newest one in a working directory.

    At most `most` of the slowest and of the failed jobs are listed. `ended`: the manager has ended, even if the
    registry does not say so.
    """
    try:
        run_dir, foreign = run_of(path)
        # Checked before the registry is read: if the manager ends in between, the report is still complete.
        at_work = not (ended or foreign) and has_manager(run_dir)
        with snapshot(run_dir / FILE_NAME, foreign=foreign, whole=not ended) as connection:
            return _Report(run_dir, connection, foreign).of(summarise(connection, most, at_work=at_work))
    except (JournalError, RunsError) as error:
        raise ReportError(str(error)) from error


def run_of(path: Path) -> tuple[Path, bool]:
    """The run to report on, and whether it belongs to another user: such a run is found only by its run directory."""
    try:
        return newest_readable_run(path), False
    except ForeignRunError:
        return path, True


class _Report:
    """Turns the summary of a registry into a report, with messages and the end of failed jobs' output."""

    def __init__(self, run_dir: Path, connection: sqlite3.Connection, foreign: bool) -> None:
        self.directory = run_dir.absolute()
        self.connection = connection
        self.failures = RecordedFailures(run_dir, connection, foreign=foreign)
        self.unreadable = self.failures.unreadable

    def of(self, summary: Summary) -> RunReport:
        cores_of_nodes = self._cores_of_nodes()
        cores = None if cores_of_nodes is None else sum(cores_of_nodes)
        possible = (cores or 0) * summary.span
        return RunReport(
            directory=os.fspath(self.directory),
            finished=summary.finished,
            at_work=summary.at_work,
            jobs=counts_by_name(summary.jobs),
            iterations=counts_by_name(summary.iterations),
            started=summary.first if summary.jobs else None,
            ended=summary.last if summary.jobs else None,
            queue_times=statistics_of(summary.queue_times),
            run_times=statistics_of(summary.run_times),
            nodes=None if cores_of_nodes is None else len(cores_of_nodes),
            cores=cores,
            busy_core_seconds=math.fsum(summary.core_seconds.values()),
            utilisation=self._own_core_seconds(summary) / possible if possible else None,
            slowest=[self._slow(outcome) for outcome in summary.slowest],
            failures=[self.failures.of(outcome) for outcome in summary.failures],
            failed=summary.failed,
            unlisted="" if summary.unlisted is None else summary.unlisted.name,
            repeated=dict(sorted(summary.repeated.items(), key=lambda one: (-one[1], one[0]))),
            omitted=[f"{job.name} OMITTED: {job.message or self._omitted_iterations(job)}" for job in summary.omitted],
            unreadable=self.unreadable,
            **_usage_of(summary.used),
        )

    def _own_core_seconds(self, summary: Summary) -> float:
        """Core-seconds on nodes of the run, without remote hosts."""
        return math.fsum(
            seconds for node, seconds in summary.core_seconds.items() if node not in self.failures.remote_sites
        )

    def _omitted_iterations(self, job: JobRecord) -> str:
        """The message of an OMITTED job whose iterations were omitted one by one."""
        states = aggregates.iteration_states(self.connection, job.seq)
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

    def _slow(self, outcome: Outcome) -> Slow:
        run = outcome.run
        assert run is not None
        assert run.started is not None
        assert run.ended is not None
        seconds = max(run.ended - run.started, 0.0)
        allocation = "" if run.grant is None else str(run.grant)
        return Slow(
            self.failures.name_of(outcome),
            run.state.name,
            seconds,
            allocation,
            cpu_efficiency(run.usage, run.grant, seconds),
            0 if run.usage is None else run.usage.memory << 10,
            0 if run.grant is None else memory_of(run.grant),
        )


def _usage_of(used: list[Used]) -> dict[str, Any]:
    """The fields of the report about CPU time and memory."""
    # Only the processes on the first node of an attempt are counted.
    on_one_node = [one for one in used if len(one.grant.parts) == 1]
    possible = math.fsum(one.core_seconds for one in on_one_node)
    measured = [one for one in used if one.memory << 10 >= AGENT_MEMORY]
    parts = [(one.memory << 10) / memory_of(one.grant) for one in measured if memory_of(one.grant)]
    return {
        "cpu_seconds": math.fsum(one.cpu_seconds for one in used),
        "cpu_efficiency": math.fsum(one.cpu_seconds for one in on_one_node) / possible if possible else None,
        "max_memory": max((one.memory << 10 for one in used), default=0),
        "memory_efficiency": max(parts, default=None),
    }
