"""Messages about runs without a manager, runs that wait in a queue, and runs in the same directory."""

from __future__ import annotations

import os
from pathlib import Path

from qcg.pilotjob.runs.discovery import MOST_EXAMINED, RunsError, find_unfinished_runs, own_runs
from qcg.pilotjob.runs.liveness import has_agents, has_manager
from qcg.pilotjob.runs.resume_hint import resume_command
from qcg.pilotjob.runs.submissions import waiting_notices
from qcg.pilotjob.runs.unfinished import UnfinishedRun, count_unfinished, read_unfinished
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import ContactError


def describe_run_without_manager(run: Path) -> str:
    """Describe a run without a manager, and other unfinished or submitted runs of its directory."""
    run = run.absolute()
    try:
        found = contact.read(run)
        what_happened = "has died" if found is not None and found.pid else "has ended"
    except ContactError as error:
        what_happened = f"cannot be found ({error})"
    sentence = f"No manager is at work in {run.parent}: the manager of the newest run, {run}, {what_happened}."
    left = read_unfinished(run)
    if left.unfinished:
        sentence += f" {_describe_unfinished(left)}"
    else:
        sentence += f" To go on with it, `qcg-pm-service --net --resume {run}`."
    return " ".join([sentence, *_other_runs(run)])


def describe_ended_run(run: Path) -> str:
    """The same for read-only commands: one sentence when all jobs have ended."""
    run = run.absolute()
    if count_unfinished(run):
        return describe_run_without_manager(run)
    return " ".join(["Its manager and all its jobs have ended.", *_other_runs(run)])


def _describe_unfinished(left: UnfinishedRun) -> str:
    were = "1 job has" if left.unfinished == 1 else f"{left.unfinished} jobs have"
    at_work = has_agents(left.run_dir)
    runs = "what runs may go on" if at_work is None else "what runs goes on" if at_work else "nothing runs any more"
    serve = "" if left.allocation else f" (or, to serve it again, `qcg-pm-service --net --resume {left.run_dir}`)"
    command = resume_command(left.run_dir, left.allocation, left.batch_system)
    return f"As far as it knew, {were} not ended: {runs}, and {command} goes on with the rest{serve}."


def _other_runs(run: Path) -> list[str]:
    """Sentences about other runs of the directory that can be resumed or wait in the queue."""
    return [
        *(f"Also, {left}." for left in find_unfinished_runs(run.parent, besides=run)),
        *waiting_notices(run.parent, os.environ),
    ]


def shared_directory_notices(run_dir: Path) -> list[str]:
    """A sentence for each other run with a manager in the same working directory."""
    try:
        runs = [run.absolute() for run in own_runs(run_dir.parent)[:MOST_EXAMINED]]
    except RunsError:
        return []
    return [
        f"Another run works in the same directory: {run}. Output files with relative paths are the same files for both"
        " runs; with --wd DIRECTORY a run gets a directory of its own."
        for run in runs
        if run.name != run_dir.name and has_manager(run)
    ]


def no_contact_message(run: Path, holder: int) -> str:
    """The message for a running manager without a contact file."""
    who = f"a manager (pid {holder})" if holder else "a manager"
    kill = f"`kill {holder}`" if holder else "SIGTERM"
    return (
        f"{who} is at work in {run.absolute()}, but there is no {contact.FILE_NAME}, which has its address and keys. If"
        " it has just been started, try again in a few seconds. If the file was removed, nobody can talk to it any"
        f" more: {kill} ends it, and --resume continues with its jobs"
    )
