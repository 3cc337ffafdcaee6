"""Fixtures for tests on real Slurm clusters. README.md tells how to write such tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.slurm_cluster import Cluster, running_cluster, why_impossible


@pytest.fixture(scope="session")
def claiming_cluster(clusters_are_possible: None) -> Iterator[Cluster]:
    """Four nodes with four CPUs and two GPUs each: more CPUs than most machines have for each of them."""
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def binding_cluster(clusters_are_possible: None) -> Iterator[Cluster]:
    """Two nodes that claim two CPUs each, which exist, so that Slurm binds its steps."""
    with running_cluster(nodes=2, cpus=2, gpus=0, task_plugin="task/affinity") as cluster:
        yield cluster


@pytest.fixture
def cluster(claiming_cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Four nodes with four claimed CPUs, 4000 MiB and two GPUs each; all idle."""
    yield from lent(claiming_cluster, tmp_path)


@pytest.fixture
def real_cluster(binding_cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Two nodes with two real CPUs each, where binding works; all idle."""
    yield from lent(binding_cluster, tmp_path)


def lent(cluster: Cluster, directory: Path) -> Iterator[Cluster]:
    """The cluster for one test, which runs in this directory and leaves nothing behind on the nodes."""
    cluster.cwd = directory
    yield cluster
    left = cluster.clean_up()
    if left:
        pytest.fail("\n".join(["Left behind on the cluster:", *left]), pytrace=False)


@pytest.fixture(scope="session")
def clusters_are_possible() -> None:
    """Skips tests where they are not."""
    reason = why_impossible()
    if reason is not None:
        pytest.skip(reason)
