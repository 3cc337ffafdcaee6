"""A manager that is killed at any moment: nothing is lost and nothing runs twice."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.crashing import Crashing, marking, waiting
from tests.support.pilot import write_requests

KILLS = {
    "while starting": 20,
    "while greeting the agent, and submitting": 20,
    "right after a start": 30,
    "somewhere between two commits": 30,
}
LONG = ("long-0", "long-1")


def thousand_jobs() -> tuple[list[list[dict[str, Any]]], set[str], set[str]]:
    """Submissions of 1,000 jobs and iterations; the names of all runs; the names of the iterated jobs."""
    pause = "sleep 0.05"
    submissions: list[list[dict[str, Any]]] = [[waiting(name) for name in LONG]]
    submissions += [[marking(f"alone-{n}", pause) for n in range(first, first + 33)] for first in range(0, 330, 33)]
    submissions.append([marking("many", pause, iteration={"stop": 234})])
    submissions.append([marking("each", pause, iteration={"stop": 234}, after=["many:${it}"])])
    for chain in range(10):
        submissions.append([_link(chain, step, pause) for step in reversed(range(20))])
    runs = {*LONG, *(f"alone-{n}" for n in range(330)), *(f"chain-{c}-{s}" for c in range(10) for s in range(20))}
    runs |= {f"{name}:{index}" for name in ("many", "each") for index in range(234)}
    assert len(runs) == 1000
    return submissions, runs, {"many", "each"}


def _link(chain: int, step: int, pause: str) -> dict[str, Any]:
    return marking(f"chain-{chain}-{step}", pause, after=[f"chain-{chain}-{step - 1}"] if step else [])


@pytest.mark.timeout(900)
def test_a_thousand_jobs_run_once_each_though_their_manager_is_killed_a_hundred_times(tmp_path: Path):
    dice = random.Random(2)
    submissions, runs, iterated = thousand_jobs()
    crashing = Crashing(tmp_path, write_requests(tmp_path / "requests.json", *submissions), "--nodes", "4")
    moments = [moment for moment, times in KILLS.items() for _ in range(times)]
    dice.shuffle(moments)
    for kill, moment in enumerate(moments):
        crashing.start()
        _let_it_work(crashing, dice, moment, len(moments) - kill)
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
    for index in range(234):
        assert _time(entries, f"many:{index}", -1) <= _time(entries, f"each:{index}", 1)
    crashing.check_nothing_left()


def _let_it_work(crashing: Crashing, dice: random.Random, moment: str, lives: int) -> None:
    """Until such a moment, which one of them the dice choose."""
    share = (1000 - len(crashing.marks())) / lives
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
    more = dice.randint(1, max(1, int(share)))
    _until(lambda: len(crashing.marks()) >= begun + more)
    if moment == "somewhere between two commits":
        time.sleep(dice.uniform(0.0, 0.08))


def _until(condition: Any, most: float = 3.0) -> None:
    """Or until it has waited long enough: where the dice choose a moment that never comes, any other will do."""
    deadline = time.monotonic() + most
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)


def _time(entries: dict[str, Any], name: str, step: int) -> str:
    date: str = entries[name]["history"][step]["date"]
    return date
