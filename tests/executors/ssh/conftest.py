"""A fake remote host, over both kinds of channel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_ssh import FakeSsh
from tests.support.ssh_executor import Lab


@pytest.fixture(params=["serve", "one-shot"])
def lab(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    near_home = tmp_path / "near-home"
    near_home.mkdir()
    monkeypatch.setenv("HOME", str(near_home))
    far = FakeSsh(tmp_path / "far")
    yield Lab(tmp_path, far, request.param)
    far.wait_until_quiet()
