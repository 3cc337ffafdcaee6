"""The sample `bac16.json` of the documents on four nodes: its jobs never share granted cores."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.slurm.allocation_run import granted_cores, run_in
from tests.support.slurm_cluster import Cluster, running_cluster

REQUESTS = Path(__file__).parents[1] / "e2e/samples/bac16.json"
CORES = 6
"""Cores of each node. It is not a multiple of four, so jobs with four cores share nodes, or span two."""

FAKE_PROGRAM = """
began=$EPOCHREALTIME
hosts=$(srun hostname)
sleep 0.3
cat > "{program}.$1.json" << end
{{"began": $began, "host": "$(hostname)", "hosts": "$(echo $hosts)", "nodes": "$QCG_PM_NODELIST",
  "counts": "$QCG_PM_TASKS_PER_NODE", "cpus": "$QCG_PM_CPU_SET", "ended": $EPOCHREALTIME}}
end
"""
"""A parallel program that replaces those of the sample, and records its grant and its run time."""


class Life(NamedTuple):
    """The record that a job has written."""

    name: str
    began: float
    ended: float
    host: str
    processes: Counter[str]
    """Number of processes on each host."""
    counts: dict[str, int]
    """Number of cores on each node, from its environment."""
    cpus: set[int]
    """CPUs on its first node, from its environment."""

    def overlaps(self, other: Life) -> bool:
        return self.began < other.ended and other.began < self.ended


@pytest.fixture
def wide_cluster(clusters_are_possible: None, tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(cpus=CORES, gpus=0) as cluster:
        cluster.cwd = tmp_path
        yield cluster


def test_jobs_of_bac16_never_share_granted_cores(wide_cluster: Cluster, tmp_path: Path):
    for program in ("namd", "amber"):
        (tmp_path / f"bac-{program}.sh").write_text(FAKE_PROGRAM.format(program=program))
    script = f"qcg-pm run {REQUESTS} --report-format json"
    batch = wide_cluster.sbatch(script, nodes=4, ntasks_per_node=CORES, time=10)
    assert batch.wait(timeout=110) == 0, batch.output
    report = run_in(tmp_path).report
    lives = {name: life(tmp_path, name) for name in report}
    assert set(lives) == {f"{program}_bac16_{index}" for program in ("namd", "amber") for index in range(1, 17)}
    assert {entry["state"] for entry in report.values()} == {"SUCCEED"}
    for index in range(1, 17):
        namd, amber = lives[f"namd_bac16_{index}"], lives[f"amber_bac16_{index}"]
        assert namd.ended <= amber.began
        assert list(namd.counts.values()) in ([CORES], [CORES, CORES])
        assert sum(amber.counts.values()) == 4
    granted = {name: granted_cores(entry) for name, entry in report.items()}
    for name, one in lives.items():
        assert len(granted[name]) == len(set(granted[name]))
        assert one.processes == one.counts == Counter(node for node, _ in granted[name])
        assert one.host == next(iter(one.counts))
        assert one.cpus == {core for node, core in granted[name] if node == one.host}
    check_no_core_is_shared(list(lives.values()), granted)


def check_no_core_is_shared(lives: list[Life], granted: dict[str, list[tuple[str, int]]]) -> None:
    together = [(one, other) for one, other in itertools.combinations(lives, 2) if one.overlaps(other)]
    for one, other in together:
        assert not set(granted[one.name]) & set(granted[other.name]), f"{one} and {other} have a core in common"
        if one.host == other.host:
            assert not one.cpus & other.cpus, f"{one} and {other} have the same CPU in their environment"
    for moment in lives:
        there = [one for one in lives if one.began <= moment.began < one.ended]
        used = sum((Counter(one.counts) for one in there), Counter())
        assert max(used.values()) <= CORES, f"more than there is when {moment.name} begins: {there}"
    # Otherwise the checks above are meaningless.
    assert any(set(one.counts) & set(other.counts) for one, other in together), "no two jobs ever shared a node"
    assert any(len(one.counts) > 1 and one.name.startswith("amber") for one in lives), "no job had parts of two nodes"


def life(directory: Path, name: str) -> Life:
    program, _, index = name.split("_")
    record = json.loads((directory / f"{program}.{index}.json").read_text())
    counts = dict(zip(record["nodes"].split(","), map(int, record["counts"].split(",")), strict=True))
    cpus = [int(cpu) for cpu in record["cpus"].split(",")]
    assert len(cpus) == len(set(cpus)) == counts[record["host"]]
    return Life(
        name, record["began"], record["ended"], record["host"], Counter(record["hosts"].split()), counts, set(cpus)
    )
