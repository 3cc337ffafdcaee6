"""Fixtures for whole runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.disks import mounting


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Makes small file systems that go away with the test."""
    yield from mounting(tmp_path)
