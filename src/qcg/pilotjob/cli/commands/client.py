"""`qcg-pm-client PROGRAM.py`: run a program together with a manager.

The program is a child process of this command, and finds the manager through the same environment variables as a job.
Unlike a job it holds no core, because it mostly waits for its jobs, which need the cores. It has the terminal, as if it
were run alone.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from qcg.pilotjob import __version__
from qcg.pilotjob.cli.console import echo_err
from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.cli.legacy_options import print_ignored_options
from qcg.pilotjob.cli.node_list import join_node_list
from qcg.pilotjob.cli.options import resolve_cores, shared
from qcg.pilotjob.common.environment import JOB_ADDRESS, JOB_CONTACT, MANAGER_ADDRESS, RUN_DIRECTORY
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.runs.resume_hint import jobs_left_text
from qcg.pilotjob.wire import contact

if TYPE_CHECKING:
    from qcg.pilotjob.api.manager import LocalManager

CLOSE_TIMEOUT = 5.0
"""Seconds for a manager to end after it has closed its connections."""
EXIT_TIMEOUT = 20.0
"""Seconds for a manager to end its jobs after a signal."""


@click.command(
    "qcg-pm-client",
    context_settings={"help_option_names": ["-h", "--help"], "allow_interspersed_args": False},
)
@click.version_option(__version__, "-V", "--version", prog_name="qcg-pm-client")
@shared
@click.argument("program", type=click.Path(exists=True, dir_okay=False, resolve_path=True))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(context: click.Context, /, program: str, arguments: tuple[str, ...], **given: Any) -> None:
    """Start a manager, run PROGRAM with this Python and its ARGUMENTS, and end with the program's exit code.

    The program finds the manager as a job does: `Manager()` needs no address. When the program ends, so does the
    manager: jobs that run then are CANCELED, or QUEUED again after a signal. Waiting jobs stay QUEUED, and the last
    line says how to continue with them.
    """
    from qcg.pilotjob.api.errors import QCGPJMAError
    from qcg.pilotjob.api.manager import LocalManager

    resolve_cores(given)
    print_ignored_options(context)
    try:
        manager = LocalManager(_service_arguments(context), {"log_file": ""})
    except QCGPJMAError as error:
        raise Refusal(str(error)) from None
    # The warning of the API about unfinished jobs is for programs; this command prints its own line.
    logging.getLogger("qcg.pilotjob.api").addHandler(logging.NullHandler())
    run_dir = Path(manager.qcgpm_conf["run_dir"])
    signals: list[int] = []
    try:
        code = _run([sys.executable, program, *arguments], _environment(manager), given["wd"], signals)
        unfinished = _unfinished(manager)
        killed_by = -(manager.qcgpm_process.poll() or 0)
    finally:
        if signals:
            _interrupt(manager)
        manager.cleanup()
    if killed_by > 0:
        echo_err(
            f"the manager was killed ({signal.Signals(killed_by).name}) while the program ran; jobs that it had started"
            f" continue, and `qcg-pm run --resume {run_dir}` continues with the other jobs"
        )
    else:
        _print_jobs_left(run_dir, unfinished)
    sys.exit(code)


def _interrupt(manager: LocalManager) -> None:
    """End the manager after a signal ended the program: running jobs are QUEUED again."""
    manager.qcgpm_process.terminate()
    with suppress(subprocess.TimeoutExpired):
        manager.qcgpm_process.wait(EXIT_TIMEOUT)


def _print_jobs_left(run_dir: Path, unfinished: int) -> None:
    """Print how many jobs were cancelled, and how to resume. `unfinished`: jobs at the end of the program."""
    from qcg.pilotjob.runs.unfinished import read_unfinished

    left = read_unfinished(run_dir)
    if unfinished > left.unfinished:
        echo_err(f"cancelled {pluralize(unfinished - left.unfinished, 'job')} that had not ended when the program did")
    if left.unfinished:
        go_on = left.resume_command(serves=False).replace("`", "")
        echo_err(f"{jobs_left_text(left.unfinished)}, because the program has ended. Continue with: {go_on}")


def _service_arguments(context: click.Context) -> list[str]:
    """The options of this command line, for `qcg-pm-service`."""
    arguments = []
    for option in context.command.params:
        assert option.name is not None
        given = context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
        if isinstance(option, click.Option) and option.expose_value and given:
            arguments.append(option.opts[0])
            if not option.is_flag:
                arguments.append(str(context.params[option.name]))
    return arguments


def _environment(manager: LocalManager) -> dict[str, str]:
    """The environment with variables for this manager, and without variables for another one."""
    environment = {key: value for key, value in os.environ.items() if key not in (RUN_DIRECTORY, MANAGER_ADDRESS)}
    environment[JOB_ADDRESS] = manager.qcgpm_conf["address"]
    environment[JOB_CONTACT] = str(Path(manager.qcgpm_conf["run_dir"], contact.FILE_NAME))
    return environment


def _run(line: list[str], environment: dict[str, str], wd: str, signals: list[int]) -> int:
    """Run the program and return its exit code, that of a shell after a signal. Signals that this command receives are
    added to `signals`."""
    with subprocess.Popen(line, env=environment, cwd=wd) as process, _signals_to(process, signals):
        code = process.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def _signals_to(process: subprocess.Popen[bytes], signals: list[int]) -> Iterator[None]:
    """Forward signals to the program, and end after it. SIGINT is not forwarded: a terminal sends it to both."""

    def pass_on(number: int, frame: object) -> None:
        signals.append(number)
        if number != signal.SIGINT:
            process.send_signal(number)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored under `nohup`
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _unfinished(manager: LocalManager) -> int:
    """Number of unfinished jobs; 0 when the program has ended the manager itself."""
    from qcg.pilotjob.api.errors import ConnectionError

    if manager.qcgpm_process.poll() is not None:
        return 0
    try:
        jobs = manager.system_status()["JobStats"]
    except ConnectionError:
        # The manager closes its connections before it ends.
        with suppress(subprocess.TimeoutExpired):
            manager.qcgpm_process.wait(CLOSE_TIMEOUT)
        return 0
    unfinished: int = jobs["InScheduleJobs"] + jobs["ExecutingJobs"]
    return unfinished


def own_arguments(arguments: list[str]) -> int:
    """Number of arguments before the program: they are options of this command, all others belong to the program."""
    with_value = {
        name
        for option in command.params
        if isinstance(option, click.Option) and not option.is_flag
        for name in option.opts
    }
    place = 0
    in_nodes = False
    while place < len(arguments):
        argument = arguments[place]
        if in_nodes and (argument.startswith(",") or arguments[place - 1].endswith(",")):
            place += 1
            continue
        if not argument.startswith("-"):
            break
        in_nodes = argument.startswith("--nodes")
        place += 2 if argument in with_value else 1
    return min(place, len(arguments))


def main(*, standalone_mode: bool = True) -> Any:
    given = sys.argv[1:]
    place = own_arguments(given)
    arguments = [*join_node_list(given[:place]), *given[place:]]
    return command(arguments, prog_name="qcg-pm-client", standalone_mode=standalone_mode)
