"""Random workloads with retries, while managers and agents are killed at random moments.

Every attempt appends a line when it begins and another one before it ends, each with one write. The lines show whether
two attempts of one job ever ran at a time, and whether the numbers of attempts have gaps.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.crashing import Crashing
from tests.support.pilot import job, write_requests
from tests.support.tiers import per_tier

# $1: name, $2: number of the attempt, $3: how often it fails before it succeeds, $4: how it fails, $5: seconds.
SCRIPT = r"""
echo "begin $1 $2 $$ $(date +%s.%N)" >> marks
for pid in $(sed -n "s/^begin $1 [0-9]* \([0-9]*\) .*/\1/p" marks); do
    if [ $pid != $$ ] && tr '\0' ' ' < /proc/$pid/cmdline | grep -q " attempt-of $1 "; then
        echo "overlap $1 $2 $pid" >> marks
    fi
done 2> /dev/null
failures=$(grep -c "^end $1 .* failed$" marks)
sleep $5
if [ $failures -ge $3 ]; then
    echo "end $1 $2 $$ $(date +%s.%N) succeeded" >> marks
    exit 0
fi
echo "end $1 $2 $$ $(date +%s.%N) failed" >> marks
[ $4 = exit ] && exit 3
kill -9 $$
"""
BUDGET = 3
"""Retries for each of the causes `exit` and `signal`."""
NEVER = 1000
"""Failures of a job that is not to succeed, and losses that no job may reach."""
KILLS = per_tier(6, 100)


class Workload(NamedTuple):
    jobs: list[dict[str, Any]]
    expected: dict[str, str]
    """The final states of jobs and iterations by name."""


def random_workload(dice: random.Random, number: int) -> Workload:
    jobs: list[dict[str, Any]] = []
    expected: dict[str, str] = {}
    for n in range(number):
        failures = dice.choice([0, 0, 1, 1, 2, BUDGET, NEVER])
        name = f"job-{n}"
        more: dict[str, Any] = {}
        names = [name]
        if dice.random() < 0.2:
            more["iteration"] = dice.randint(2, 4)
            names = [f"{name}:{index}" for index in range(more["iteration"])]
        earlier = [other["name"] for other in jobs]
        prerequisites = dice.sample(earlier, 1) if earlier and dice.random() < 0.3 else []
        if prerequisites:
            more["after"] = prerequisites
        jobs.append(one_job(dice, name, failures, iterated="iteration" in more, **more))
        state = "FAILED" if failures == NEVER else "SUCCEED"
        if any(expected[other] != "SUCCEED" for other in prerequisites):
            state = "OMITTED"
        # The report has no entries of single iterations that were omitted with their job.
        expected |= dict.fromkeys([name] if state == "OMITTED" else [name, *names], state)
    return Workload(jobs, expected)


def one_job(dice: random.Random, name: str, failures: int, *, iterated: bool, **more: Any) -> dict[str, Any]:
    how, seconds = dice.choice(["exit", "signal"]), f"{dice.uniform(0.01, 0.2):.2f}"
    shown = f"{name}:${{it}}" if iterated else name
    retry = {"on": {"exit": BUDGET, "signal": BUDGET, "lost": NEVER}, "delay": dice.choice([0, 0.05, 0.3])}
    arguments = ("attempt-of", shown, "${attempt}", str(failures), how, seconds)
    return job(name, "/bin/sh", "-c", SCRIPT, *arguments, retry=retry, **more)


class Attempts:
    """The lines that the attempts of all jobs have written."""

    def __init__(self, lines: list[str]) -> None:
        self.begun: dict[str, list[int]] = defaultdict(list)
        """Numbers of the attempts of each job, in the order of their beginnings."""
        self.overlaps = [line for line in lines if line.startswith("overlap ")]
        spans: dict[str, dict[int, list[float]]] = defaultdict(dict)
        for line in lines:
            what, name, number, *more = line.split()
            if what == "begin":
                self.begun[name].append(int(number))
                spans[name][int(number)] = [float(more[1])]
            elif what == "end":
                spans[name][int(number)].append(float(more[1]))
        for name, of_job in spans.items():
            last_end = 0.0
            for attempt, (begin, *end) in of_job.items():
                if begin < last_end:
                    self.overlaps.append(f"attempt {attempt} of {name} began before the end of an earlier one")
                last_end = max([last_end, *end])


def check_numbers(name: str, begun: list[int], entry: dict[str, Any]) -> None:
    """The report numbers attempts without gaps, and all of them have started, except for some that were lost."""
    past = entry.get("attempts", [])
    assert [one["attempt"] for one in past] == list(range(1, len(past) + 1)), name
    assert begun == sorted(set(begun)), f"{name}: {begun}"
    lost = {one["attempt"] for one in past if one["cause"] == "lost"}
    assert set(range(1, len(past) + 2)) - lost <= set(begun) <= set(range(1, len(past) + 2)), f"{name}: {begun}"


@pytest.mark.cold_start  # some kills hit a manager that loads its modules
@pytest.mark.sampled
@pytest.mark.timeout(per_tier(300, 1800))
def test_attempts_run_once_and_one_at_a_time_when_managers_and_agents_are_killed(tmp_path: Path):
    dice = random.Random(11)
    workload = random_workload(dice, per_tier(25, 300))
    keeper = job("keeper", "/bin/sh", "-c", "until [ -e release ]; do sleep 0.05; done", retry={"on": {"lost": NEVER}})
    requests = write_requests(tmp_path / "requests.json", [keeper, *workload.jobs])
    crashing = Crashing(tmp_path, requests, "--nodes", "n1:2,n2:3")
    crashing.start()
    for _ in range(KILLS):
        lines = len(crashing.marks())
        dying = dice.choice(["agent", "manager", "both"])
        if not all_begun(crashing, workload):
            crashing.wait_for_marks(lines + dice.randint(1, 6))
        time.sleep(dice.uniform(0, 0.2))
        if dying != "manager":
            crashing.kill_agent()
        if dying != "agent":
            crashing.kill_manager()
            crashing.start()
    crashing.release()
    crashing.wait()
    attempts, entries = Attempts(crashing.marks()), crashing.entries()
    assert attempts.overlaps == []
    assert {name: entry["state"] for name, entry in entries.items() if name != "keeper"} == workload.expected
    assert entries["keeper"]["state"] == "SUCCEED"
    for name, begun in attempts.begun.items():
        check_numbers(name, begun, entries[name])
    crashing.check_registry({**workload.expected, "keeper": "SUCCEED"})


def all_begun(crashing: Crashing, workload: Workload) -> bool:
    """Whether no further attempt can start."""
    reported = crashing.entries_so_far()
    return len(reported) >= len(workload.expected) - 5
