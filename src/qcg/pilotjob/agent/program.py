"""The command line of an agent, and the checks at its start."""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import sys
from pathlib import Path

import msgspec

from qcg.pilotjob.agent.agent import Agent, prepare
from qcg.pilotjob.agent.log import say
from qcg.pilotjob.agent.pidfile import claim, kill_frozen_agent, read_agent_pid, remove_agent_pid, write_agent_pid
from qcg.pilotjob.common.exit_codes import CANNOT_START
from qcg.pilotjob.common.gc_tuning import collect_seldom
from qcg.pilotjob.host.ledger import LedgerError
from qcg.pilotjob.host.safe_open import open_own


class Assignment(msgspec.Struct):
    """Sent to an agent that was started ahead, over its standard input."""

    run_dir: str
    options: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="qcg.pilotjob.agent", description="Runs the jobs of a manager on this node.")
    parser.add_argument("--run-dir", type=Path, required=True, help="run directory of the manager")
    parser.add_argument("--name", default="", help="name of this agent in the run")
    parser.add_argument("--name-variable", default="", help="environment variable with the name of this agent")
    parser.add_argument("--linger", type=float, default=600.0, help="seconds to wait for a manager without jobs")
    parser.add_argument("--parent", type=int, default=0, help="pid of the manager, where the manager starts this agent")
    parser.add_argument("--pretend", action="store_true", help="start nothing: jobs end at once")
    parser.add_argument("--open-files", type=int, default=0, help="limit of open files for jobs")
    parser.add_argument("--own-log", action="store_true", help="write to agent-NAME.log in the run directory")
    parser.add_argument(
        "--replace-after",
        type=float,
        default=None,
        metavar="SECONDS",
        help="kill the agent of this name on this host, if it shows no activity for so long",
    )
    parser.add_argument("--outside", action="store_true", help="the batch system does not end this agent")
    parser.add_argument("--until", type=float, default=None, help="when the allocation ends, in seconds of the epoch")
    parser.add_argument("--allocation", default="", help="id of the allocation that this node belongs to")
    parser.add_argument("--cluster", default="", help="cluster of the allocation")
    parser.add_argument("--batch-system", default="", help="batch system of the allocation")
    arguments = sys.argv[1:]
    if arguments == ["--later"] and not (arguments := _receive_options()):
        return 0  # the manager has ended, or does not need this agent
    options = parser.parse_args(arguments)
    options.name = options.name or os.environ.get(options.name_variable, "")
    if not options.name:
        parser.error("the name of the agent is missing: give --name, or --name-variable with a variable that is set")
    open_files = _raise_limit_of_open_files(options.open_files)
    run_dir = options.run_dir.resolve()
    claimed = False
    try:
        if options.own_log:
            _log_to(run_dir / f"agent-{options.name}.log")
        if options.replace_after is not None and kill_frozen_agent(run_dir, options.name, options.replace_after):
            say(f"an agent {options.name} was running and showed no activity; it was killed")
        if not claim(run_dir, options.name):
            say(f"the agent {options.name} of {run_dir} runs already{_pid_of_other(run_dir, options.name)}")
            return CANNOT_START
        claimed = True
        # Before the ledger is opened, because opening it ends jobs that an earlier agent has left.
        write_agent_pid(
            run_dir, options.name, options.allocation, options.cluster, options.batch_system, outside=options.outside
        )
        agent = Agent(
            run_dir,
            options.name,
            options.linger,
            options.parent,
            in_allocation=bool(options.allocation),
            simulate=options.pretend,
            open_files=open_files,
        )
        if options.outside and options.allocation:
            _start_watchdog(options)
    except (OSError, LedgerError) as error:
        say(f"the agent {options.name} cannot work in {run_dir}: {error}")
        if claimed:  # otherwise the file may describe another agent, which is alive
            remove_agent_pid(run_dir, options.name)
        return CANNOT_START
    collect_seldom()
    agent.run()
    remove_agent_pid(run_dir, options.name)
    return 0


def _start_watchdog(options: argparse.Namespace) -> None:
    """Start the process that ends this agent when the allocation is over. The code that asks the batch system is loaded
    there, not in the agent."""
    command = [sys.executable, "-m", "qcg.pilotjob.cluster.watchdog", "--run-dir", str(options.run_dir.resolve())]
    command += ["--allocation", options.allocation, "--cluster", options.cluster]
    command += ["--batch-system", options.batch_system, "--agent", str(os.getpid())]
    command += [] if options.until is None else ["--until", f"{options.until:.0f}"]
    os.posix_spawn(sys.executable, command, os.environ, setsigmask=())


def _raise_limit_of_open_files(wanted: int) -> int:
    """Raise the limit of open files to the hard limit: each captured stream of a running job takes one.

    Returns the soft limit for jobs: `wanted`, or else the original one of this process.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # the hard limit is lowered at this moment
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(wanted or soft, hard)


def _receive_options() -> list[str]:
    """Wait for the manager to send the options of this agent, which was started ahead. Empty: it is not needed."""
    prepare()
    sent = sys.stdin.buffer.read()
    if not sent:
        return []
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    assignment = msgspec.json.decode(sent, type=Assignment)
    os.chdir(assignment.run_dir)
    return assignment.options


def _log_to(path: Path) -> None:
    """Write to this file, not to the output of the process that started this agent, which may end before it."""
    descriptor = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _pid_of_other(run_dir: Path, name: str) -> str:
    other = read_agent_pid(run_dir, name)
    return f" (pid {other.pid})" if other is not None else ""
