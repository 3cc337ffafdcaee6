"""`qcg-pm sbatch FILE`: run a request file in an allocation of its own, or in several one after another."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import click

from qcg.pilotjob.batch.following import Following
from qcg.pilotjob.batch.script import Inside, batch_script, further_options
from qcg.pilotjob.batch.sizes import largest_allocation
from qcg.pilotjob.batch.spec import Shape
from qcg.pilotjob.batch.submissions import (
    Submission,
    last_shape,
    refuse_while_under_way,
    write_submission,
)
from qcg.pilotjob.cli.commands.run import command as run
from qcg.pilotjob.cli.console import on_terminal, say, say_styled, tell
from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.cli.preflight import Time, check_file, check_rest, left_of
from qcg.pilotjob.cli.shell_completion import run_directories
from qcg.pilotjob.cluster import slurm_jobs as slurm
from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.cluster.slurm_jobs import environment_for
from qcg.pilotjob.common.exit_codes import INTERRUPTED
from qcg.pilotjob.common.options import UsageError
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.interfaces.file import FileError
from qcg.pilotjob.runs.chain_state import SCRIPT
from qcg.pilotjob.runs.discovery import find_runs, has_manager, to_resume
from qcg.pilotjob.runs.rundir import PREFIX
from qcg.pilotjob.runs.submissions import free_directory

NODES = "Nodes of each allocation: 4 is four nodes, 2-4 two to four, 2x4 two nodes with four cores each."

MOMENT = 0.5
"""Seconds after which Slurm has mostly looked at a new job, and says what it waits for."""

OWN = ("nodes", "cores", "resources", "pretend", "file", "wd", "run_id", "resume", "help", "as_json")
PASSED_ON = [parameter for parameter in run.params if parameter.name not in OWN and parameter.expose_value]
"""Options of `qcg-pm run` that are given to it inside the allocation."""


@click.command("sbatch")
@click.argument("file", type=click.Path(readable=False), required=False)
@click.argument("more", nargs=-1, type=click.UNPROCESSED, metavar="[-- SBATCH OPTIONS]")
@click.option("-N", "--nodes", default="1", show_default=True, help=NODES)
@click.option(
    "--cores",
    "--ntasks-per-node",
    type=click.IntRange(min=1),
    help="Cores on each node. Otherwise whole nodes, with all cores and memory.",
)
@click.option(
    "-t", "--time", "limit", help="Limit of each allocation: 1h30m, 01:30:00, 2-12 (days-hours), or 90 (minutes)."
)
@click.option("-p", "--partition", help="Where to ask for nodes.")
@click.option("-A", "--account", help="Whom to charge.")
@click.option("-q", "--qos", help="Quality of service.")
@click.option("--gpus-per-node", help="GPUs on each node: 2, or a100:2.")
@click.option("--gres", help="Other generic resources on each node.")
@click.option("--mem", help="Memory on each node: 4000M, 16G; 0 is all.")
@click.option("--exclusive", is_flag=True, help="No other jobs on these nodes.")
@click.option("-J", "--job-name", help="Name in the queue; otherwise that of FILE.")
@click.option("-o", "--output", help="What the allocation prints; otherwise slurm-JOBID.out in the working directory.")
@click.option("--sbatch-arg", multiple=True, help="A further option of sbatch: --sbatch-arg=--constraint=fast.")
@click.option(
    "--max-allocations",
    "most",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Allocations, one after another, while jobs are left.",
)
@click.option(
    "--wd",
    type=click.Path(readable=False),
    default=".",
    show_default=True,
    help="Working directory of the jobs and of the run's files.",
)
@click.option("--id", "run_id", help="Name of the run; otherwise one is made up.")
@click.option(
    "--resume",
    metavar="PATH",
    shell_complete=run_directories,
    help="Continue this run: its run directory, or the working directory.",
)
@click.option("-W", "--wait", is_flag=True, help="Wait for the end of the run, and end with its exit code.")
@click.option("--dry-run", "--script-only", is_flag=True, help="Print the batch script, and do nothing else.")
@click.pass_context
def command(context: click.Context, /, file: str | None, more: tuple[str, ...], **given: Any) -> None:
    """Submit a batch script that runs the requests of FILE, with qcg-pm run, in an allocation of Slurm.

    Takes the options of `qcg-pm run` too, for the run. What follows -- is for sbatch.

    Exit code 0: submitted; with --wait, that of the run (4: jobs are left). 2: it could not be submitted.
    """
    if file is not None and file.startswith("-"):
        more = (file, *more)
        file = None
    if (file is None) == (given["resume"] is None):
        raise click.UsageError("give a request FILE, or a run to continue with --resume PATH")
    try:
        _divide_nodes(given)
        code = _submit(context, file, more, given)
    except (BatchError, UsageError, FileError) as error:
        raise Refusal(str(error)) from None
    except OSError as error:
        raise Refusal(f"{error.filename} cannot be written: {error.strerror}; choose another --wd") from None
    sys.exit(code)


command.params += PASSED_ON


def _submit(context: click.Context, file: str | None, more: tuple[str, ...], given: dict[str, Any]) -> int:
    run_dir = _run_dir(file, given)
    earlier = last_shape(run_dir) if file is None else None
    shape = _shape(context, earlier or Shape(), more, given)
    _check_output(shape.output, run_dir.parent)
    directory = free_directory(run_dir)
    options = shape.options(Path(file).stem if file else run_dir.name.removeprefix(PREFIX), run_dir.parent)
    environ = environment_for(options, dict(os.environ))
    script_text = batch_script(options, _inside(context, file, run_dir, directory, shape.most))
    if file is not None or not given["dry_run"]:
        nodes = largest_allocation(options, slurm.largest_node(shape.partition, environ))
        time_given = Time(shape.limit, given["time_limit"], given["grace"])
        if file is not None:
            check_file(Path(file), nodes, time_given)
        elif not _is_worth_it(run_dir, nodes, time_given):
            return 0
    if given["dry_run"]:
        (say if on_terminal() else say_styled)(script_text.rstrip())
        return 0
    job_id = _submit_script(directory, script_text, environ)
    say(f"Submitted batch job {job_id}")
    write_submission(directory, Submission(job_id, str(run_dir), shape))
    tell(f"The batch script is {directory / SCRIPT}, the run will be in {run_dir}.")
    if file is None:
        tell(f"It asks for {shape}{'; what was not given now is as it was' if earlier else ''}.")
    if given["wait"]:
        return _wait(directory, job_id, shape.most, environ)
    _tell_what_next(job_id, run_dir, environ)
    return 0


def _divide_nodes(given: dict[str, Any]) -> None:
    """`--nodes 2x4` is `--nodes 2 --cores 4`."""
    match = re.fullmatch(r"(\d{1,9})\s*[xX]\s*([1-9]\d{0,8})", given["nodes"], re.ASCII)
    if match is None:
        return
    if given["cores"] is not None:
        raise UsageError(f"--nodes {given['nodes']} says how many cores each node has: leave out --cores")
    given["nodes"], given["cores"] = match[1], int(match[2])


def _shape(context: click.Context, earlier: Shape, more: tuple[str, ...], given: dict[str, Any]) -> Shape:
    """Of the allocations: as it was for a run that is continued, but for what is given anew."""
    names = {name for name in Shape.__struct_fields__ if name in given}
    anew = {name: given[name] for name in names if _was_given(context, name)}
    if given["cores"] is not None:  # also as a part of --nodes
        anew["cores"] = given["cores"]
    return earlier.changed(anew, further_options([*given["sbatch_arg"], *more]))


def _is_worth_it(run_dir: Path, nodes: list[NodeSpec], time_given: Time) -> bool:
    """Whether anything is left of a run; what is left has to fit."""
    left = left_of(run_dir)
    if not left.jobs and left.all_read:
        tell(f"Nothing is left to do in {run_dir}: all of its jobs have ended, so nothing was submitted.")
        return False
    remembered = (left.options.time_limit, left.options.grace)
    limit, grace = (
        now if now is not None else before
        for now, before in zip((time_given.time_limit, time_given.grace), remembered, strict=True)
    )
    check_rest(run_dir, left.jobs, nodes, Time(time_given.limit, limit, grace))
    return True


def _submit_script(directory: Path, text: str, environ: dict[str, str]) -> str:
    """The job that was made of it. When there is none, nothing is left of it."""
    directory.mkdir(mode=0o700, parents=True)
    script = directory / SCRIPT
    script.touch(mode=0o600)
    script.write_text(text)
    try:
        return slurm.submit(script, environ)
    except BatchError:
        script.unlink()
        directory.rmdir()
        raise


def _tell_what_next(job_id: str, run_dir: Path, environ: dict[str, str]) -> None:
    try:
        seen = slurm.look(job_id, environ)
        if seen is not None and seen.state == "PENDING" and seen.reason == "None":
            time.sleep(MOMENT)
            seen = slurm.look(job_id, environ)
    except BatchError as error:
        tell(f"Job {job_id} cannot be looked at: {error}")
        return
    if seen is None:
        return
    tell(str(seen))
    if seen.hopeless:
        tell(seen.hopeless)
    tell(f"Once it runs, `qcg-pm status --path {shlex.quote(str(run_dir.parent))}` tells how far it is.")
    tell(f"What it prints will be in {seen.output}.")


def _wait(directory: Path, job_id: str, most: int, environ: dict[str, str]) -> int:
    try:
        return Following(directory, job_id, most, environ, tell).wait()
    except KeyboardInterrupt:
        tell(f"interrupted; the job goes on (`scancel {job_id}` ends it)")
        return INTERRUPTED


def _run_dir(file: str | None, given: dict[str, Any]) -> Path:
    if file is None:
        run_dir = to_resume(Path(given["resume"])).resolve()
        for notice in find_runs(Path(given["resume"])).notices():
            tell(notice)
        if not given["dry_run"]:
            refuse_while_under_way(run_dir, environment_for([], dict(os.environ)))
        if has_manager(run_dir):
            raise BatchError(f"a manager is at work in {run_dir}; wait for it, or end it first")
        return run_dir
    run_id = given["run_id"] or _made_up_id(file)
    if "/" in run_id:
        raise BatchError(f"--id {run_id!r} cannot be part of a directory's name; leave out the '/'")
    run_dir = Path(given["wd"]).resolve() / f"{PREFIX}{run_id}"
    if run_dir.exists():
        raise BatchError(f"there is already a run {run_dir}: continue it with --resume, or give another --id")
    if not given["dry_run"]:
        refuse_while_under_way(run_dir, environment_for([], dict(os.environ)))
    return run_dir


def _check_output(output: str | None, wd: Path) -> None:
    """Where it cannot be written, Slurm ends the job at once, and nobody learns why."""
    where = wd / Path(output or "").parent
    if output and "%" not in str(where) and where != wd and not where.is_dir():
        raise BatchError(f"--output {output}: there is no directory {where}; make it first")


def _made_up_id(file: str) -> str:
    number = int.from_bytes(os.urandom(8), "big") % 10**8
    return re.sub(r"[^\w.-]", "_", Path(file).stem) + f".{number:08d}"


def _inside(context: click.Context, file: str | None, run_dir: Path, directory: Path, most: int) -> Inside:
    arguments = ["--resume", str(run_dir)]
    if file is not None:
        arguments = [os.path.abspath(file), f"--wd={run_dir.parent}", f"--id={run_dir.name.removeprefix(PREFIX)}"]
    return Inside(
        python=sys.executable,
        python_path=os.environ.get("PYTHONPATH", ""),
        books=str(directory),
        run_dir=str(run_dir),
        most=most,
        run=[*arguments, *_passed_on(context)],
    )


def _passed_on(context: click.Context) -> list[str]:
    """Options of the run, as they were given."""
    words = []
    for option in PASSED_ON:
        name = option.name or ""
        if _was_given(context, name):
            value = context.params[name]
            words.append(option.opts[0] if value is True else f"{option.opts[0]}={value}")
    return words


def _was_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
