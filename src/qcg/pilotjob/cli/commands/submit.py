"""`qcg-pm submit`: more jobs for a running manager, from a file or from the command line."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.commands.wait import MOST_EXPLAINED, wait_for
from qcg.pilotjob.cli.console import many, say, tell
from qcg.pilotjob.cli.errors import Denial, Refusal
from qcg.pilotjob.cli.job_from_argv import LineError, job_of_line, made_up_name
from qcg.pilotjob.cli.manager_lookup import on_manager
from qcg.pilotjob.cli.options import seconds_of
from qcg.pilotjob.cli.param_types import Whole
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.cli.suggestions import with_nearest
from qcg.pilotjob.cli.tables import json_option, show_json
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.description.json_input import InvalidJson
from qcg.pilotjob.host.safe_open import read_input

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager

Submission = list[dict[str, Any]]
PROGRAM = "qcg.pilotjob.program"


class WithProgram(click.Command):
    """What follows `--` is a program and its arguments, none of our options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        place = args.index("--") if "--" in args else len(args)
        ctx.meta[PROGRAM] = args[place + 1 :]
        try:
            return super().parse_args(ctx, args[:place])
        except click.UsageError as error:
            if "--" not in args and any(not arg.startswith("-") for arg in args):
                hint = "to submit a program, put -- before it: qcg-pm submit -- PROGRAM ARGS"
                told = with_nearest(error) if isinstance(error, click.NoSuchOption) else error
                raise click.UsageError(f"{told.format_message()} ({hint})", ctx) from None
            raise

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- PROGRAM [ARGS]...]"]


def _check_wall_time(context: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    """Here: the manager would answer with the key of a description that its user has not written."""
    if given is not None:
        seconds_of(given)
    return given


@click.command("submit", cls=WithProgram)
@click.argument("file", type=click.Path(readable=False), required=False)
@click.option("--name", help="Of the job; otherwise one is made up.")
@click.option("-c", "--cores", metavar="N", help="Cores: 4, 2-4, or 2- for two and more; with --nodes, on each node.")
@click.option(
    "-N",
    "--nodes",
    metavar="N",
    help="Nodes of the job: 4 is four whole nodes (with --cores, so many cores on each), 2x4 four cores on each of two"
    " nodes; also 2-4 or 2-.",
)
@click.option("--wd", help="Working directory; otherwise this one.")
@click.option("--stdin", help="Input file.")
@click.option("--stdout", help="Output file; otherwise NAME.out, with the index for iterations.")
@click.option("--stderr", help="The same for errors; otherwise NAME.err.")
@click.option(
    "--after",
    multiple=True,
    metavar="NAMES",
    shell_complete=job_names(),
    help="Start after these jobs; names with commas.",
)
@click.option("--iteration", type=Whole(min=1), metavar="N", help="Run it N times, ${it} from 0 on.")
@click.option("--wt", "wall_time", callback=_check_wall_time, help="Wall time: 90s, 1h30m.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable of its environment.")
@click.option("--wait", is_flag=True, help="Wait until it has ended; exit codes as of qcg-pm wait.")
@json_option
@on_manager
def command(manager: Manager, file: str | None, name: str | None, wait: bool, as_json: bool, **line: Any) -> int:
    """Submit the jobs of FILE, or one job that runs PROGRAM. Prints their names.

    FILE is a JSON array of job descriptions, or a request file, of which the submits are taken; - means
    standard input. With --wait and --json, the names come with their states, as of qcg-pm wait.
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
                tell(f"Warning: {warning}")
        except QCGPJMAError as error:
            if number == 1:
                raise
            _show(names, as_json)
            reason = error.reason if isinstance(error, RequestRefusedError) else str(error)
            raise Denial(
                f"submit {number} of {len(submissions)} in {file} was refused, and none after it was sent: {reason}."
                f" Those before it are accepted, with {many(len(names), 'job')}"
            ) from None
    if not (wait and as_json):  # then one answer tells all: which jobs, and how they ended
        _show(names, as_json)
    if not wait:
        _warn(manager, names)
    return wait_for(manager, names, None, as_json=as_json) if wait else 0


def _show(names: list[str], as_json: bool) -> None:
    if as_json:
        show_json({"submitted": len(names), "jobs": names})
    else:
        say("\n".join(map(printable, names)))


def _warn(manager: Manager, names: list[str]) -> None:
    """About jobs that can never start: they are FAILED from the beginning."""
    states = manager.status(names)["jobs"]
    failed = [name for name, entry in states.items() if entry["status"] == 0 and entry["data"]["status"] == "FAILED"]
    for name, entry in manager.info(failed[:MOST_EXPLAINED])["jobs"].items() if failed else ():
        info = entry.get("data", {})
        # One that has run is not our concern: it is quick, and has nothing to do with how it was submitted.
        if "messages" in info and "runtime" not in info and "EXECUTING" not in info["history"]:
            tell(f"Warning: {printable(name)} is FAILED: {printable(info['messages'])}")


def _job(program: list[str], name: str | None, line: dict[str, Any]) -> dict[str, Any]:
    name = name or made_up_name(program[0], os.urandom(3).hex())
    # An iteration must not write over the others.
    base = name if line["iteration"] is None else f"{name}.${{it}}"
    line["wd"] = os.path.abspath(line["wd"] or os.curdir)
    line["stdout"] = line["stdout"] or f"{base}.out"
    line["stderr"] = line["stderr"] or f"{base}.err"
    try:
        return job_of_line(program, name, **line)
    except LineError as error:
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
            tell(f"request {number} of {file} is no submit and is left out")
    return submissions
