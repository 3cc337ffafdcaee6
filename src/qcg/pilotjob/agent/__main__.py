"""`python -m qcg.pilotjob.agent`: the process that runs jobs on one node."""

from __future__ import annotations

import argparse
import resource
import sys
from pathlib import Path

from qcg.pilotjob.agent.loop import Agent, say
from qcg.pilotjob.agent.pidfile import claim, read_agent_pid, remove_agent_pid, write_agent_pid
from qcg.pilotjob.collecting import collect_seldom
from qcg.pilotjob.host.ledger import LedgerError


def main() -> int:
    parser = argparse.ArgumentParser(prog="qcg.pilotjob.agent", description="Runs the jobs of a manager on this node.")
    parser.add_argument("--run-dir", type=Path, required=True, help="run directory of the manager")
    parser.add_argument("--name", required=True, help="name of this agent in the run")
    parser.add_argument("--linger", type=float, default=600.0, help="seconds to wait for a manager without jobs")
    parser.add_argument("--parent", type=int, default=0, help="pid of the manager, when that is what starts this agent")
    parser.add_argument("--pretend", action="store_true", help="start nothing: jobs end at once")
    parser.add_argument("--open-files", type=int, default=0, help="the limit of open files that jobs get")
    options = parser.parse_args()
    if options.open_files:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (options.open_files, most))
    run_dir = options.run_dir.resolve()
    try:
        if not claim(run_dir, options.name):
            say(f"the agent {options.name} of {run_dir} runs already{_pid_of_other(run_dir, options.name)}")
            return 2
        # Before the ledger is opened: whoever opens it ends what the one before has left.
        write_agent_pid(run_dir, options.name)
        agent = Agent(run_dir, options.name, options.linger, options.parent, pretend=options.pretend)
    except (OSError, LedgerError) as error:
        say(f"the agent {options.name} cannot work in {run_dir}: {error}")
        remove_agent_pid(run_dir, options.name)
        return 2
    collect_seldom()
    agent.run()
    remove_agent_pid(run_dir, options.name)
    return 0


def _pid_of_other(run_dir: Path, name: str) -> str:
    other = read_agent_pid(run_dir, name)
    return f" (pid {other.pid})" if other is not None else ""


if __name__ == "__main__":
    sys.exit(main())
