from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import Callable
from fnmatch import translate
from operator import itemgetter
from typing import Any

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.description.errors import quoted
from qcg.pilotjob.description.requests import ListJobs
from qcg.pilotjob.interfaces.replies import Answer, error, ok
from qcg.pilotjob.interfaces.run_view import RunView
from qcg.pilotjob.manager.job_views import message_of
from qcg.pilotjob.report.formats import timestamp

AT_ONCE = 5000
"""Number of jobs that are listed before other requests are handled."""
_WILDCARD = re.compile(r"[*?[]")


async def list_jobs(run: RunView, request: ListJobs) -> Answer:
    """List jobs with their states: all, with the position of waiting jobs in the queue, or a page of them."""
    if request.is_complete:
        jobs = await _all_jobs(run)
        return ok({"length": len(jobs), "jobs": jobs})
    selects = request.after is not None or request.states is not None or request.pattern is not None
    if not selects and request.limit is not None and len(run.state.jobs) <= request.limit:
        jobs = await _all_jobs(run)
        return ok({"length": len(jobs), "jobs": jobs, "more": False, "total": len(jobs)})
    return await _list_page(run, request)


async def _all_jobs(run: RunView) -> dict[str, Any]:
    jobs: dict[str, Any] = {}
    waiting: list[tuple[int, dict[str, Any]]] = []
    # A copy: other requests may add and remove jobs meanwhile.
    for number, job in enumerate(list(run.state.jobs.values()), 1):
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
        entry = jobs[job.name] = _entry(run, job)
        if job.state is State.QUEUED:
            waiting.append((job.entries[0].order if job.entries else job.seq, entry))
    waiting.sort(key=itemgetter(0))
    for place, (_, entry) in enumerate(waiting):
        entry["inQueue"] = place
    return jobs


async def _list_page(run: RunView, request: ListJobs) -> Answer:
    """List the jobs that a request selects, in the order of submission, and say whether there are more."""
    all_jobs = run.state.jobs
    last = None if request.after is None else all_jobs.get(request.after)
    if request.after is not None and last is None:
        return error(f"there is no job {quoted(request.after)} after which jobs could be listed")
    candidates, is_wanted = _candidates(all_jobs, request)
    first = 0 if last is None else bisect_right(candidates, last.seq, key=_seq_of)
    most = len(candidates) if request.limit is None else request.limit
    found: list[Job] = []
    for number in range(first, len(candidates)):
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
        job = candidates[number]
        if is_wanted(job):
            found.append(job)
            if len(found) > most:
                break
    jobs = {job.name: _entry(run, job) for job in found[:most] if all_jobs.get(job.name) is job}
    return ok({"length": len(jobs), "jobs": jobs, "more": len(found) > most, "total": len(all_jobs)})


def _candidates(all_jobs: dict[str, Job], request: ListJobs) -> tuple[list[Job], Callable[[Job], bool]]:
    """The jobs among which a request selects, in the order of submission, and which of them it wants."""
    states = {State[name] for name in request.state_names} or set(State)
    patterns = request.patterns
    # A copy: other requests may add and remove jobs meanwhile.
    if patterns is None:
        return list(all_jobs.values()), lambda job: job.state in states
    if not any(_WILDCARD.search(pattern) for pattern in patterns):
        named = {job.seq: job for name in patterns if (job := all_jobs.get(name)) is not None}
        return [named[seq] for seq in sorted(named)], lambda job: job.state in states
    matches = re.compile("|".join(map(translate, patterns))).match
    return list(all_jobs.values()), lambda job: job.state in states and matches(job.name) is not None


def _seq_of(job: Job) -> int:
    return job.seq


def _entry(run: RunView, job: Job) -> dict[str, Any]:
    entry: dict[str, Any] = {"status": job.state.name}
    if job.state is State.QUEUED and (held := run.state.holds.since(job, -1)):
        entry["heldSince"] = timestamp(held)
    message = message_of(job)
    if message:
        entry["messages"] = message
    return entry
