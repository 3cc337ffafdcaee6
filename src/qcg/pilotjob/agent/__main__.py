"""`python -m qcg.pilotjob.agent`: the process that runs jobs on one node."""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import sys
from pathlib import Path

import msgspec

from qcg.pilotjob.agent.agent import Agent
from qcg.pilotjob.agent.log import say
from qcg.pilotjob.agent.pidfile import claim, end_frozen, read_agent_pid, remove_agent_pid, write_agent_pid
from qcg.pilotjob.common.gc_tuning import collect_seldom
from qcg.pilotjob.host.ledger import LedgerError
from qcg.pilotjob.host.safe_open import open_own


class Order(msgspec.Struct):
    run_dir: str
    options: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="qcg.pilotjob.agent", description="Runs the jobs of a manager on this node.")
    parser.add_argument("--run-dir", type=Path, required=True, help="run directory of the manager")
    node = os.environ.get("SLURMD_NODENAME")
    parser.add_argument("--name", default=node, required=node is None, help="name of this agent in the run")
    parser.add_argument("--linger", type=float, default=600.0, help="seconds to wait for a manager without jobs")
    parser.add_argument("--parent", type=int, default=0, help="pid of the manager, when that is what starts this agent")
    parser.add_argument("--pretend", action="store_true", help="start nothing: jobs end at once")
    parser.add_argument("--open-files", type=int, default=0, help="the limit of open files that jobs get")
    parser.add_argument("--own-log", action="store_true", help="write to agent-NAME.log in the run directory")
    parser.add_argument(
        "--replace-after",
        type=float,
        default=None,
        metavar="SECONDS",
        help="kill the agent of this name, if there is one here and it does nothing at all for so long",
    )
    parser.add_argument("--outside", action="store_true", help="not started by Slurm, which so does not end it")
    parser.add_argument("--until", type=float, default=None, help="when the allocation ends, in seconds of the epoch")
    arguments = sys.argv[1:]
    if arguments == ["--later"] and not (arguments := _told_later()):
        return 0  # nobody needs it
    options = parser.parse_args(arguments)
    open_files = _raise_limit_of_open_files(options.open_files)
    run_dir = options.run_dir.resolve()
    claimed = False
    try:
        if options.own_log:
            _log_to(run_dir / f"agent-{options.name}.log")
        if options.replace_after is not None and end_frozen(run_dir, options.name, options.replace_after):
            say(f"the agent {options.name} was there and silent; it was killed")
        if not claim(run_dir, options.name):
            say(f"the agent {options.name} of {run_dir} runs already{_pid_of_other(run_dir, options.name)}")
            return 2
        claimed = True
        # Before the ledger is opened: whoever opens it ends what the one before has left.
        write_agent_pid(run_dir, options.name, outside=options.outside)
        agent = Agent(
            run_dir, options.name, options.linger, options.parent, pretend=options.pretend, open_files=open_files
        )
        if options.outside:
            from qcg.pilotjob.agent import allocation_watchdog  # here: few need it, and all would wait for it

            allocation_watchdog.start(run_dir, options.until)
    except (OSError, LedgerError) as error:
        say(f"the agent {options.name} cannot work in {run_dir}: {error}")
        if claimed:  # otherwise it may tell of another one, which lives
            remove_agent_pid(run_dir, options.name)
        return 2
    collect_seldom()
    agent.run()
    remove_agent_pid(run_dir, options.name)
    return 0


def _raise_limit_of_open_files(wanted: int) -> int:
    """Use all descriptors that the hard limit allows: each captured stream of a running job takes one.

    The soft limit that jobs get: `wanted`, or without it the one this process was given.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # the hard limit is lowered at this moment
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(wanted or soft, hard)


def _told_later() -> list[str]:
    """The options, once whoever has started this agent knows them. Everything is loaded by then."""
    order = sys.stdin.buffer.read()
    if not order:
        return []
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    told = msgspec.json.decode(order, type=Order)
    os.chdir(told.run_dir)
    return told.options


def _log_to(path: Path) -> None:
    """Instead of wherever this process was started from, which may be far away and gone one day."""
    descriptor = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _pid_of_other(run_dir: Path, name: str) -> str:
    other = read_agent_pid(run_dir, name)
    return f" (pid {other.pid})" if other is not None else ""


if __name__ == "__main__":
    sys.exit(main())
