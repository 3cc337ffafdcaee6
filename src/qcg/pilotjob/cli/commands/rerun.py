"""`qcg-pm rerun`: run jobs again that have ended without success."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.console import echo, echo_err
from qcg.pilotjob.cli.manager_lookup import Registry, on_manager_or, with_similar_name
from qcg.pilotjob.cli.name_patterns import expand
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.cli.submission_files import read_submissions
from qcg.pilotjob.cli.tables import json_option, show_json
from qcg.pilotjob.common.exit_codes import FAILURE
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.common.wording import pluralize

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager


@click.command("rerun")
@click.argument("names", nargs=-1, shell_complete=job_names(final=True))
@click.option("--failed", is_flag=True, help="What has FAILED.")
@click.option("--canceled", is_flag=True, help="What was CANCELED.")
@click.option("--omitted", is_flag=True, help="What was OMITTED.")
@click.option("--all", "everything", is_flag=True, help="All of that.")
@click.option(
    "--from",
    "file",
    type=click.Path(readable=False),
    metavar="FILE",
    help="New descriptions, by name, for the jobs of FILE; without NAMES and states, these jobs are run again.",
)
@click.option(
    "--reread",
    is_flag=True,
    help="Read the parameter files of these jobs again, and run with their new rows.",
)
@json_option
@on_manager_or(
    "To run its failed jobs again: {rerun}; for some of them, open it with {serve}, and give qcg-pm rerun NAMES then."
)
def command(
    manager: Manager,
    names: tuple[str, ...],
    failed: bool,
    canceled: bool,
    omitted: bool,
    everything: bool,
    file: str | None,
    reread: bool,
    as_json: bool,
) -> int:
    """Run jobs and iterations again that have ended without success.

    NAMES may hold patterns ('sim*') and iterations (job:3, job:3-7, 'job:*'); with states, only the jobs of NAMES in
    these states. Jobs that were omitted because of them run, too. Successful jobs are never rerun.

    To run jobs again in a run that has ended: qcg-pm run --resume DIR --rerun failed, with --from FILE for new
    descriptions.
    """
    flags = {"FAILED": failed, "CANCELED": canceled, "OMITTED": omitted}
    states = [state for state, is_given in flags.items() if is_given or everything]
    if not (names or states or file):
        raise click.UsageError("give NAMES, --failed, --canceled, --omitted, --all or --from FILE")
    request: dict[str, Any] = {"request": "rerunJob"}
    if names:
        wanted = expand(names, Registry(manager), whole_jobs=True)
        request["jobNames"] = list(wanted)
    if states:
        request["states"] = states
    if file is not None:
        request["jobs"] = [job for jobs in read_submissions(file) for job in jobs]
    if reread:
        request["reread"] = True
    answer = manager.send_request(request)["data"]
    errors = answer.get("errors", {})
    if names:
        # A pattern matches only jobs that can be run again.
        errors = {name: sentence for name, sentence in errors.items() if wanted.get(name, True)}
    if as_json:
        shown = {key: answer[key] for key in ("rerun", "jobs", "warnings") if key in answer}
        show_json({**shown, "errors": errors} if errors else shown)
    else:
        echo(f"{pluralize(answer['rerun'], 'job or iteration is', 'jobs and iterations are')} queued again")
        for warning in answer.get("warnings", ()):
            echo_err(printable(f"Warning: {warning}"))
        for sentence in errors.values():
            echo_err(printable(f"Error: {with_similar_name(manager, sentence)}"))
    return FAILURE if errors else 0
