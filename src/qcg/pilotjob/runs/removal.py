"""Removes run directories that are not in use."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.common.wording import list_names, pluralize
from qcg.pilotjob.runs.manager_process import has_manager, registry_holder
from qcg.pilotjob.runs.rundir import PREFIX, relink
from qcg.pilotjob.runs.states import RunInfo, RunState
from qcg.pilotjob.runs.submissions import active_allocations, submission_directories

STARTING = 60.0
"""Seconds for which a directory without a registry may belong to a manager that is starting."""
REMOVED = ".qcgpjm-removed-"
"""Prefix of a run directory that is being removed, which no command finds."""


class RemovalError(Exception):
    """A run was not removed; the message says why."""


def reason_to_keep(run: RunInfo, *, now: float, unfinished_too: bool) -> str:
    """Why a run must not be removed; empty when it may be."""
    if run.state is RunState.LIVE:
        return "its manager is at work"
    if run.agents is not False:
        return "its agents are at work" if run.agents else "its agents may be at work on other hosts"
    if run.hosts:
        return f"jobs may still run on {list_names(list(run.hosts))}; resume the run first, which finds or ends them"
    if run.state is RunState.EMPTY and run.age(now) < STARTING:
        return "it may be about to start"
    if unfinished_too:
        return ""
    if run.state is RunState.DAMAGED:
        return "its registry is damaged, and jobs may be left; --all removes it"
    if run.state in (RunState.LEFT, RunState.CRASHED):
        left = pluralize(run.jobs_left, "job") if run.jobs_left else pluralize(run.requests_left, "request")
        return f"{left} left; --all removes it"
    return ""


def remove_run(run_dir: Path) -> None:
    """Remove a run directory, its batch scripts, and links that lead to it. Raises RemovalError when it is in use.

    The directory is renamed first, so that no manager resumes a half-removed run, and a manager that has just resumed
    it is detected.
    """
    run_dir = run_dir.resolve()
    if run_dir.lstat().st_uid != os.getuid():
        raise RemovalError("it belongs to another user")
    scripts = _batch_scripts(run_dir)
    name = run_dir.name.removeprefix(PREFIX)
    renamed = run_dir.with_name(f"{REMOVED}{name}.{os.getpid()}")
    try:
        run_dir.rename(renamed)
        if has_manager(renamed) or registry_holder(renamed) is not None:
            renamed.rename(run_dir)
            raise RemovalError("a manager has just resumed it")
        relink(run_dir.parent, run_dir)
        for directory in (renamed, *scripts):
            shutil.rmtree(directory)
    except OSError as error:
        raise RemovalError(f"{error.filename}: {os.strerror(error.errno or 0)}") from None


def _batch_scripts(run_dir: Path) -> list[Path]:
    try:
        allocations = active_allocations(run_dir, os.environ)
    except BatchError as error:
        raise RemovalError(f"it is not known whether it still has allocations: {error}") from None
    if allocations:
        raise RemovalError(f"its allocation {allocations[0].id} has not ended")
    return submission_directories(run_dir)
