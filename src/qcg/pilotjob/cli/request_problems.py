"""Problems of requests, found by a core that starts no processes."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import msgspec

from qcg.pilotjob.cli.lint import args_in_one_string, shell_line_as_program
from qcg.pilotjob.cli.program_search import ProgramSearch
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.effects import Effect, Transition
from qcg.pilotjob.core.errors import SubmissionRejected
from qcg.pilotjob.core.events import Submit
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.description import requests
from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.json_input import duplicate_keys
from qcg.pilotjob.description.parse import parse_jobs
from qcg.pilotjob.description.variables import SubmissionContext
from qcg.pilotjob.description.warnings import warnings_for
from qcg.pilotjob.rows.store import RowFiles


def problems_of(found: list[msgspec.Raw], core: Core, warnings: list[str], wd: Path = Path()) -> list[str]:
    """Problems of requests that are run in this order, with their positions. Adds the jobs to the core, and to
    `warnings` what is allowed but probably a mistake. `wd`: the directory at which paths of parameter files start."""
    row_files = RowFiles(os.path.abspath(wd), None)
    search = ProgramSearch(os.path.abspath(wd))
    problems: list[str] = []
    for number, raw in enumerate(found, 1):
        problems += _problems(core, number, raw, warnings, row_files, search)
    return problems


def _problems(
    core: Core, number: int, raw: msgspec.Raw, warnings: list[str], row_files: RowFiles, search: ProgramSearch
) -> list[str]:
    """Problems of one request, which is run against a core that starts no processes."""
    where = f"request {number}"
    try:
        warnings += [f"{where}: {repeated}" for repeated in duplicate_keys(bytes(raw))]
        request = requests.decode_request(raw, where)
        if not isinstance(request, requests.Submit):
            return []
        jobs = parse_jobs(
            request.jobs,
            SubmissionContext(number, datetime.now(), "local", f"check-{number}"),
            f"{where}: jobs",
            row_files.read,
        )
        warnings += args_in_one_string(request.jobs, f"{where}: jobs")
        warnings += [
            f"{where}: job {job.name!r}: {warning}"
            for job in jobs
            for warning in (
                *(shell_line_as_program(job.execution) or search.warnings_for(job)),
                *search.warnings_about_inputs(job),
                *warnings_for(job),
            )
        ]
        happened = core.handle(Submit(jobs), 0.0)
    except DescriptionError as error:
        return [str(problem) for problem in error.problems]
    except SubmissionRejected as refused:
        return [f"{where}: {sentence}" for sentence in refused.sentences]
    return [f"{where}: {sentence}" for sentence in never_run(happened)]


def never_run(happened: list[Effect]) -> list[str]:
    """Problems of jobs that failed as soon as they were submitted."""
    return [
        f"job {effect.job.name!r} can never run: {effect.message}"
        for effect in happened
        if isinstance(effect, Transition) and effect.state is State.FAILED and effect.position < 0
    ]
