"""`qcg-pm clean`: remove the files of runs that have ended."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from qcg.pilotjob.cli.commands.runs import list_runs
from qcg.pilotjob.cli.console import echo, echo_err
from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.cli.options import seconds_of
from qcg.pilotjob.cli.target_options import directory_option
from qcg.pilotjob.common.exit_codes import FAILURE
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.runs.removal import RemovalError, reason_to_keep, remove_run
from qcg.pilotjob.runs.states import RunInfo, RunState, age_in_words


@click.command("clean")
@click.option(
    "--older-than",
    metavar="TIME",
    callback=lambda context, parameter, given: 0.0 if given is None else seconds_of(given, "duration"),
    help="Only runs whose last change was longer ago: 7d, 12h.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Print the runs that would be removed, and remove nothing.")
@click.option("--all", "unfinished_too", is_flag=True, help="Also runs with unfinished jobs, and unreadable runs.")
@click.option("--remote", is_flag=True, help="Also the directories of these runs on remote hosts.")
@click.option("-y", "--yes", is_flag=True, help="With --all: do not ask.")
@directory_option
def command(directory: Path, older_than: float, dry_run: bool, unfinished_too: bool, remote: bool, yes: bool) -> None:
    """Remove the run directories of DIRECTORY whose jobs have all ended: registry, logs, reports, kept output.

    Files that jobs wrote elsewhere stay. A run whose manager or agents are at work is never removed. With --remote, a
    run stays when its directory on a host cannot be removed.

    Exit code 0: done. 1: a run could not be removed. 2: the command could not start.
    """
    now = time.time()
    old = [run for run in list_runs(directory) if run.age(now) >= older_than]
    removable = []
    for run in old:
        reason = reason_to_keep(run, now=now, unfinished_too=unfinished_too)
        if reason:
            echo_err(f"Kept {run.run_dir.name}: {reason}.")
        else:
            removable.append(run)
    if not removable:
        echo("There is nothing to remove.")
        return
    if not (dry_run or yes):
        _confirm([run for run in removable if reason_to_keep(run, now=now, unfinished_too=False)])
    code = 0
    for run in removable:
        try:
            _clean_hosts(run.run_dir, remote=remote, dry_run=dry_run)
            if not dry_run:
                remove_run(run.run_dir)
            echo(f"{'Would remove' if dry_run else 'Removed'} {_described(run, now)}")
        except RemovalError as error:
            echo_err(printable(f"Error: {run.run_dir.name} was not removed: {error}"))
            code = FAILURE
    sys.exit(code)


def _clean_hosts(run_dir: Path, *, remote: bool, dry_run: bool) -> None:
    """Remove the directories of a run on its hosts, or print that they stay. Raises RemovalError."""
    if not (run_dir / "hosts").exists():
        return
    from qcg.pilotjob.cli.remote_removal import remote_directories, remove_remote_directories

    if remote and not dry_run:
        for line in remove_remote_directories(run_dir):
            echo(printable(line))
        return
    for host, path in remote_directories(run_dir).items():
        echo(printable(f"Would remove {path} on {host}" if remote else f"{path} on {host} stays; see --remote"))


def _confirm(unfinished: list[RunInfo]) -> None:
    """Ask before runs with unfinished jobs are removed."""
    if not unfinished:
        return
    what = f"{pluralize(len(unfinished), 'run')} with {pluralize(sum(run.jobs_left for run in unfinished), 'job')} left"
    if not sys.stdin.isatty():
        raise Refusal(f"--all removes {what}, which cannot be undone; give --yes too")
    click.confirm(f"Remove {what}? This cannot be undone.", abort=True, err=True)


def _described(run: RunInfo, now: float) -> str:
    jobs = "" if run.state in (RunState.EMPTY, RunState.DAMAGED) else f", {pluralize(run.total_jobs, 'job')}"
    return f"{run.run_dir.name} ({run.state.value}{jobs}, {age_in_words(run.age(now))} old)"
