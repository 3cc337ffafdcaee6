from __future__ import annotations

import asyncio
from typing import Any

from msgspec import UNSET

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.named_jobs import find
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.description.iteration import IndexList
from qcg.pilotjob.description.requests import JobInfo
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.interfaces.run_view import RunView
from qcg.pilotjob.report.entries import runtime_strings
from qcg.pilotjob.report.formats import history_text, timestamp
from qcg.pilotjob.report.record import JobEnd, attempt_forms, dependencies_form, remote_form, resources_form, retry_form

AT_ONCE = 1000
"""Number of names or iterations that are looked up before other requests are handled."""


async def job_info(run: RunView, request: JobInfo) -> Answer:
    """Return all details of jobs and iterations."""
    jobs: dict[str, Any] = {}
    for number, name in enumerate(request.names, 1):
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
        found = find(run.state, name)
        if isinstance(found, str):
            jobs[name] = {"status": 1, "message": found}
            continue
        job, position = found
        has_childs = request.with_childs and position < 0 and job.iterations is not None
        childs = await _childs(run, job) if has_childs else None
        if run.state.jobs.get(job.name) is job:
            jobs[name] = {"status": 0, "data": _info(run, name, job, position, childs)}
        else:
            jobs[name] = {"status": 1, "message": f"{name!r} was removed while its iterations were looked up"}
    return ok({"jobs": jobs})


async def _childs(run: RunView, job: Job) -> list[dict[str, Any]]:
    """Entries of all iterations; incomplete when the job is removed meanwhile."""
    assert job.iterations is not None
    childs: list[dict[str, Any]] = []
    for first in range(0, len(job.iterations), AT_ONCE):
        if run.state.jobs.get(job.name) is not job:
            break
        positions = range(first, min(first + AT_ONCE, len(job.iterations)))
        for position, story in run.views.iterations_of(job, positions):
            child: dict[str, Any] = {
                "iteration": job.iterations.indices[position],
                "state": story.state.name,
                "runtime": _runtime(run, job, position, story),
            }
            if story.value is not UNSET:
                child["itval"] = story.value
            if story.message:
                child["messages"] = story.message
            if story.earlier:
                child["attempts"] = attempt_forms(story)
            childs.append(child)
        await asyncio.sleep(0)
    return childs


def _info(run: RunView, name: str, job: Job, position: int, childs: list[dict[str, Any]] | None) -> dict[str, Any]:
    story = run.views.view_of(job, position)
    info: dict[str, Any] = {"jobName": name, "status": story.state.name}
    if story.value is not UNSET:
        info["itval"] = story.value
    elif problem := run.views.row_problem_of(job, position):
        info["rowProblem"] = problem
    if story.message:
        info["messages"] = story.message
    if story.grant is not None:
        info["runtime"] = _runtime(run, job, position, story)
        info["runtime"]["command"] = run.views.command_of(job, position, story.grant)
    description = run.descriptions.of(job)
    info["resources"] = resources_form(description)
    if dependencies := dependencies_form(description):
        info["dependencies"] = dependencies
    if retry := retry_form(description.retry):
        info["retry"] = retry
    if remote := remote_form(description):
        info["remote"] = remote
    if description.priority:
        info["priority"] = description.priority
    if not story.state.is_final and (held := run.state.holds.since(job, position)):
        info["heldSince"] = timestamp(held)
    if story.earlier:
        info["attempts"] = attempt_forms(story)
    if position < 0 and job.iterations is not None:
        info["iterations"] = _iterations(job)
        if childs is not None:
            info["childs"] = childs
    info["history"] = history_text(story.history)
    return info


def _runtime(run: RunView, job: Job, position: int, story: JobEnd) -> dict[str, str]:
    """Runtime details of an attempt, and its output files."""
    streams = {} if story.grant is None else run.views.streams_of(job, position, story.grant, _end(story))
    return {**runtime_strings(story), **streams}


def _end(story: JobEnd) -> JobEnd | None:
    return story if story.state.is_final else None


def _iterations(job: Job) -> dict[str, Any]:
    assert job.iterations is not None
    counts = job.iterations.counts
    indices = job.iterations.indices
    return {
        "start": indices.start,
        "stop": indices.stop,
        **({"step": indices.step} if indices.step != 1 else {}),
        **({"indices": list(indices)} if isinstance(indices, IndexList) else {}),
        "total": len(indices),
        "finished": sum(counts[State.SUCCEED :]),
        "failed": counts[State.FAILED] + counts[State.CANCELED] + counts[State.OMITTED],
    }
