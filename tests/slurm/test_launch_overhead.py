"""The launch overhead of MPI programs, compared with the same command by hand in the same allocation."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from tests.slurm.allocation_run import AllocationRun
from tests.support.mpi import ENVIRONMENT, compiled
from tests.support.pilot import Run, job
from tests.support.slurm_cluster import Cluster

ROUNDS = 5
MEASUREMENTS = 7
BAR = 1.1

SOURCE = Path(__file__).parent / "waves.c"
SECONDS = "1"
"""Run time of the program: ten percent of the total is then a third of the time to start and end it."""

BY_HAND = """
mkfifo back go
for round in {0..%(rounds)d}; do
    read -r < back
    began=$EPOCHREALTIME
    %(command)s > hand.$round.out && echo "$began $EPOCHREALTIME" >> by_hand
    echo > go
done &
"""
"""Runs the command by hand, each time the manager passes the turn; then the manager continues."""


@pytest.mark.timed
@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("model", "options", "nodes", "by_hand"),
    [
        ("openmpi", {"mpirun": "mpirun.openmpi"}, 2, "mpirun.openmpi -n 4 --bind-to core"),
        # Open MPI 4.1 under srun crashes now and then when it is on several nodes, by hand as well.
        ("srunmpi", {"srun_args": ["--mpi=pmix"]}, 1, "srun --mpi=pmix --overlap -n 2 --cpu-bind=map_cpu:0,1"),
    ],
    ids=["openmpi", "srunmpi"],
)
def test_a_parallel_program_takes_at_most_a_tenth_longer_than_when_started_by_hand(
    model: str, options: dict[str, Any], nodes: int, by_hand: str, real_cluster: Cluster, tmp_path: Path
):
    program = [str(compiled("openmpi", tmp_path, SOURCE)), SECONDS]
    described = job("pilot", *program, model=model, model_opts=options, numNodes=nodes, numCores=2)
    ratios: list[float] = []
    # Other load on this machine disturbs measurements: up to seven are made, and all their rounds count.
    for number in range(MEASUREMENTS):
        real_cluster.cwd = tmp_path / str(number)
        real_cluster.cwd.mkdir()
        ratios += measured(real_cluster, described, nodes, " ".join([by_hand, *program]))
        if median(ratios) <= BAR:
            break
    print(f"{model}: {median(ratios):.3f} in the median of {[round(ratio, 2) for ratio in sorted(ratios)]}")
    assert median(ratios) <= BAR, ratios


def measured(cluster: Cluster, described: dict[str, Any], nodes: int, command: str) -> list[float]:
    """Durations of jobs, each divided by the mean of the runs by hand right before and after it."""
    jobs = [turn(0)]
    for place in range(1, ROUNDS + 1):
        execution = {**described["execution"], "stdout": f"pilot.{place}.out"}
        after = {"after": [f"turn{place - 1}"]}
        jobs.append({**described, "name": f"pilot{place}", "execution": execution, "dependencies": after})
        jobs.append(turn(place, after=[f"pilot{place}"]))
    exports = "".join(f"export {name}={value}\n" for name, value in ENVIRONMENT.items())
    first = exports + BY_HAND % {"rounds": ROUNDS, "command": command}
    run = AllocationRun(cluster, jobs, first=first, then="kill $!; exit $code", nodes=nodes, ntasks_per_node=2).wait()
    assert set(run.states.values()) == {"SUCCEED"}, (run.states, run.done.stdout)
    times = [[float(time) for time in line.split()] for line in (cluster.cwd / "by_hand").read_text().splitlines()]
    by_hand = [end - start for start, end in times]
    assert len(by_hand) == ROUNDS + 1, run.done.stdout
    outputs = {tuple(sorted(path.read_text().splitlines())) for path in cluster.cwd.glob("*.*.out")}
    assert len(outputs) == 1, f"the runs differ in processes or CPUs: {outputs}"
    assert len(outputs.pop()) == 2 * nodes
    by_pilot = [taken(run, f"pilot{place}") for place in range(1, ROUNDS + 1)]
    return [one / mean(by_hand[place : place + 2]) for place, one in enumerate(by_pilot)]


def turn(place: int, **more: Any) -> dict[str, Any]:
    """A job that passes the turn to the script, and waits until the script returns it."""
    return job(f"turn{place}", script="echo > back; read -r < go", **more)


def taken(run: Run, name: str) -> float:
    """Seconds from the grant of cores to the end of the job."""
    times = {step["state"]: datetime.fromisoformat(step["date"]) for step in run.report[name]["history"]}
    return (times["SUCCEED"] - times["SCHEDULED"]).total_seconds()
