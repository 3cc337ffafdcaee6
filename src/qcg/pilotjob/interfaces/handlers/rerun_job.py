from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from msgspec.structs import replace

from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.core.errors import SubmissionRejected
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.description.column_references import unknown_columns
from qcg.pilotjob.description.iteration import RowFile
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.description.requests import RerunJob, Submit
from qcg.pilotjob.executors.hang_safe import call_in_thread
from qcg.pilotjob.interfaces.handlers.submit import parse
from qcg.pilotjob.interfaces.replies import Answer, ManagerEnding, ok
from qcg.pilotjob.manager.commits import Counted
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.manager.rerun import rerun_event
from qcg.pilotjob.manager.row_changes import changed_files, jobs_with_rows, old_rows_notice
from qcg.pilotjob.manager.stale_dependents import stale_dependents


async def rerun_job(manager: Manager, request: RerunJob, counted: Counted | None) -> Answer:
    """Run jobs again. The answer is sent when that survives a crash of the manager."""
    replacements = await parse(manager, Submit(request.jobs)) if request.jobs else []
    given = [request.states] if isinstance(request.states, str) else request.states or []
    states = [State[name.upper()] for name in dict.fromkeys(given)]
    by_name = {description.name: description for description in replacements}
    if len(by_name) < len(replacements):
        counts = Counter(description.name for description in replacements)
        twice = [name for name, count in counts.items() if count > 1]
        raise SubmissionRejected([f"job {name!r} has several new descriptions; give one" for name in twice])
    names = request.names
    if not names and not states:
        names = list(by_name)
    described = jobs_with_rows(manager.engine, names, states, by_name)
    changed = await call_in_thread(
        partial(changed_files, described, manager.row_files, gone=request.reread), "parameter file"
    )
    if request.reread:
        by_name.update(await _read_again(manager, {name: described[name] for name in changed}))
    if manager.shutdown.is_requested:
        raise ManagerEnding("the manager is ending and runs no more jobs")
    event = rerun_event(manager.engine, manager.row_files, names, states, by_name)
    data, remark = manager.engine.carry_out(event, counted)
    warnings = stale_dependents(manager.engine, data["jobs"])
    if not request.reread:
        warnings += [old_rows_notice(name, changed[name]) for name in changed if name in data["jobs"]]
    elif not changed:
        warnings.append("no parameter file of these jobs has changed; they run again with the same rows")
    return ok({**data, "warnings": warnings} if warnings else data, remark or None)


async def _read_again(manager: Manager, described: Mapping[str, JobDescription]) -> dict[str, JobDescription]:
    """The descriptions with the rows that their parameter files have now. Raises `SubmissionRejected`."""
    problems: list[str] = []
    again: dict[str, JobDescription] = {}
    for name, description in described.items():
        iteration = description.iteration
        assert iteration is not None
        assert iteration.rows is not None
        old = iteration.rows
        found = await call_in_thread(partial(manager.row_files.read, old.path), "parameter file")
        if not isinstance(found, RowFile):
            problems += [f"job {name!r}: {problem}" for problem in found]
        elif found.rows != old.rows:
            problems.append(
                f"job {name!r}: {old.path} has {pluralize(found.rows, 'row')}, and had {old.rows} when the job was"
                " submitted; keep their number, or submit the new rows as a new job"
            )
        else:
            again[name] = replace(description, iteration=replace(iteration, rows=found))
            problems += [f"job {name!r}: {problem}" for problem in unknown_columns(again[name])]
    if problems:
        raise SubmissionRejected(problems)
    return again
