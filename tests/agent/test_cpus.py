"""The CPUs of a machine, as the kernel reports them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qcg.pilotjob.agent.cpus import cpus_of_cores, usable_cpus


def a_machine(root: Path, places: list[tuple[int, int, int]]) -> Path:
    """Socket, die and core of each CPU."""
    for cpu, place in enumerate(places):
        topology = root / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        for name, number in zip(("physical_package_id", "die_id", "core_id"), place, strict=True):
            (topology / name).write_text(f"{number}\n")
    return root


def test_threads_of_a_core_are_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    root = a_machine(tmp_path, [(0, 0, 0), (1, 0, 0), (0, 0, 1), (1, 0, 1)] * 2)
    assert cpus_of_cores(root) == [[0, 4], [2, 6], [1, 5], [3, 7]]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 4, 6, 0})
    assert usable_cpus(root) == [0, 4, 6, 1]


def test_cores_of_different_dies_are_different_cores(tmp_path: Path):
    root = a_machine(tmp_path, [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)])
    assert cpus_of_cores(root) == [[0], [1], [2], [3]]


def test_no_core_is_known_where_the_kernel_reports_no_topology(tmp_path: Path):
    assert cpus_of_cores(tmp_path) == []
    assert usable_cpus(tmp_path) == sorted(os.sched_getaffinity(0))
