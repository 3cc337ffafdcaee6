"""Cores and nodes that jobs of programs for version 0.14 get, as the tests of that version state it.

Not kept: a job that asks for more than there is is FAILED instead of refused, and a range may lack its upper end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.jobinfo import JobInfo
from qcg.pilotjob.api.manager import LocalManager


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalManager]:
    """Two nodes with four cores each."""
    wd = tmp_path_factory.mktemp("resources")
    with LocalManager(["--wd", wd, "--nodes", "4,4", "--report-format", "json"], {"wdir": wd}) as manager:
        yield manager


def info_after(manager: LocalManager, resources: dict[str, Any], state: str = "SUCCEED", **job: Any) -> JobInfo:
    """Run a job to its end, and remove it."""
    execution = {"exec": "sleep", "args": ["0.05s"], "stdout": "out.${it}"}
    (name,) = manager.submit(Jobs().add_std(name="job", execution=execution, resources=resources, **job))
    assert manager.wait4(name) == {name: state}
    info = manager.info_parsed(name, withChilds=True)[name]
    manager.remove(name)
    return info


@pytest.mark.parametrize(
    ("resources", "cores"),
    [
        ({"numCores": {"exact": 8}}, [4, 4]),
        ({"numCores": {"exact": 2}, "numNodes": {"exact": 2}}, [2, 2]),
        ({"numNodes": {"exact": 2}}, [4, 4]),
        ({"numCores": {"min": 1, "max": 5}, "numNodes": {"exact": 1}}, [4]),
        ({"numCores": {"min": 1, "max": 5}}, [4, 1]),
        ({"numCores": {"min": 1}}, [4, 4]),
    ],
    ids=str,
)
def test_a_job_gets(manager: LocalManager, resources: dict[str, Any], cores: list[int]):
    info = info_after(manager, resources)
    assert [len(ids) for ids in info.nodes.values()] == cores
    assert info.total_cores == sum(cores)


@pytest.mark.parametrize("resources", [{"numCores": {"exact": 9}}, {"numNodes": {"exact": 3}}], ids=str)
def test_a_job_that_asks_for_more_than_there_is_ends_at_once(manager: LocalManager, resources: dict[str, Any]):
    info = info_after(manager, resources, state="FAILED")
    assert info.nodes == {}
    assert info.messages


SPLIT = "split-into"
MAXIMUM = "maximum-iters"


@pytest.mark.parametrize(
    ("scheduler", "least", "sizes"),
    [
        ({"name": SPLIT}, 1, [4, 4]),
        ({"name": SPLIT, "params": {"parts": 2}}, 1, [4, 4]),
        ({"name": SPLIT, "params": {"parts": 4}}, 1, [2, 2]),
        ({"name": SPLIT, "params": {"parts": 2}}, 1, [4] * 10),
        ({"name": MAXIMUM}, 1, [4, 4]),
        ({"name": MAXIMUM}, 1, [1] * 8),
        ({"name": MAXIMUM}, 1, [1] * 16),
        ({"name": MAXIMUM}, 1, [1, 1, 2, 2, 2, 2, 2, 2, 2]),
        ({"name": MAXIMUM}, 7, [8, 8]),
    ],
    ids=str,
)
def test_iterations_share_cores(manager: LocalManager, scheduler: dict[str, Any], least: int, sizes: list[int]):
    resources = {"numCores": {"min": least, "scheduler": scheduler}}
    info = info_after(manager, resources, iteration={"stop": len(sizes)})
    assert [child.total_cores for child in info.childs] == sizes
    assert [child.name for child in info.childs] == [f"job:{index}" for index in range(len(sizes))]


@pytest.mark.parametrize(
    ("scheduler", "iterations"),
    [({"name": SPLIT}, 2), ({"name": SPLIT, "params": {"parts": 2}}, 2), ({"name": MAXIMUM}, 4)],
    ids=str,
)
def test_iterations_share_nodes(manager: LocalManager, scheduler: dict[str, Any], iterations: int):
    resources = {"numCores": {"exact": 4}, "numNodes": {"min": 1, "scheduler": scheduler}}
    info = info_after(manager, resources, iteration={"stop": iterations})
    nodes = [tuple(child.nodes) for child in info.childs]
    assert [child.total_cores for child in info.childs] == [4] * iterations
    assert all(len(names) == 1 for names in nodes)
    assert len(set(nodes)) == 2, "both nodes are used"


@pytest.mark.parametrize("cores", [1, 2])
def test_a_job_reads_its_input_and_writes_its_output(manager: LocalManager, tmp_path: Path, cores: int):
    (tmp_path / "in").write_text("text\n")
    execution = {"exec": "cat", "stdin": str(tmp_path / "in"), "stdout": "out", "stderr": "err", "wd": str(tmp_path)}
    (name,) = manager.submit(Jobs().add_std(name="cat", execution=execution, resources={"numCores": {"exact": cores}}))
    assert manager.wait4(name) == {name: "SUCCEED"}
    assert manager.info_parsed(name)[name].wdir == str(tmp_path)
    assert ((tmp_path / "out").read_text(), (tmp_path / "err").read_text()) == ("text\n", "")
    manager.remove(name)
