"""CPU time of an idle manager with a network interface, and of its agent."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from bench.finding import Result, Setting, at_most
from bench.limit import fresh
from bench.service import service
from bench.turns import in_turns
from qcg.pilotjob.agent.pidfile import read_agent_pid
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.executors.local_agent import NAME

WINDOW = 10.0
"""Seconds: two heartbeats of the agent, and two updates of the contact file."""
BAR = 0.1


def run(setting: Setting) -> Result:
    folder = fresh(setting.directory / "idle")
    with service(folder) as manager:
        manager.submit(Jobs().add(name="first", exec="true"))
        manager.wait4("first")
        agent = read_agent_pid(Path(manager.qcgpm_conf["run_dir"]), NAME)
        assert agent is not None
        pids = [manager.qcgpm_process.pid, agent.pid]
        time.sleep(1)  # the last commit and sync
        measured = in_turns({"% of a core": lambda: _share(pids)}, setting.rounds)
    share = median(measured["% of a core"])
    note = "manager and agent meet every five seconds, and the contact file is touched"
    return Result([at_most("idle", "idle service, manager and agent together", share, BAR, "%", note)])


def _share(pids: list[int]) -> float:
    before = sum(map(_cpu, pids))
    time.sleep(WINDOW)
    return 100 * (sum(map(_cpu, pids)) - before) / WINDOW


def _cpu(pid: int) -> float:
    """Seconds that all threads of a process have run, by the statistics of the kernel's scheduler."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
