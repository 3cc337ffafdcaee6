"""Details of one job or iteration from a registry: attempts, usage, output files, dependencies, description."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from qcg.pilotjob.common.options import Options
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Attempt, Grant, Job
from qcg.pilotjob.core.why import why_ended, why_under_way
from qcg.pilotjob.core.why_left import why_left
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.executors.ssh.marker import read_directories
from qcg.pilotjob.host.records import OUTPUT, Usage
from qcg.pilotjob.journal import queries
from qcg.pilotjob.journal.descriptions import Descriptions, decode_description
from qcg.pilotjob.journal.held_jobs import HeldJobs
from qcg.pilotjob.journal.metadata import OPTIONS, DamagedMetadata
from qcg.pilotjob.journal.records import AttemptRecord, JobRecord
from qcg.pilotjob.journal.registry_reader import RegistryReader
from qcg.pilotjob.journal.schema import place
from qcg.pilotjob.launch.remote import sites_of_paths
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.manager.job_views import JobViews
from qcg.pilotjob.report.formats import to_second
from qcg.pilotjob.report.record import (
    cpu_efficiency,
    dependencies_form,
    execution_form,
    remote_form,
    resources_form,
    retry_form,
)
from qcg.pilotjob.rows.store import DIRECTORY as ROWS
from qcg.pilotjob.rows.store import RowFiles
from qcg.pilotjob.watch.job_lists import (
    find_job,
    indices_of,
    iteration_line,
    job_line,
    peak_memory,
    shown_grant,
)
from qcg.pilotjob.watch.source import Action, AttemptLine, JobDetails, JobLine

_ORDER = ("QUEUED", "EXECUTING", "SCHEDULED", "FAILED", "OMITTED", "CANCELED")
"""States of iterations in the order in which they explain an iterated job best."""


class FoundJob(NamedTuple):
    """A job, or one of its iterations, in a registry."""

    record: JobRecord
    position: int
    """-1 for the job as a whole."""
    line: JobLine
    attempt: AttemptRecord | None
    description: JobDescription

    @property
    def state(self) -> State:
        return State[self.line.state]


def find(connection: sqlite3.Connection, name: str) -> FoundJob | None:
    """The job or iteration with a name such as `job` or `job:3`."""
    wanted, colon, index = name.partition(":")
    record = find_job(connection, wanted)
    if record is None:
        return None
    spec = queries.spec_of(connection, record.seq)
    assert spec is not None
    description = decode_description(spec, record.seq, record.name)
    if not colon:
        line = job_line(connection, record.seq)
        assert line is not None
        attempt = None if record.iterations else next(queries.attempts_of(connection, record.seq, [-1]), None)
        return FoundJob(record, -1, line, attempt, description)
    if not record.iterations:
        return None
    indices = indices_of(connection, record)
    try:
        position = Iterations(indices).position_of(index)
    except OverflowError:
        return None
    if position is None:
        return None
    line = iteration_line(connection, record, indices, position)
    attempt = next(queries.attempts_of(connection, record.seq, [position]), None)
    return FoundJob(record, position, line, attempt, description)


def details_of(connection: sqlite3.Connection, run_dir: Path, found: FoundJob, *, alive: bool) -> JobDetails:
    """All recorded details of a job, without dependencies. `alive`: a manager runs."""
    return JobDetails(
        found.line,
        _why(connection, found, alive=alive),
        tuple(_attempts(connection, found)),
        streams_of(connection, run_dir, found),
        (),
        msgspec.json.encode(_description_form(found.description)).decode(),
        tuple(_actions(connection, found)) if alive else (),
    )


def streams_of(connection: sqlite3.Connection, run_dir: Path, found: FoundJob) -> dict[str, str]:
    """The output files of the last attempt, as `JobViews.streams_of` has them."""
    if found.attempt is None or found.attempt.grant is None:
        return {}
    registry = RegistryReader(connection)
    remote = sites_of_paths(read_directories(run_dir))
    views = JobViews(registry, Descriptions(registry), _site(run_dir, registry), remote)
    job = _job(found)
    end = views.view_of(job, found.position) if found.state.is_final else None
    return views.streams_of(job, found.position, found.attempt.grant, end)


def _job(found: FoundJob) -> Job:
    """The job as in the manager, with the fields that determine its output files."""
    record = found.record
    job = Job(record.seq, record.name, b"", record.submitted)
    job.spec = None
    job.state = found.state if found.position < 0 else record.state
    job.message = record.message
    if found.description.iteration is not None and found.position >= 0:
        job.iterations = Iterations(found.description.iteration.indices())
        job.iterations.set_state(found.position, found.state)
    return job


def _site(run_dir: Path, registry: RegistryReader) -> Site:
    """The site, with the fields that determine paths of output files."""
    try:
        options = registry.metadata(OPTIONS) or Options()
    except DamagedMetadata:
        options = Options()
    root = run_dir.resolve()
    return Site(
        root_wd=str(root.parent),
        instance="",
        output=str(root / OUTPUT),
        keep_output=options.keep_output,
        stream_output=options.stream_output,
        rows=RowFiles(str(root.parent), str(root / ROWS)).row,
    )


# -- attempts -------------------------------------------------------------------------------------------------------


def _attempts(connection: sqlite3.Connection, found: FoundJob) -> list[AttemptLine]:
    past = queries.past_attempts_of(connection, found.record.seq, found.position)
    lines = [
        _attempt_line(number, record.state.name, record, record.cause, record.rerun_at)
        for number, record in enumerate(past, 1)
    ]
    if found.attempt is not None and found.attempt.grant is not None:
        lines.append(_attempt_line(len(lines) + 1, found.attempt.state.name, found.attempt, ""))
    return lines


def _attempt_line(number: int, state: str, record: Any, cause: str, rerun_at: float | None = None) -> AttemptLine:
    seconds = record.ended - record.started if record.started and record.ended else None
    usage: Usage | None = record.usage
    return AttemptLine(
        number,
        state,
        cause,
        record.scheduled,
        record.started,
        record.ended,
        record.exit_code,
        shown_grant(record.grant),
        record.message,
        None if usage is None else usage.cpu,
        cpu_efficiency(usage, record.grant, seconds),
        peak_memory(usage),
        0 if usage is None else usage.read,
        0 if usage is None else usage.written,
        rerun_at,
    )


# -- why ------------------------------------------------------------------------------------------------------------


def _why(connection: sqlite3.Connection, found: FoundJob, *, alive: bool) -> str:
    if found.position < 0 and found.record.iterations:
        return _why_iterated(connection, found, alive=alive)
    if found.state.is_final:
        line = found.line
        return why_ended(found.state, line.message, line.exit_code).sentence
    attempt = _open_attempt(found)
    if not alive:
        key = place(found.record.seq, found.position)
        requeued = connection.execute(
            "SELECT 1 FROM runs WHERE place = ? AND state = 0 AND started > 0", (key,)
        ).fetchone()
        since = held_since(connection, found)
        return why_left(
            attempt,
            interrupted=requeued is not None,
            held_since=to_second(since) if since else "",
            prerequisite=HeldJobs(connection).prerequisite_of(found.record.seq),
        ).sentence
    if attempt is not None:
        return why_under_way(attempt, to_second(attempt.started or attempt.scheduled)).sentence
    since = held_since(connection, found)
    return f"it is held since {to_second(since)}" if since else "it waits to be started"


def _why_iterated(connection: sqlite3.Connection, found: FoundJob, *, alive: bool) -> str:
    """The states of the iterations, and the reason of the first one in the state that explains most."""
    counts = found.line.iterations
    words = ", ".join(f"{number} {name}" for name, number in counts.items())
    state = next((name for name in _ORDER if counts.get(name)), None)
    if state is None:
        return f"it has succeeded, with all its iterations ({words})"
    position = _first_in(connection, found.record, State[state])
    indices = indices_of(connection, found.record)
    if position is None or position >= len(indices):
        return f"its iterations are {words}"
    shown = find(connection, f"{found.record.name}:{indices[position]}")
    assert shown is not None
    reason = _why(connection, shown, alive=alive)
    return f"its iterations are {words}; the first that is {state}, {shown.line.name}: {reason}"


def _first_in(connection: sqlite3.Connection, record: JobRecord, state: State) -> int | None:
    """The position of the first iteration in a state."""
    first, end = place(record.seq, 0), place(record.seq, record.iterations)
    (with_row,) = connection.execute(
        "SELECT min(place) FROM runs WHERE place >= ? AND place < ? AND state = ?", (first, end, int(state))
    ).fetchone()
    without: list[int] = []
    if state is State.QUEUED or state in (record.rest, record.state):
        (begins,) = connection.execute("SELECT count(*) FROM runs WHERE place = ?", (first,)).fetchone()
        row = connection.execute(
            "SELECT place + 1 FROM runs AS r WHERE place >= ? AND place < ?"
            " AND NOT EXISTS (SELECT 1 FROM runs WHERE place = r.place + 1) ORDER BY place LIMIT 1",
            (first, end - 1),
        ).fetchone()
        without = [first] if not begins else [] if row is None else [row[0]]
    found = [*without, *([] if with_row is None else [with_row])]
    return min(found) - first if found else None


def held_since(connection: sqlite3.Connection, found: FoundJob) -> float:
    """Since when a job or iteration is held; 0.0 if it is not."""
    held = _holds(connection, found)
    return held.get(found.position, held.get(-1, 0.0))


def _holds(connection: sqlite3.Connection, found: FoundJob) -> dict[int, float]:
    """Times since which a job (position -1) and its iterations are held; 0.0 for an iteration that was released."""
    return {position: since for seq, position, since in queries.holds(connection) if seq == found.record.seq}


def _actions(connection: sqlite3.Connection, found: FoundJob) -> Iterator[Action]:
    """The actions for a job. An iterated job with held and waiting iterations can be both held and released."""
    if found.state.is_final:
        if found.state is not State.SUCCEED:
            yield "rerun"
        return
    yield "cancel"
    if found.state is not State.QUEUED and not found.line.iterations.get(State.QUEUED.name):
        return
    whole = found.position < 0
    held = _holds(connection, found) if whole else {-1: held_since(connection, found)}
    if not held.get(-1) or not all(held.values()):
        yield "hold"
    if any(held.values()):
        yield "release"


def _open_attempt(found: FoundJob) -> Attempt | None:
    record = found.attempt
    if record is None or record.state.is_final:
        return None
    attempt = Attempt(_job(found), found.position, record.attempt, record.grant or Grant(()), record.scheduled or 0.0)
    attempt.pid, attempt.started, attempt.kill_requested = record.pid, record.started or 0.0, record.kill_requested
    return attempt


# -- the description ------------------------------------------------------------------------------------------------


def _description_form(description: JobDescription) -> dict[str, Any]:
    """The description in the form of request files, without missing and default values."""
    form: dict[str, Any] = {"name": description.name, "execution": execution_form(description.execution)}
    form["resources"] = resources_form(description)
    if description.iteration is not None:
        form["iteration"] = msgspec.to_builtins(description.iteration)
    more = {
        "dependencies": dependencies_form(description),
        "remote": remote_form(description),
        "retry": retry_form(description.retry),
        "attributes": description.attributes,
        "priority": description.priority,
    }
    return {**form, **{key: part for key, part in more.items() if part}}
