from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host.remote.far_side import FarSide


@pytest.fixture
def far(tmp_path: Path) -> Iterator[FarSide]:
    """A login host whose run directory is made."""
    far = FarSide(tmp_path)
    far.init()
    yield far
    far.kill_everything()
