"""`qcg-pm runs`: list the runs of a directory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from qcg.pilotjob.cli.console import echo, echo_err
from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.cli.tables import json_option, show_json, show_table
from qcg.pilotjob.cli.target_options import directory_option
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.runs.discovery import RunsError, find_runs
from qcg.pilotjob.runs.resume_hint import resume_command
from qcg.pilotjob.runs.states import RunInfo, RunState, age_in_words, inspect_runs


@click.command("runs")
@json_option
@directory_option
def command(directory: Path, as_json: bool) -> None:
    """List the runs of DIRECTORY, the newest first: their states, jobs, and the time since their last change.

    live: a manager is at work. ended: all jobs have ended. left, crashed: the manager ended or died, and jobs are left
    for --resume. empty: there is no registry. damaged: it, or a part of it,
    cannot be read.
    """
    runs = list_runs(directory)
    now = time.time()
    if as_json:
        show_json({"directory": str(directory.absolute()), "runs": [as_record(run, now) for run in runs]})
        return
    if not runs:
        echo(f"There are no runs in {directory.absolute()}.")
        return
    rows = [_row(run, now) for run in runs]
    show_table(["run", "state", "jobs", "left", "age", ""], rows, right=["jobs", "left", "age"])
    unfinished = [run for run in runs if run.state in (RunState.LEFT, RunState.CRASHED)]
    if unfinished:
        newest = unfinished[0]
        hint = resume_command(newest.run_dir, newest.allocation, newest.batch_system, release=newest.only_held)
        echo_err(f"To continue the newest unfinished run: {hint}")


def list_runs(wd: Path) -> list[RunInfo]:
    """The caller's own runs, the newest first. Prints a notice about runs of other users."""
    try:
        found = find_runs(wd)
        for notice in found.notices():
            echo_err(notice)
        return inspect_runs(found.own)
    except RunsError as error:
        raise Refusal(str(error)) from None


def _row(run: RunInfo, now: float) -> list[str]:
    counted = run.state not in (RunState.EMPTY, RunState.DAMAGED)
    jobs, left = (str(run.total_jobs), str(run.jobs_left)) if counted else ("", "")
    return [run.run_dir.name, run.state.value, jobs, left, age_in_words(run.age(now)), _remark(run)]


def _remark(run: RunInfo) -> str:
    if run.state is RunState.LIVE:
        where = f" on {run.host}" if run.host else ""
        process = f"pid {run.pid}{where}" if run.pid else ""
        return ", ".join(filter(None, (run.address, process)))
    parts = [f"{pluralize(run.requests_left, 'request')} not read"] if run.requests_left else []
    parts += ["jobs continue" if run.agents and run.jobs_left else ""]
    failed = run.jobs.get("FAILED", 0)
    parts += [f"{failed} FAILED" if failed else ""]
    return ", ".join(filter(None, (run.problem, *parts)))


def as_record(run: RunInfo, now: float) -> dict[str, Any]:
    """One run in the output of `runs --json`."""
    record: dict[str, Any] = {
        "run": run.run_dir.name,
        "directory": str(run.run_dir),
        "state": run.state.value,
        "jobs": run.jobs,
        "total_jobs": run.total_jobs,
        "jobs_left": run.jobs_left,
        "requests_left": run.requests_left,
        "last_change": run.last_change,
        "age_seconds": round(run.age(now), 3),
    }
    if run.state is RunState.LIVE:
        record |= {"address": run.address or None, "pid": run.pid or None, "host": run.host or None}
    elif run.state in (RunState.LEFT, RunState.CRASHED):
        record["agents_at_work"] = run.agents
    if run.problem:
        record["problem"] = run.problem
    return record
