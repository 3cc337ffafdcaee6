"""Fixtures for tests on real Slurm clusters. README.md explains how to write such tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.concurrent_tests import Results, run_all
from tests.support.directory_scope import kept_for_directory
from tests.support.slurm_cluster import Cluster, lent, running_cluster, why_impossible


@pytest.fixture
def claiming_cluster(clusters_are_possible: None, request: pytest.FixtureRequest) -> Cluster:
    """Four nodes with four CPUs and two GPUs each: more CPUs than most machines have for each of them."""
    return kept_for_directory(request.node, "claiming", running_cluster)


@pytest.fixture
def binding_cluster(clusters_are_possible: None, request: pytest.FixtureRequest) -> Cluster:
    """Two nodes that claim two CPUs each, which exist, so that Slurm binds its steps."""
    return kept_for_directory(
        request.node, "binding", lambda: running_cluster(nodes=2, cpus=2, gpus=0, task_plugin="task/affinity")
    )


@pytest.fixture
def cluster(claiming_cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Four nodes with four claimed CPUs, 4000 MiB and two GPUs each; all idle."""
    yield from lent(claiming_cluster, tmp_path)


@pytest.fixture
def real_cluster(binding_cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Two nodes with two real CPUs each, where binding works; all idle."""
    yield from lent(binding_cluster, tmp_path)


@pytest.fixture(scope="session")
def results(
    clusters_are_possible: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Results:
    """The results of all concurrent tests, after they have ended."""
    return run_all(request.session.items, tmp_path_factory.mktemp)


@pytest.fixture(scope="session")
def clusters_are_possible() -> None:
    """Skip tests on machines that cannot run clusters."""
    reason = why_impossible()
    if reason is not None:
        pytest.skip(reason)
