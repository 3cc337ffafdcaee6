"""A manager that is killed at any time: no job is lost, and none runs twice."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.crashing import Crashing, marking, waiting
from tests.support.pilot import write_requests

LONG = ("long-0", "long-1")


class Jobs(NamedTuple):
    """The number of submitted jobs and iterations, besides two that wait until all kills are done."""

    alone: int
    iterations: int
    """The iterations of a job, and of another job that depends on it by index."""
    chains: int
    steps: int

    def submissions(self) -> tuple[list[list[dict[str, Any]]], set[str], set[str]]:
        """All submissions; the names of all runs; the names of the iterated jobs."""
        pause = "sleep 0.05"
        iteration = {"stop": self.iterations}
        tenth = self.alone // 10
        submissions: list[list[dict[str, Any]]] = [[waiting(name) for name in LONG]]
        firsts = range(0, self.alone, tenth)
        submissions += [[marking(f"alone-{n}", pause) for n in range(first, first + tenth)] for first in firsts]
        submissions.append([marking("many", pause, iteration=iteration)])
        submissions.append([marking("each", pause, iteration=iteration, after=["many:${it}"])])
        steps = range(self.steps)
        submissions += [[_link(chain, step, pause) for step in reversed(steps)] for chain in range(self.chains)]
        runs = {*LONG, *(f"alone-{n}" for n in range(self.alone))}
        runs |= {f"chain-{chain}-{step}" for chain in range(self.chains) for step in range(self.steps)}
        runs |= {f"{name}:{index}" for name in ("many", "each") for index in range(self.iterations)}
        return submissions, runs, {"many", "each"}


def _link(chain: int, step: int, pause: str) -> dict[str, Any]:
    return marking(f"chain-{chain}-{step}", pause, after=[f"chain-{chain}-{step - 1}"] if step else [])


@pytest.mark.cold_start  # some kills hit a manager that loads its modules
def test_jobs_run_once_each_though_their_manager_is_killed_twelve_times(tmp_path: Path):
    kills = {
        "while starting": 2,
        "while greeting the agent, and submitting": 2,
        "right after a start": 4,
        "somewhere between two commits": 4,
    }
    run_and_kill(tmp_path, Jobs(alone=40, iterations=28, chains=3, steps=8), kills)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_thousand_jobs_run_once_each_though_their_manager_is_killed_a_hundred_times(tmp_path: Path):
    kills = {
        "while starting": 20,
        "while greeting the agent, and submitting": 20,
        "right after a start": 30,
        "somewhere between two commits": 30,
    }
    run_and_kill(tmp_path, Jobs(alone=330, iterations=234, chains=10, steps=20), kills)


def run_and_kill(tmp_path: Path, jobs: Jobs, kills: dict[str, int]) -> None:
    dice = random.Random(2)
    submissions, runs, iterated = jobs.submissions()
    crashing = Crashing(tmp_path, write_requests(tmp_path / "requests.json", *submissions), "--nodes", "4")
    moments = [moment for moment, times in kills.items() for _ in range(times)]
    dice.shuffle(moments)
    for kill, moment in enumerate(moments):
        crashing.start()
        share = (len(runs) - len(crashing.marks())) / (len(moments) - kill)
        _let_it_work(crashing, dice, moment, int(share))
        crashing.kill_manager()
    assert len(crashing.marks()) < len(runs), "the run was over before all kills were done"
    crashing.release()
    done = crashing.finish()
    assert done.returncode == 0, done.stderr + done.stdout
    crashing.check_starts(runs)
    crashing.check_success(runs, iterated)
    entries = crashing.entries()
    for name in LONG:
        assert int(entries[name]["runtime"]["pid"]) == crashing.pid_of(name), "found again, not started again"
    for index in range(jobs.iterations):
        assert _time(entries, f"many:{index}", -1) <= _time(entries, f"each:{index}", 1)
    crashing.check_nothing_left()


def _let_it_work(crashing: Crashing, dice: random.Random, moment: str, share: int) -> None:
    """Wait for a random moment, but for no more starts than the share of this manager."""
    if moment == "while starting":
        time.sleep(dice.uniform(0.0, 0.6))
        return
    if moment == "while greeting the agent, and submitting":
        log = crashing.run_dir / "service.log"
        seen = log.stat().st_size if log.exists() else 0
        _until(lambda: log.exists() and log.stat().st_size > seen)
        time.sleep(dice.uniform(0.0, 0.1))
        return
    begun = len(crashing.marks())
    more = dice.randint(1, max(1, share))
    _until(lambda: len(crashing.marks()) >= begun + more)
    if moment == "somewhere between two commits":
        time.sleep(dice.uniform(0.0, 0.08))


def _until(condition: Any, most: float = 3.0) -> None:
    """Wait for the condition or a timeout: if the chosen moment never comes, any other moment will do."""
    deadline = time.monotonic() + most
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)


def _time(entries: dict[str, Any], name: str, step: int) -> str:
    date: str = entries[name]["history"][step]["date"]
    return date
