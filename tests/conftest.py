"""Fixtures and settings for all tests."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from qcg.pilotjob.common.environment import CORE_CLAIMS

# Until all tests are collected: the plugin for leaks enables collections again.
gc.disable()

# Tests start thousands of commands. To compile all modules for each of them takes a third of the time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

pytest_plugins = [
    "pytester",
    "tests.support.browser",
    "tests.support.checkout",
    "tests.support.leaks",
    "tests.support.parallel",
    "tests.support.signals",
    "tests.support.skips",
    "tests.support.tiers",
    "tests.support.warm_start",
]

# Machines that run tests are shared and slow at times, so examples have no deadline.
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("dev"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "dev")


@pytest.fixture(scope="session", autouse=True)
def _claims_of_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Core claims of managers that several tests share have a separate directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CORE_CLAIMS, str(_private(tmp_path_factory.mktemp("claims"))))
        yield


@pytest.fixture(autouse=True)
def _claims_of_test(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test can claim all cores, whatever other tests run at the same time."""
    monkeypatch.setenv(CORE_CLAIMS, str(_private(tmp_path_factory.mktemp("claims"))))


def _private(directory: Path) -> Path:
    directory.chmod(0o700)
    return directory


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory that is the working directory while the test runs."""
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700)
    monkeypatch.chdir(directory)
    return directory
