"""`qcg-pm alloc FILE`: run a request file in an allocation of its own, or in several one after another."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from qcg.pilotjob.batch.follower import Follower
from qcg.pilotjob.batch.script import ScriptCommand, batch_script
from qcg.pilotjob.cli.commands.run import command as run
from qcg.pilotjob.cli.console import echo, echo_err, echo_styled, on_terminal
from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.cli.preflight import Time, check_file, check_rest, read_unfinished_part
from qcg.pilotjob.cli.shell_completion import run_directories
from qcg.pilotjob.cluster.base import AllocationQueue, Phase
from qcg.pilotjob.cluster.errors import BatchError, ClusterError
from qcg.pilotjob.cluster.registry import batch_system, other_queues, queue_names, queue_of, system_for_submission
from qcg.pilotjob.cluster.spec import AllocationSpec
from qcg.pilotjob.common.environment import BATCH_SYSTEM
from qcg.pilotjob.common.exit_codes import INTERRUPTED
from qcg.pilotjob.common.options import UsageError
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.executors.ssh.config import load_hosts
from qcg.pilotjob.interfaces.file import FileError
from qcg.pilotjob.manager.remote_hosts import node_specs
from qcg.pilotjob.runs.chain_state import SCRIPT
from qcg.pilotjob.runs.discovery import find_runs, run_to_resume
from qcg.pilotjob.runs.manager_process import has_manager
from qcg.pilotjob.runs.rundir import PREFIX
from qcg.pilotjob.runs.submissions import (
    Submission,
    free_directory,
    last_submission,
    refuse_active_allocations,
    write_submission,
)

NODES = "Nodes of each allocation: 4 is four nodes, 2-4 two to four, 2x4 two nodes with four cores each."

MOMENT = 0.5
"""Seconds after which a batch system usually reports why a new job waits."""

OWN = ("nodes", "cores", "resources", "pretend", "file", "wd", "run_id", "resume", "help", "as_json")
PASSED_ON = [parameter for parameter in run.params if parameter.name not in OWN and parameter.expose_value]
"""Options of `qcg-pm run` that are given to it inside the allocation."""

_OPTIONS = [
    click.argument("file", type=click.Path(readable=False), required=False),
    click.argument("more", nargs=-1, type=click.UNPROCESSED, metavar="[-- FURTHER OPTIONS]"),
    click.option("-N", "--nodes", default="1", show_default=True, help=NODES),
    click.option(
        "--cores",
        "--ntasks-per-node",
        type=click.IntRange(min=1),
        help="Cores on each node. Otherwise whole nodes, with all cores and memory.",
    ),
    click.option(
        "-t", "--time", "limit", help="Limit of each allocation: 1h30m, 01:30:00, 2-12 (days-hours), or 90 (minutes)."
    ),
    click.option("-p", "--partition", help="Partition or queue of the nodes."),
    click.option("-A", "--account", help="Account to charge."),
    click.option("-q", "--qos", help="Quality of service."),
    click.option("--gpus-per-node", help="GPUs on each node: 2, or a100:2."),
    click.option("--gres", help="Other generic resources on each node."),
    click.option("--mem", help="Memory on each node: 4000M, 16G; 0 is all."),
    click.option("--exclusive", is_flag=True, help="No other jobs on these nodes."),
    click.option("-J", "--job-name", help="Name in the queue; otherwise that of FILE."),
    click.option("-o", "--output", help="Output file of the allocation; otherwise one in the working directory."),
    click.option(
        "--max-allocations",
        "max_allocations",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Allocations, one after another, while jobs are left.",
    ),
    click.option(
        "--wd",
        type=click.Path(readable=False),
        default=".",
        show_default=True,
        help="Working directory of the jobs and of the run's files.",
    ),
    click.option("--id", "run_id", help="Name of the run; otherwise one is made up."),
    click.option(
        "--resume",
        metavar="PATH",
        shell_complete=run_directories,
        help="Continue this run: its run directory, or the working directory.",
    ),
    click.option("-W", "--wait", is_flag=True, help="Wait for the end of the run, and end with its exit code."),
    click.option("--dry-run", "--script-only", is_flag=True, help="Print the batch script, and do nothing else."),
]


def allocation_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments and options of commands that submit a run."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("alloc")
@allocation_options
@click.option(
    "--batch-system",
    type=click.Choice(queue_names()),
    help=f"Where to submit; otherwise where the run was submitted before, {BATCH_SYSTEM}, or the one found here.",
)
@click.option(
    "--submit-arg",
    multiple=True,
    metavar="OPTION",
    help="A further option of the command that submits, in one word.",
)
@click.pass_context
def command(context: click.Context, /, **given: Any) -> None:
    """Submit a batch script that runs the requests of FILE, with qcg-pm run, in an allocation of the batch system.

    Takes the options of `qcg-pm run` too, for the run. Words after -- are further options of the command that submits.

    Exit code 0: submitted; with --wait, that of the run (4: jobs are left). 2: it could not be submitted.
    """
    submit_run(context, given["batch_system"], given.pop("submit_arg"), given)


command.params += PASSED_ON


def submit_run(context: click.Context, system: str | None, further: Sequence[str], given: dict[str, Any]) -> None:
    """Submit the run that the options of a command describe.

    `system`: name of the batch system; None: that of the last submission of a resumed run, or the one found here.
    `further`: options of the command that submits.
    """
    file, more = given.pop("file"), given.pop("more")
    if file is not None and file.startswith("-"):
        more = (file, *more)
        file = None
    if (file is None) == (given["resume"] is None):
        raise click.UsageError("give a request FILE, or a run to continue with --resume PATH")
    try:
        _divide_nodes(given)
        code = _submit(context, system, file, (*further, *more), given)
    except (ClusterError, UsageError, FileError) as error:
        raise Refusal(str(error)) from None
    except OSError as error:
        raise Refusal(f"{error.filename} cannot be written: {error.strerror}; choose another --wd") from None
    sys.exit(code)


def _submit(
    context: click.Context, chosen: str | None, file: str | None, more: Sequence[str], given: dict[str, Any]
) -> int:
    run_dir = _run_dir(file, given)
    last = last_submission(run_dir) if file is None else None
    system = chosen or (batch_system(last.system).name if last else system_for_submission(os.environ))
    if not chosen and not last and (others := other_queues(os.environ)):
        echo_err(others)
    queue = queue_of(system)
    earlier = _spec_kept(last, system) if last else AllocationSpec()
    spec = _spec(context, queue, earlier, more, given)
    _check_output(queue, spec.output, run_dir.parent)
    directory = free_directory(run_dir)
    options = queue.options(spec, Path(file).stem if file else run_dir.name.removeprefix(PREFIX), run_dir.parent)
    environ = queue.command_environment(os.environ, options)
    most = spec.max_allocations
    script_text = batch_script(queue.directives(options), _script_command(context, file, run_dir, directory, most))
    if file is not None or not given["dry_run"]:
        nodes = [*queue.largest_allocation(options, environ), *node_specs(load_hosts(given["hosts"], os.environ))]
        time_given = Time(spec.limit, given["time_limit"], given["grace"])
        if file is not None:
            check_file(Path(file), nodes, time_given, run_dir.parent, given["named"])
        elif not _is_worth_it(run_dir, nodes, time_given, given["named"]):
            return 0
    if given["dry_run"]:
        (echo if on_terminal() else echo_styled)(script_text.rstrip())
        return 0
    job_id = _submit_script(queue, directory, script_text, environ)
    echo(f"Submitted batch job {job_id}")
    write_submission(directory, Submission(job_id, str(run_dir), spec, system))
    echo_err(f"The batch script is {directory / SCRIPT}, the run will be in {run_dir}.")
    if file is None:
        echo_err(f"It asks for {spec}{'; other options are those of the last submission' if last else ''}.")
    if given["wait"]:
        return _wait(queue, directory, job_id, most, environ)
    _print_next_steps(queue, job_id, run_dir, environ)
    return 0


def _divide_nodes(given: dict[str, Any]) -> None:
    """`--nodes 2x4` is `--nodes 2 --cores 4`."""
    match = re.fullmatch(r"(\d{1,9})\s*[xX]\s*([1-9]\d{0,8})", given["nodes"], re.ASCII)
    if match is None:
        return
    if given["cores"] is not None:
        raise UsageError(f"--nodes {given['nodes']} says how many cores each node has: leave out --cores")
    given["nodes"], given["cores"] = match[1], int(match[2])


def _spec_kept(last: Submission, system: str) -> AllocationSpec:
    """The spec of the last submission, without words of its batch system where another one is chosen."""
    before = batch_system(last.system)
    if before.name == system:
        return last.spec
    spec, left_out = last.spec.for_another_system()
    if left_out:
        echo_err(f"Options of the last submission are for {before.label}, and are left out: {shlex.join(left_out)}")
    return spec


def _spec(
    context: click.Context, queue: AllocationQueue, earlier: AllocationSpec, more: Sequence[str], given: dict[str, Any]
) -> AllocationSpec:
    """The spec of the allocations: that of earlier ones of the run, with the options of this command in their place."""
    names = {name for name in AllocationSpec.__struct_fields__ if name in given}
    changed = {name: given[name] for name in names if _was_given(context, name)}
    if given["cores"] is not None:  # also as a part of --nodes
        changed["cores"] = given["cores"]
    further = queue.further_options(more)
    kept = queue.options_kept(earlier.extra_options, further)
    return msgspec.structs.replace(earlier, **changed, extra_options=[*kept, *further])


def _is_worth_it(run_dir: Path, nodes: list[NodeSpec], time_given: Time, named: tuple[str, ...]) -> bool:
    """Whether a run has unfinished jobs, which must fit into the allocation."""
    left = read_unfinished_part(run_dir)
    if not left.jobs and left.all_read:
        echo_err(f"Nothing is left to do in {run_dir}: all of its jobs have ended, so nothing was submitted.")
        return False
    remembered = (left.options.time_limit, left.options.grace)
    limit, grace = (
        now if now is not None else before
        for now, before in zip((time_given.time_limit, time_given.grace), remembered, strict=True)
    )
    check_rest(run_dir, left.jobs, nodes, Time(time_given.limit, limit, grace), named or left.options.named)
    return True


def _submit_script(queue: AllocationQueue, directory: Path, text: str, environ: Mapping[str, str]) -> str:
    """Write and submit the batch script, and return the id of the allocation. Both are removed when that fails."""
    directory.mkdir(mode=0o700, parents=True)
    script = directory / SCRIPT
    script.touch(mode=0o600)
    script.write_text(text)
    try:
        return queue.submit(script, environ)
    except BatchError:
        script.unlink()
        directory.rmdir()
        raise


def _print_next_steps(queue: AllocationQueue, job_id: str, run_dir: Path, environ: Mapping[str, str]) -> None:
    try:
        seen = queue.view(job_id, environ)
        if seen is not None and seen.phase is Phase.WAITING and not seen.reason:
            time.sleep(MOMENT)
            seen = queue.view(job_id, environ)
    except BatchError as error:
        echo_err(f"The state of job {job_id} cannot be read: {error}")
        return
    if seen is None:
        return
    echo_err(str(seen))
    if seen.blocked:
        echo_err(seen.blocked)
    echo_err(f"Once it runs, `qcg-pm status --path {shlex.quote(str(run_dir.parent))}` shows its progress.")
    if seen.output:
        echo_err(f"Its output will be in {seen.output}.")


def _wait(queue: AllocationQueue, directory: Path, job_id: str, most: int, environ: Mapping[str, str]) -> int:
    try:
        return Follower(queue, directory, job_id, most, environ, echo_err).wait()
    except KeyboardInterrupt:
        echo_err(f"interrupted; the job continues (`{queue.cancel_command(job_id)}` cancels it)")
        return INTERRUPTED


def _run_dir(file: str | None, given: dict[str, Any]) -> Path:
    if file is None:
        run_dir = run_to_resume(Path(given["resume"])).resolve()
        for notice in find_runs(Path(given["resume"])).notices():
            echo_err(notice)
        if not given["dry_run"]:
            refuse_active_allocations(run_dir, os.environ)
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
        refuse_active_allocations(run_dir, os.environ)
    return run_dir


def _check_output(queue: AllocationQueue, output: str | None, wd: Path) -> None:
    """Refuse an output file without a directory: a batch system ends such a job at once, without a message."""
    where = queue.output_directory(output, wd) if output else None
    if where is not None and where != wd and not where.is_dir():
        raise BatchError(f"--output {output}: there is no directory {where}; make it first")


def _made_up_id(file: str) -> str:
    number = int.from_bytes(os.urandom(8), "big") % 10**8
    return re.sub(r"[^\w.-]", "_", Path(file).stem) + f".{number:08d}"


def _script_command(
    context: click.Context, file: str | None, run_dir: Path, directory: Path, most: int
) -> ScriptCommand:
    arguments = ["--resume", str(run_dir)]
    if file is not None:
        arguments = [os.path.abspath(file), f"--wd={run_dir.parent}", f"--id={run_dir.name.removeprefix(PREFIX)}"]
    return ScriptCommand(
        python=sys.executable,
        python_path=os.environ.get("PYTHONPATH", ""),
        wd=str(run_dir.parent),
        state=str(directory),
        run_dir=str(run_dir),
        most=most,
        run=[*arguments, *_passed_on(context)],
    )


def _passed_on(context: click.Context) -> list[str]:
    """The options of `qcg-pm run` on this command line."""
    words = []
    for option in PASSED_ON:
        name = option.name or ""
        if _was_given(context, name):
            value = context.params[name]
            values = value if isinstance(value, tuple) else (value,)
            words += [option.opts[0] if one is True else f"{option.opts[0]}={one}" for one in values]
    return words


def _was_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
