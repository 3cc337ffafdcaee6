"""`qcg-pm-service`: the manager, driven by its interfaces."""

from __future__ import annotations

import sys
from typing import Any

import click

from qcg.pilotjob.cli.options import join_node_list, shared
from qcg.pilotjob.cli.progress import progress_lines
from qcg.pilotjob.cli.running import run_service

DEFAULT_FILE = "qcg_pm_reqs.json"


@click.command("qcg-pm-service", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--file", "use_file", is_flag=True, help=f"Run the requests of {DEFAULT_FILE}.")
@click.option("--file-path", help="Run the requests of this file.")
@click.option("--show-progress", is_flag=True, help="Print when jobs start and end.")
@shared
@click.pass_context
def command(
    context: click.Context, /, use_file: bool, file_path: str | None, show_progress: bool, **given: Any
) -> None:
    """Run the requests of a file. Without a request finishAfterAllTasksDone in it, the service ends once all are read,
    and jobs that have not ended then are cut off."""
    path = file_path or (DEFAULT_FILE if use_file else None)
    if path is None and not given["resume"]:
        raise click.UsageError("nothing to do: give requests with --file-path FILE, or a run to continue with --resume")
    fixed: dict[str, Any] = {"show_progress": show_progress}
    if path is not None:
        fixed["file_path"] = path
    ending = run_service(context, given, fixed, progress_lines if show_progress else lambda pilot: None)
    if ending.cut_off and not ending.told:
        click.echo(
            f"{ending.cut_off} jobs were cut off: the request file has no finishAfterAllTasksDone."
            " `qcg-pm run` always waits.",
            err=True,
        )
    sys.exit(ending.exit_code)


def main() -> None:
    command(join_node_list(sys.argv[1:]), prog_name="qcg-pm-service")
