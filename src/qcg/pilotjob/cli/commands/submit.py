"""`qcg-pm submit`: submit jobs to a running manager, from a file or from the command line."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.commands.wait import MOST_EXPLAINED, wait_for
from qcg.pilotjob.cli.console import echo, echo_err
from qcg.pilotjob.cli.errors import Denial, Refusal
from qcg.pilotjob.cli.job_from_argv import JobOptionError, generate_name, job_from_arguments
from qcg.pilotjob.cli.manager_lookup import on_manager
from qcg.pilotjob.cli.options import seconds_of
from qcg.pilotjob.cli.param_types import Whole
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.cli.suggestions import suggest_options
from qcg.pilotjob.cli.tables import json_option, show_json
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.description.json_input import InvalidJson
from qcg.pilotjob.host.safe_open import read_input

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager

Submission = list[dict[str, Any]]
PROGRAM = "qcg.pilotjob.program"


class WithProgram(click.Command):
    """A command whose arguments after `--` are a program and its arguments, not options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        place = args.index("--") if "--" in args else len(args)
        ctx.meta[PROGRAM] = args[place + 1 :]
        try:
            return super().parse_args(ctx, args[:place])
        except click.UsageError as error:
            if "--" not in args and any(not arg.startswith("-") for arg in args):
                hint = "to submit a program, put -- before it: qcg-pm submit -- PROGRAM ARGS"
                problem = suggest_options(error) if isinstance(error, click.NoSuchOption) else error
                raise click.UsageError(f"{problem.format_message()} ({hint})", ctx) from None
            raise

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- PROGRAM [ARGS]...]"]


def _check_wall_time(context: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    """Checked here: the error of the manager names a key of a description that the user has not written."""
    if given is not None:
        seconds_of(given)
    return given


@click.command("submit", cls=WithProgram)
@click.argument("file", type=click.Path(readable=False), required=False)
@click.option("--name", help="Name of the job; by default one is generated.")
@click.option("-c", "--cores", metavar="N", help="Cores: 4, 2-4, or 2- for two and more; with --nodes, on each node.")
@click.option(
    "-N",
    "--nodes",
    metavar="N",
    help="Nodes of the job: 4 is four whole nodes (with --cores, so many cores on each), 2x4 four cores on each of two"
    " nodes; also 2-4 or 2-.",
)
@click.option("--wd", help="Working directory; by default the current one.")
@click.option("--stdin", help="Input file.")
@click.option("--stdout", help="Output file; by default NAME.out, for iterations with their index.")
@click.option("--stderr", help="File for the standard error; by default NAME.err.")
@click.option(
    "--after",
    multiple=True,
    metavar="NAMES",
    shell_complete=job_names(),
    help="Start after these jobs; separate names with commas.",
)
@click.option("--iteration", type=Whole(min=1), metavar="N", help="Run it N times, ${it} from 0 on.")
@click.option("--wt", "wall_time", callback=_check_wall_time, help="Wall time: 90s, 1h30m.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable of its environment.")
@click.option("--wait", is_flag=True, help="Wait until it has ended; exit codes as of qcg-pm wait.")
@json_option
@on_manager
def command(manager: Manager, file: str | None, name: str | None, wait: bool, as_json: bool, **line: Any) -> int:
    """Submit the jobs of FILE, or one job that runs PROGRAM. Prints their names.

    FILE is a JSON array of job descriptions, or a request file, whose submit requests are used; - means
    standard input. With --wait and --json, prints names with states, as qcg-pm wait does.
    """
    from qcg.pilotjob.api.errors import QCGPJMAError, RequestRefusedError

    program: list[str] = click.get_current_context().meta[PROGRAM]
    if file is not None and program:
        raise click.UsageError("give a FILE, or a program after --, not both")
    if file is not None:
        if name or any(line.values()):
            raise click.UsageError(f"options of a job go with a program; write: qcg-pm submit … -- {file}")
        submissions = _read(file)
    elif program:
        submissions = [[_job(program, name, line)]]
    else:
        raise click.UsageError("give a FILE of jobs, or a program after --")
    names: list[str] = []
    for number, jobs in enumerate(submissions, 1):
        try:
            data = manager.send_request({"request": "submit", "jobs": jobs})["data"]
            names += data["jobs"]
            for warning in data.get("warnings", ()):
                echo_err(f"Warning: {warning}")
        except QCGPJMAError as error:
            if number == 1:
                raise
            _show(names, as_json)
            reason = error.reason if isinstance(error, RequestRefusedError) else str(error)
            raise Denial(
                f"submit {number} of {len(submissions)} in {file} was refused, and none after it was sent: {reason}."
                f" Those before it are accepted, with {pluralize(len(names), 'job')}"
            ) from None
    if not (wait and as_json):  # `wait --json` prints the names, too
        _show(names, as_json)
    if not wait:
        _warn_about_failed(manager, names)
    return wait_for(manager, names, None, as_json=as_json) if wait else 0


def _show(names: list[str], as_json: bool) -> None:
    if as_json:
        show_json({"submitted": len(names), "jobs": names})
    else:
        echo("\n".join(map(printable, names)))


def _warn_about_failed(manager: Manager, names: list[str]) -> None:
    """Print a warning about jobs that can never start, which are FAILED at once."""
    states = manager.status(names)["jobs"]
    failed = [name for name, entry in states.items() if entry["status"] == 0 and entry["data"]["status"] == "FAILED"]
    for name, entry in manager.info(failed[:MOST_EXPLAINED])["jobs"].items() if failed else ():
        info = entry.get("data", {})
        # A job that has already run and failed is no problem of the submission.
        if "messages" in info and "runtime" not in info and "EXECUTING" not in info["history"]:
            echo_err(f"Warning: {printable(name)} is FAILED: {printable(info['messages'])}")


def _job(program: list[str], name: str | None, line: dict[str, Any]) -> dict[str, Any]:
    name = name or generate_name(program[0], os.urandom(3).hex())
    # Each iteration needs its own output file.
    base = name if line["iteration"] is None else f"{name}.${{it}}"
    line["wd"] = os.path.abspath(line["wd"] or os.curdir)
    line["stdout"] = line["stdout"] or f"{base}.out"
    line["stderr"] = line["stderr"] or f"{base}.err"
    try:
        return job_from_arguments(program, name, **line)
    except JobOptionError as error:
        raise Refusal(str(error)) from None


def _read(file: str) -> list[Submission]:
    """The submissions of a file, in order."""
    try:
        content = json.loads(sys.stdin.buffer.read() if file == "-" else read_input(file))
    except OSError as error:
        raise Refusal(f"{file} cannot be read: {error.strerror}; to submit a program, put -- before it") from None
    except (ValueError, RecursionError) as error:
        raise Refusal(f"{file} {InvalidJson.because(error)}; to submit a program, put -- before it") from None
    entries = content if isinstance(content, list) else [content]
    if not entries or not all(isinstance(entry, dict) for entry in entries):
        raise Refusal(f"{file} holds no jobs; it must be an array of job descriptions, or a request file")
    if not any("request" in entry for entry in entries):
        return [entries]
    submissions = []
    for number, entry in enumerate(entries, 1):
        if entry.get("request") == "submit":
            submissions.append(entry.get("jobs", []))
        else:
            echo_err(f"request {number} of {file} is no submit and is left out")
    return submissions
