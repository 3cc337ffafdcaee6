"""`qcg-pm-client PROGRAM.py`: a manager for the time that a program runs.

The program is a child process of this command with the environment that a job finds its manager through. It holds no
core: it decides and waits, and must not keep the jobs that it waits for from running, least of all on a machine with
one core. And it has the terminal, as if it were run alone.
"""

from __future__ import annotations

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
from qcg.pilotjob.cli import finding
from qcg.pilotjob.cli.legacy_options import tell_ignored_options
from qcg.pilotjob.cli.options import join_node_list, resolve_cores, shared
from qcg.pilotjob.cli.refusing import Refusal
from qcg.pilotjob.cli.saying import many, tell
from qcg.pilotjob.cli.target import DIRECTORY
from qcg.pilotjob.wire import contact

if TYPE_CHECKING:
    from qcg.pilotjob.api.manager import LocalManager

ZMQ_ADDRESS = "QCG_PM_ZMQ_ADDRESS"
GOING = 5.0
"""Seconds for a manager that has closed its connections to end."""


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

    The program finds the manager as a job does: `Manager()` needs no address. When it ends, the manager ends, and with
    it the jobs that have not ended by then.
    """
    from qcg.pilotjob.api.errors import QCGPJMAError
    from qcg.pilotjob.api.manager import LocalManager

    resolve_cores(given)
    tell_ignored_options(context)
    try:
        manager = LocalManager(_given_again(context), {"log_file": ""})
    except QCGPJMAError as error:
        raise Refusal(str(error)) from None
    try:
        code = _run([sys.executable, program, *arguments], _environment(manager), given["wd"])
        left = _unfinished(manager)
        killed_by = -(manager.qcgpm_process.poll() or 0)
    finally:
        manager.cleanup()
    if killed_by > 0:
        run_dir = manager.qcgpm_conf["run_dir"]
        tell(
            f"the manager was killed ({signal.Signals(killed_by).name}) while the program ran; jobs that it had started"
            f" go on, and `qcg-pm run --resume {run_dir}` goes on with the rest"
        )
    if left:
        tell(f"cancelled {many(left, 'job')} that had not ended when the program did")
    sys.exit(code)


def _given_again(context: click.Context) -> list[str]:
    """The options of this command line, for the service."""
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
    """What leads to this manager, and nothing that leads to another one."""
    environment = {key: value for key, value in os.environ.items() if key not in (DIRECTORY, finding.ADDRESS)}
    environment[ZMQ_ADDRESS] = manager.qcgpm_conf["address"]
    environment[finding.CONTACT] = str(Path(manager.qcgpm_conf["run_dir"], contact.FILE_NAME))
    return environment


def _run(line: list[str], environment: dict[str, str], wd: str) -> int:
    """The program's exit code; as a shell tells it when a signal ended it."""
    with subprocess.Popen(line, env=environment, cwd=wd) as process, _signals_to(process):
        code = process.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def _signals_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """The program decides what a signal means; this command ends after it. A terminal sends SIGINT to both itself."""

    def pass_on(number: int, frame: object) -> None:
        process.send_signal(number)

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda number, frame: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _unfinished(manager: LocalManager) -> int:
    """How many jobs are cut off now; none when the program has ended the manager itself."""
    from qcg.pilotjob.api.errors import ConnectionError

    if manager.qcgpm_process.poll() is not None:
        return 0
    try:
        jobs = manager.system_status()["JobStats"]
    except ConnectionError:
        # Its connections are closed before it is gone.
        with suppress(subprocess.TimeoutExpired):
            manager.qcgpm_process.wait(GOING)
        return 0
    unfinished: int = jobs["InScheduleJobs"] + jobs["ExecutingJobs"]
    return unfinished


def own_arguments(arguments: list[str]) -> int:
    """How many of the arguments are of this command: all before the program, whose arguments are left as they are."""
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
