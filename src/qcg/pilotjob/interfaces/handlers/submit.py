from __future__ import annotations

import asyncio
from functools import partial

from qcg.pilotjob.description.args_in_one_string import warning_about_args
from qcg.pilotjob.description.errors import one_line
from qcg.pilotjob.description.iteration import RowFile
from qcg.pilotjob.description.json_input import DOLLAR
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.description.parse import STEP, parse_in_steps
from qcg.pilotjob.description.requests import Submit
from qcg.pilotjob.description.warnings import iteration_warnings, variable_warnings
from qcg.pilotjob.executors.hang_safe import call_in_thread
from qcg.pilotjob.interfaces.replies import Answer, ManagerEnding, ok
from qcg.pilotjob.manager.commits import Counted
from qcg.pilotjob.manager.manager import Manager

MOST_WARNINGS = 10
"""The most warnings about one submission: the same mistake is often in many jobs."""
FURTHER = "other jobs were not checked after so many warnings; qcg-pm validate checks all jobs of a file"


async def submit(manager: Manager, request: Submit, counted: Counted | None) -> Answer:
    """Submit jobs. The answer is sent when they are on disk, with the counter of requests `counted`.

    Raises ManagerEnding when the shutdown began while the jobs were parsed and checked.
    """
    jobs = await parse(manager, request)
    # Before the jobs are on disk: an error in here must not be the answer to a submission whose jobs run.
    warnings = await _warnings(request, jobs)
    if manager.shutdown.is_requested:
        raise ManagerEnding("the manager is ending and accepts no more jobs")
    data = await manager.engine.submit(jobs, counted)
    if warnings:
        data = {**data, "warnings": warnings}
        for warning in warnings:
            manager.engine.warn(warning)
    return ok(data, f"{data['submitted']} jobs submitted")


async def _warnings(request: Submit, jobs: list[JobDescription]) -> list[str]:
    """Warnings about arguments in one string, probably misspelt variables, unused parameters, and files that all
    iterations write to."""
    has_variables = any(DOLLAR in bytes(job) for job in request.jobs)
    warnings: list[str] = []
    for number, written in enumerate(request.jobs, 1):
        if (about := warning_about_args(written)) is not None:
            warnings.append(f"job {about[0]!r}: args: {about[1]}")
            if len(warnings) >= MOST_WARNINGS:
                return [*warnings, FURTHER]
        if number % STEP == 0:
            await asyncio.sleep(0)
    for number, job in enumerate(jobs if has_variables else _iterated(jobs), 1):
        doubts = [*(variable_warnings(job) if has_variables else ()), *iteration_warnings(job)]
        warnings += [f"job {job.name!r}: {doubt}" for doubt in doubts]
        if len(warnings) >= MOST_WARNINGS:
            return [*warnings[:MOST_WARNINGS], FURTHER]
        if number % STEP == 0:
            await asyncio.sleep(0)
    return warnings


def _iterated(jobs: list[JobDescription]) -> list[JobDescription]:
    return [job for job in jobs if job.iteration is not None]


async def parse(manager: Manager, request: Submit) -> list[JobDescription]:
    """Parse jobs in steps, between which other requests are handled. Parameter files are read in a thread."""
    steps = parse_in_steps(request.jobs, manager.arrival())
    answer: RowFile | list[str] | None = None
    while True:
        try:
            wanted = steps.send(answer)
        except StopIteration as done:
            jobs: list[JobDescription] = done.value
            return jobs
        if wanted is None:
            answer = None
            await asyncio.sleep(0)
        else:
            try:
                answer = await call_in_thread(partial(manager.row_files.read, wanted.path), "parameter file")
            except OSError as error:  # no thread can be started
                answer = [f"{one_line(wanted.path)} cannot be read: {error.strerror}; submit the job again later"]
