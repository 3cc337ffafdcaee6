"""Clients write a log to the working directory, which is not the checkout."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _working_directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("cwd"))
