"""Messages about runs without a manager, runs that wait in a queue, and runs in the same directory."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.executors.ledger_reader import count_open_attempts
from qcg.pilotjob.runs.discovery import MOST_EXAMINED, RunsError, find_unfinished_runs, own_runs
from qcg.pilotjob.runs.liveness import has_agents
from qcg.pilotjob.runs.manager_process import has_manager
from qcg.pilotjob.runs.submissions import waiting_notices
from qcg.pilotjob.runs.unfinished import UnfinishedRun, read_unfinished
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import ContactError

_ENDED = "has ended"


def describe_run_without_manager(run: Path) -> str:
    """Describe a run without a manager, and other unfinished or submitted runs of its directory."""
    run = run.absolute()
    sentences = [f"No manager is running for {run}: the last one {_last_manager(run)}."]
    left = read_unfinished(run)
    serve = f"`qcg-pm-service --net --resume {shlex.quote(str(run))}`"
    if not left.unfinished:
        sentences.append(f"To serve it again: {serve}.")
    elif left.allocation or left.serves:
        sentences.append(f"{_describe_unfinished(left)}.")
    else:
        sentences.append(f"{_describe_unfinished(left)}, or to serve clients again: {serve}.")
    return " ".join([*sentences, *_other_runs(run)])


def advise_without_manager(run: Path, advice: str) -> str:
    """Say that a run has no manager, and what to do instead. `advice`: a sentence in which `{resume}`, `{release}` and
    `{serve}` are the commands that continue the run, release held jobs as well, and serve clients again; `{rerun}` runs
    failed jobs again."""
    run = run.absolute()
    left, path = read_unfinished(run), shlex.quote(str(run))
    sentences = [f"No manager is running for {run}: the last one {_last_manager(run)}."]
    if left.unfinished:
        sentences.append(f"{_count_unfinished(left)}.")
    commands = {
        "resume": left.resume_command(),
        "release": left._replace(only_held=True).resume_command(serves=False),
        "serve": f"`qcg-pm-service --net --resume {path}`",
        "rerun": f"`qcg-pm run --resume {path} --rerun failed`",
    }
    return " ".join([*sentences, advice.format(**commands), *_other_runs(run)])


def describe_recorded_state(run: Path, *, damaged: bool = False) -> str:
    """The notice of read-only commands that the registry has answered, and not a manager.

    `damaged`: jobs that have not ended may be missing in the registry.
    """
    run = run.absolute()
    what_happened = _last_manager(run)
    remark = "" if what_happened == _ENDED else f" (the last one {what_happened})"
    left = read_unfinished(run)
    sentences = [f"No manager is running{remark}; this is the recorded state of {run}."]
    if left.unfinished:
        sentences.append(f"{_describe_unfinished(left)}.")
    elif not damaged:
        sentences.append("All jobs have ended.")
    return " ".join([*sentences, *_other_runs(run)])


def _last_manager(run: Path) -> str:
    try:
        found = contact.read(run)
    except ContactError as error:
        return f"cannot be found ({error})"
    return "has died" if found is not None and found.pid else _ENDED


def _describe_unfinished(left: UnfinishedRun) -> str:
    return f"{_count_unfinished(left)}. Continue: {left.resume_command()}"


def _count_unfinished(left: UnfinishedRun) -> str:
    """The number of unfinished jobs, and whether agents may still run some of them."""
    jobs = pluralize(left.unfinished, "job has", "jobs have")
    held = ": held jobs, and jobs that wait for them" if left.only_held else ""
    running = has_agents(left.run_dir)
    agents = {None: ", and agents may still be running", True: ", and agents are still running", False: ""}[running]
    return f"{jobs} not ended{held}{agents}"


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


def running_jobs_notice(left: UnfinishedRun) -> str:
    """A sentence about the jobs that still run although their manager has died; empty when none runs for certain."""
    running = count_open_attempts(left.run_dir) if has_agents(left.run_dir) else 0
    if not running:
        return ""
    jobs = pluralize(running, "job or iteration", "jobs and iterations")
    verbs = "runs" if running == 1 else "run", "writes" if running == 1 else "write"
    return (
        f"{jobs} of {left.run_dir} still {verbs[0]} although the manager has died, and {verbs[1]} into this directory,"
        f" too. To continue that run instead of a new one: Ctrl-C, then {left.resume_command(serves=False)}"
    )


def no_contact_message(run: Path, holder: int) -> str:
    """The message for a running manager without a contact file."""
    who = f"a manager (pid {holder})" if holder else "a manager"
    kill = f"`kill {holder}`" if holder else "SIGTERM"
    return (
        f"{who} is at work in {run.absolute()}, but there is no {contact.FILE_NAME}, which has its address and keys. If"
        " it has just been started, try again in a few seconds. If the file was removed, nobody can talk to it any"
        f" more: {kill} ends it, and --resume continues with its jobs"
    )
