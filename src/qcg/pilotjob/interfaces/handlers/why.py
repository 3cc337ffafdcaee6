from __future__ import annotations

import asyncio
import time
from typing import Any

from qcg.pilotjob.core.cancel import find
from qcg.pilotjob.core.core_state import name_of
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.core.why import (
    Reason,
    WaitExplainer,
    iteration_counts,
    representative_iteration,
    why_ended,
    why_left,
    why_under_way,
)
from qcg.pilotjob.description.requests import Why
from qcg.pilotjob.interfaces.books import Books
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.report.formats import timestamp
from qcg.pilotjob.report.tail import end_of_output

AT_ONCE = 2000
"""Names that are looked at before others are served."""


async def why(books: Books, request: Why) -> Answer:
    """What jobs and iterations wait for, where they run, or how they ended; with the last lines of what failed."""
    jobs: dict[str, Any] = {}
    names = request.names
    for first in range(0, len(names), AT_ONCE):
        jobs.update(_explanations(books, names[first : first + AT_ONCE]))
        await asyncio.sleep(0)
    # Only now, when all is told as it was: files may be slow.
    for entry in jobs.values():
        data = entry.get("data", {})
        await _add_last_lines(data)
        await _add_last_lines(data.get("first", {}))
    return ok({"jobs": jobs})


def _explanations(books: Books, names: list[str]) -> dict[str, Any]:
    """As things are at one moment."""
    look = WaitExplainer(books.state, time.time(), stalled=books.stalled)
    jobs: dict[str, Any] = {}
    for name in names:
        found = find(books.state, name)
        if isinstance(found, str):
            jobs[name] = {"status": 1, "message": found}
        else:
            jobs[name] = {"status": 0, "data": {"jobName": name, **_explain(books, look, *found)}}
    return jobs


def _explain(books: Books, look: WaitExplainer, job: Job, position: int) -> dict[str, Any]:
    state = books.state.state_of(job, position)
    if position >= 0 or job.iterations is None:
        return _fields(state, *_reason(books, look, job, position))
    told: dict[str, Any] = {"status": state.name, "iterations": iteration_counts(job)}
    counts = ", ".join(f"{number} {name}" for name, number in told["iterations"].items())
    telling = representative_iteration(job)
    if telling is None:
        return {**told, "reason": "succeeded", "sentence": f"it has succeeded, with all its iterations ({counts})"}
    name = name_of(job, telling)
    telling_state = job.iterations.state(telling)
    reason, streams = _reason(books, look, job, telling)
    first = {"jobName": name, **_fields(telling_state, reason, streams)}
    sentence = f"its iterations are {counts}; the first that is {telling_state.name}, {name}: {reason.sentence}"
    return {**told, "reason": reason.kind, "sentence": sentence, "first": first}


def _reason(books: Books, look: WaitExplainer, job: Job, position: int) -> tuple[Reason, dict[str, str]]:
    """Why a job without iterations, or one iteration, is where it is; and the files that it writes to."""
    iterations = job.iterations
    state = books.state.state_of(job, position)
    run = job.attempt if iterations is None else iterations.attempts.get(position)
    if not books.alive and not state.is_final:
        reason = why_left(run, interrupted=books.was_interrupted(job, position))
        return reason, {} if run is None else books.stories.streams_of(job, position, run.grant)
    if run is not None:
        since = timestamp(run.started or run.scheduled)
        leaving = books.state.cleanups.get(run.id)
        away = books.state.unreachable_since
        silent = {part.node: timestamp(away[part.node]) for part in run.grant.parts if part.node in away}
        return why_under_way(run, since, leaving, silent), books.stories.streams_of(job, position, run.grant)
    if state is State.QUEUED:
        return look.why_waiting(job, position, books.descriptions.of(job)), {}
    story = books.stories.story_of(job, position)
    streams = {} if story.grant is None else books.stories.streams_of(job, position, story.grant, story)
    return why_ended(story.state, story.message, story.exit_code), streams


def _fields(state: State, reason: Reason, streams: dict[str, str]) -> dict[str, Any]:
    return {
        "status": state.name,
        "reason": reason.kind,
        "sentence": reason.sentence,
        **reason.details,
        **streams,
    }


async def _add_last_lines(fields: dict[str, Any]) -> None:
    """Of the errors that a failed job has written, or else of its output."""
    if fields.get("reason") == "failed":
        path, lines = await asyncio.get_running_loop().run_in_executor(None, end_of_output, fields)
        if lines:
            fields["lastLines"] = lines
            fields["lastLinesOf"] = path
