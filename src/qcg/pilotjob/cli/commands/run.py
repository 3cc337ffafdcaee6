"""`qcg-pm run FILE`: run a request file and wait for all its jobs."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from qcg.pilotjob.cli.interrupt_notice import InterruptNotice
from qcg.pilotjob.cli.options import resolve_cores, shared
from qcg.pilotjob.common.gc_tuning import loading
from qcg.pilotjob.executors.prestart import PrestartedAgent, is_useful
from qcg.pilotjob.runs.resume_hint import has_next_allocation

END_STATES = ("failed", "canceled", "omitted")
"""States in which jobs have ended without success."""


@click.command("run")
@click.argument("file", type=click.Path(readable=False), required=False)
@click.option("--no-net", is_flag=True, help="No network interface: no other command can talk to this run.")
@click.option(
    "--rerun",
    metavar="STATES",
    callback=lambda context, parameter, given: _states(given),
    help="With --resume: run jobs again that are failed, canceled or omitted, or all of them: failed,omitted.",
)
@click.option(
    "--from",
    "source",
    type=click.Path(readable=False),
    metavar="FILE",
    help="With --rerun: new descriptions, by name, for jobs that run again, from the jobs of FILE.",
)
@click.option("--release", is_flag=True, help="With --resume: release all jobs that are held.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end, and no progress.")
@shared
@click.pass_context
def command(
    context: click.Context,
    /,
    file: str | None,
    no_net: bool,
    rerun: tuple[str, ...],
    source: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Run the requests of FILE and wait for all jobs. Shows progress and a closing table.

    Exit code 0: all jobs succeeded. 1: a job did not, or a request was refused. 2: the run could not start. 4: jobs
    are left, and the last line says how to continue with them. 130, 143, 129: the same after SIGINT (Ctrl-C), SIGTERM,
    SIGHUP (a closed terminal).
    """
    if file is None and not given["resume"]:
        raise click.UsageError("give a request FILE, or a run to continue with --resume PATH")
    if rerun and not given["resume"]:
        raise click.UsageError("--rerun is for jobs of an earlier run: give that run with --resume PATH")
    if source is not None and not rerun:
        raise click.UsageError("--from has new descriptions for jobs that run again: select them with --rerun STATES")
    given["rerun"] = rerun
    given["replacements"] = () if source is None else _replacements(source)
    if given["release"] and not given["resume"]:
        raise click.UsageError("--release is for held jobs of an earlier run: give that run with --resume PATH")
    fixed: dict[str, Any] = {"wait": True, "net": not no_net}
    if file is not None:
        fixed["file_path"] = file
    followed = has_next_allocation()
    resolve_cores(given)
    with PrestartedAgent(wanted=is_useful(given["resources"], given["nodes"], given["resume"], os.environ)) as agent:
        with loading():  # here, so that this process and the agent load at the same time
            from qcg.pilotjob.cli.progress import Progress
            from qcg.pilotjob.cli.service_runner import run_service

        progress = Progress(silent=as_json)
        ending = run_service(context, given, fixed, progress.start, progress.stop, agent, followed=followed)
    with InterruptNotice(ending.run_dir):
        from qcg.pilotjob.cli.run_summary import print_summary

        print_summary(ending, followed=followed, as_json=as_json)
    sys.exit(ending.exit_code)


def _states(given: str | None) -> tuple[str, ...]:
    """The names of states, in lower case."""
    if given is None:
        return ()
    names = tuple(dict.fromkeys(name.strip().lower() for name in given.split(",")))
    if names == ("all",):
        return END_STATES
    for name in names:
        if name not in END_STATES:
            raise click.BadParameter(f"{name!r} is none of {', '.join(END_STATES)} and all")
    return names


def _replacements(source: str) -> tuple[dict[str, Any], ...]:
    from qcg.pilotjob.cli.submission_files import read_submissions  # here: few runs need it

    return tuple(job for jobs in read_submissions(source) for job in jobs)
