from __future__ import annotations

import asyncio
import time
from typing import Any

from qcg.pilotjob.core.core_state import name_of
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.named_jobs import find
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.core.why import (
    Reason,
    WaitExplainer,
    iteration_counts,
    representative_iteration,
    why_ended,
    why_under_way,
)
from qcg.pilotjob.core.why_left import why_left
from qcg.pilotjob.description.requests import Why
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.interfaces.run_view import RunView
from qcg.pilotjob.manager.output_tails import OutputTails
from qcg.pilotjob.report.formats import to_second
from qcg.pilotjob.report.tail import has_started

AT_ONCE = 2000
"""Number of names that are explained before other requests are handled."""


async def why(run: RunView, request: Why) -> Answer:
    """Explain the states of jobs and iterations, with the last lines of output of failed ones."""
    jobs: dict[str, Any] = {}
    names = request.names
    for first in range(0, len(names), AT_ONCE):
        jobs.update(_explanations(run, names[first : first + AT_ONCE]))
        await asyncio.sleep(0)
    # After all explanations, which describe one moment: reading files may take long.
    tails = run.output_tails
    for entry in jobs.values():
        data = entry.get("data", {})
        await _add_last_lines(tails, data)
        await _add_last_lines(tails, data.get("first", {}))
    return ok({"jobs": jobs})


def _explanations(run: RunView, names: list[str]) -> dict[str, Any]:
    """Entries of the reply by name, without the last lines of output."""
    explainer = WaitExplainer(run.state, time.time(), stalled=run.stalled, show_time=to_second)
    jobs: dict[str, Any] = {}
    for name in names:
        found = find(run.state, name)
        if isinstance(found, str):
            jobs[name] = {"status": 1, "message": found}
        else:
            jobs[name] = {"status": 0, "data": {"jobName": name, **_explain(run, explainer, *found)}}
    return jobs


def _explain(run: RunView, explainer: WaitExplainer, job: Job, position: int) -> dict[str, Any]:
    state = run.state.state_of(job, position)
    if position >= 0 or job.iterations is None:
        return _fields(state, *_reason(run, explainer, job, position))
    fields: dict[str, Any] = {"status": state.name, "iterations": iteration_counts(job)}
    counts = ", ".join(f"{number} {name}" for name, number in fields["iterations"].items())
    shown = representative_iteration(job)
    if shown is None:
        return {**fields, "reason": "succeeded", "sentence": f"it has succeeded, with all its iterations ({counts})"}
    name = name_of(job, shown)
    shown_state = job.iterations.state(shown)
    reason, streams = _reason(run, explainer, job, shown)
    first = {"jobName": name, **_fields(shown_state, reason, streams)}
    sentence = f"its iterations are {counts}; the first that is {shown_state.name}, {name}: {reason.sentence}"
    return {**fields, "reason": reason.kind, "sentence": sentence, "first": first}


def _reason(run: RunView, explainer: WaitExplainer, job: Job, position: int) -> tuple[Reason, dict[str, str]]:
    """The reason for the state of a job without iterations or of one iteration, and its output files."""
    iterations = job.iterations
    state = run.state.state_of(job, position)
    attempt = job.attempt if iterations is None else iterations.attempts.get(position)
    if not run.alive and not state.is_final:
        held = run.state.holds.since(job, position)
        since = to_second(held) if held else ""
        reason = why_left(
            attempt,
            interrupted=run.was_interrupted(job, position),
            held_since=since,
            prerequisite=run.held_prerequisite(job),
        )
        return reason, {} if attempt is None else run.views.streams_of(job, position, attempt.grant)
    if attempt is not None:
        since = to_second(attempt.started or attempt.scheduled)
        cleanup = run.state.cleanups.get(attempt.id)
        unreachable = run.state.unreachable_since
        nodes = [part.node for part in attempt.grant.parts if part.node in unreachable]
        reasons = run.state.unreachable_reasons
        silent = {
            node: to_second(unreachable[node]) + (f": {reasons[node]}" if node in reasons else "") for node in nodes
        }
        return why_under_way(attempt, since, cleanup, silent), run.views.streams_of(job, position, attempt.grant)
    if state is State.QUEUED:
        return explainer.why_waiting(job, position, run.descriptions.of(job)), {}
    end = run.views.view_of(job, position)
    streams: dict[str, str] = {}
    # Files of an attempt that was not started may exist, with the output of an earlier one.
    if end.grant is not None and has_started(end):
        streams = run.views.streams_of(job, position, end.grant, end)
    return why_ended(end.state, end.message, end.exit_code), streams


def _fields(state: State, reason: Reason, streams: dict[str, str]) -> dict[str, Any]:
    return {
        "status": state.name,
        "reason": reason.kind,
        "sentence": reason.sentence,
        **reason.details,
        **streams,
    }


async def _add_last_lines(tails: OutputTails, fields: dict[str, Any]) -> None:
    """Add the last lines that a failed job has written to its stderr, or else to its stdout."""
    if fields.get("reason") == "failed":
        path, lines = await tails.read(fields) or ("", [])
        if lines:
            fields["lastLines"] = lines
            fields["lastLinesOf"] = path
