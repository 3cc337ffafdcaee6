"""`qcg-pm submit`: submit jobs to a running manager, from a file or from the command line."""

from __future__ import annotations

import os
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.commands.wait import wait_for
from qcg.pilotjob.cli.console import echo, echo_err
from qcg.pilotjob.cli.errors import Denial, Refusal
from qcg.pilotjob.cli.explanations import MOST_EXPLAINED
from qcg.pilotjob.cli.job_from_argv import JobOptionError, generate_name, input_pattern, job_from_arguments
from qcg.pilotjob.cli.lint import shell_command_as_program
from qcg.pilotjob.cli.manager_lookup import on_manager_or
from qcg.pilotjob.cli.options import check_retry, seconds_of
from qcg.pilotjob.cli.param_types import PRIORITY, GpuCount, Whole
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.cli.submission_files import read_submissions
from qcg.pilotjob.cli.suggestions import suggest_options
from qcg.pilotjob.cli.sweep_from_argv import commands_sweep, split_words, sweep_of
from qcg.pilotjob.cli.tables import json_option, show_json
from qcg.pilotjob.common.exit_codes import FAILURE
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.host.safe_open import read_input

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager

PROGRAM = "qcg.pilotjob.program"
VALUES = "qcg.pilotjob.values"
_ITERATION = "--iteration 10 runs it for ${it} from 0 to 9, and ::: {1..10} for the values 1 to 10"
MOST_COMMANDS = 1 << 28
"""Bytes of the largest file of commands."""


class WithProgram(click.Command):
    """A command whose arguments after `--` are a program and its arguments, not options; after `:::`, values."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            words = split_words(args)
        except JobOptionError as error:
            raise click.UsageError(str(error), ctx) from None
        ctx.meta[PROGRAM], ctx.meta[VALUES] = words.program, words.values
        try:
            return super().parse_args(ctx, words.options)
        except click.UsageError as error:
            if "--" not in args and any(not arg.startswith("-") for arg in args):
                hint = "to submit a program, put -- before it: qcg-pm submit -- PROGRAM ARGS"
                problem = suggest_options(error) if isinstance(error, click.NoSuchOption) else error
                raise click.UsageError(f"{problem.format_message()} ({hint})", ctx) from None
            raise

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- PROGRAM [ARGS]...] [::: VALUES...]"]


def _check_wall_time(context: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    """Checked here: the error of the manager names a key of a description that the user has not written."""
    if given is not None:
        seconds_of(given)
    return given


def _check_memory(context: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    from qcg.pilotjob.description.errors import DescriptionError  # here: few commands need it
    from qcg.pilotjob.description.memory import parse_memory

    try:
        return given if given is None else f"{parse_memory(given)}MB"
    except DescriptionError as error:
        raise click.BadParameter(error.problems[0].sentence) from None


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
    help="Start after these jobs have succeeded; separate names with commas.",
)
@click.option(
    "--afterany",
    multiple=True,
    metavar="NAMES",
    shell_complete=job_names(),
    help="Start after these jobs have ended, however.",
)
@click.option(
    "--afternotok",
    multiple=True,
    metavar="NAMES",
    shell_complete=job_names(),
    help="Start after these jobs have ended without success.",
)
@click.option(
    "--afterstart",
    multiple=True,
    metavar="NAMES",
    shell_complete=job_names(),
    help="Start after these jobs have begun to run.",
)
@click.option(
    "--iteration", type=Whole(min=1, about_ranges=_ITERATION), metavar="N", help="Run it N times, ${it} from 0 on."
)
@click.option(
    "--each", type=click.Path(), metavar="FILE", help="Run it for each row of a .csv or .jsonl file, with ${row.NAME}."
)
@click.option(
    "--commands",
    type=click.Path(),
    metavar="FILE",
    help="Run each line of FILE as a shell command; - means standard input.",
)
@click.option("--wt", "wall_time", callback=_check_wall_time, help="Wall time: 90s, 1h30m.")
@click.option(
    "--mem",
    callback=_check_memory,
    help="Memory on each node, for which it is scheduled and which it must not exceed: 500MB, 2GB.",
)
@click.option(
    "--gpus", type=GpuCount(), metavar="N", help="GPUs on each node: 2, or a part of one such as 0.5, which jobs share."
)
@click.option(
    "--named",
    multiple=True,
    metavar="NAME=N",
    help="Resources of your own that it holds while it runs, such as license=1; may be repeated.",
)
@click.option(
    "--stream-output",
    is_flag=True,
    help="Collect its output with that of other jobs in one file per node, instead of files of its own.",
)
@click.option(
    "--retry",
    metavar="NUMBER|JSON",
    callback=lambda context, parameter, given: check_retry(given),
    help="Start it again when it does not succeed: how often, or an object as in request files.",
)
@click.option(
    "--priority",
    type=PRIORITY,
    metavar="N",
    help="Jobs with higher priorities are started first; 0 by default.",
)
@click.option("--hold", is_flag=True, help="Do not start it before it is released: qcg-pm release.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable of its environment.")
@click.option(
    "--host", metavar="NAME", help="Run it on this remote host of hosts.toml; '*' for any of them with free cores."
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="PATTERN",
    help="With --host: files or directories to copy to the working directory of the job there; may be repeated.",
)
@click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="PATTERN",
    help="With --host: files or directories in that directory to copy back after the end; may be repeated.",
)
@click.option("--wait", is_flag=True, help="Wait until it has ended; exit codes as of qcg-pm wait.")
@json_option
@on_manager_or("To submit jobs to it, open it with {serve}; for a new run: `qcg-pm-service --net`.")
def command(manager: Manager, file: str | None, name: str | None, wait: bool, as_json: bool, **line: Any) -> int:
    """Submit the jobs of FILE, or one job that runs PROGRAM. Prints their names.

    FILE is a JSON array of job descriptions, or a request file, whose submit requests are used; - means
    standard input. With --wait and --json, prints names with states, as qcg-pm wait does.

    After :::, each of VALUES is an iteration: its place in ARGS is {}, or the end. Several ::: combine all values, with
    the places {1} and {2}; :::+ pairs them. Without a program, VALUES are shell commands.
    """
    from qcg.pilotjob.api.errors import QCGPJMAError, RequestRefusedError

    meta = click.get_current_context().meta
    program, values = meta[PROGRAM], meta[VALUES]
    if file is not None and program:
        for kind in ("after", "afterany", "afternotok", "afterstart"):
            if line[kind] and not os.path.exists(file):
                names_given = ",".join([*line[kind], file])
                raise click.UsageError(f"several names are separated by commas: --{kind} {names_given}")
        raise click.UsageError("give a FILE, or a program after --, not both")
    if file is not None:
        if values or name or any(line.values()):
            raise click.UsageError(f"options of a job go with a program; write: qcg-pm submit … -- {file}")
        submissions = read_submissions(file, "to submit a program, put -- before it")
    elif program or values or line["commands"]:
        submissions = [[_job(program, values, name, line, manager.run_dir)]]
    else:
        raise click.UsageError("give a FILE of jobs, or a program after --")
    names: list[str] = []
    failed: dict[str, str] = {}
    for number, jobs in enumerate(submissions, 1):
        try:
            data = manager.send_request({"request": "submit", "jobs": jobs})["data"]
            names += data["jobs"]
            failed |= data.get("failed", {})
            for warning in data.get("warnings", ()):
                echo_err(f"Warning: {warning}")
        except QCGPJMAError as error:
            if number == 1:
                raise
            _show(names, failed, as_json)
            reason = error.reason if isinstance(error, RequestRefusedError) else str(error)
            raise Denial(
                f"submit {number} of {len(submissions)} in {file} was refused, and none after it was sent: {reason}."
                f" The submits before it were accepted, with {pluralize(len(names), 'job')}"
            ) from None
    if not (wait and as_json):  # `wait --json` prints the names, too
        _show(names, failed, as_json)
    if wait:
        return wait_for(manager, names, None, as_json=as_json)
    for never, why in islice(failed.items(), MOST_EXPLAINED):
        echo_err(f"Warning: {printable(never)} is FAILED: {printable(why)}")
    return FAILURE if failed else 0


def _show(names: list[str], failed: dict[str, str], as_json: bool) -> None:
    if as_json:
        show_json({"submitted": len(names), "jobs": names, **({"failed": failed} if failed else {})})
    else:
        echo("\n".join(map(printable, names)))


def _job(
    program: list[str], values: list[str], name: str | None, line: dict[str, Any], run_dir: Path | None
) -> dict[str, Any]:
    name = name or generate_name(program[0] if program else "commands", os.urandom(3).hex())
    try:
        program = _with_iterations(program, values, line)
    except JobOptionError as error:
        raise Refusal(str(error)) from None
    remote = {key: line.pop(key) for key in ("host", "inputs", "outputs")}
    if remote["host"] is None:
        if remote["inputs"] or remote["outputs"]:
            option = "--input" if remote["inputs"] else "--output"
            raise click.UsageError(f"{option} is for jobs on remote hosts; give --host too")
        for warning in shell_command_as_program(program, line["wd"] or os.curdir):
            echo_err(printable(f"Warning: {warning}"))
        # Each iteration needs its own output file.
        base = name if line["iteration"] is None else f"{name}.${{it}}"
        line["wd"] = os.path.abspath(line["wd"] or os.curdir)
        if not line["stream_output"]:
            line["stdout"] = line["stdout"] or f"{base}.out"
            line["stderr"] = line["stderr"] or f"{base}.err"
    else:
        line["remote"] = _remote_part(run_dir, **remote)
    try:
        return job_from_arguments(program, name, **line)
    except JobOptionError as error:
        raise Refusal(str(error)) from None


def _remote_part(run_dir: Path | None, host: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> dict[str, Any]:
    """The `remote` of a job. Inputs are given relative to the current directory."""
    here = os.getcwd()
    try:
        sources = [input_pattern(pattern, here, here if run_dir is None else str(run_dir.parent)) for pattern in inputs]
    except JobOptionError as error:
        raise Refusal(str(error)) from None
    return {"host": host, **({"inputs": sources} if sources else {}), **({"outputs": list(outputs)} if outputs else {})}


def _with_iterations(program: list[str], values: list[str], line: dict[str, Any]) -> list[str]:
    """Put the iterations that the options and values define into `line`; returns the program."""
    each, commands = line.pop("each"), line.pop("commands")
    given = {"--iteration": line["iteration"], "--each": each, "--commands": commands, ":::": values}
    used = [option for option, value in given.items() if value]
    if len(used) > 1:
        raise click.UsageError(f"{used[0]} and {used[1]} exclude each other; give one of them")
    if commands and program:
        raise click.UsageError("--commands has the commands itself; leave out the program")
    if each:
        line["iteration"] = {"file": os.path.abspath(each)}
    elif values or commands:
        sweep = sweep_of(program, values) if values else commands_sweep(_lines(commands))
        line["iteration"], line["script"] = sweep.iteration, sweep.script
        return sweep.program
    return program


def _lines(file: str) -> list[str]:
    """The lines of a file of commands."""
    try:
        content = sys.stdin.buffer.read() if file == "-" else read_input(file, MOST_COMMANDS)
        return content.decode().split("\n")
    except OSError as error:
        raise Refusal(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise Refusal(f"{file}, line {line}: is not UTF-8 text") from None
