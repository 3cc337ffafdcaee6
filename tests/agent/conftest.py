"""A manager, and an agent that finds it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.manager import AgentProcess, Manager, manager


@pytest.fixture
def first(run_dir: Path) -> Iterator[Manager]:
    with manager(run_dir) as made:
        yield made


@pytest.fixture
def agent(run_dir: Path, first: Manager) -> Iterator[AgentProcess]:
    process = AgentProcess(run_dir)
    yield process
    process.close()
