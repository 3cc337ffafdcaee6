"""How many processes an agent may have."""

from __future__ import annotations

import math
import resource
from pathlib import Path

import pytest

from qcg.pilotjob.agent.process_limits import available_processes


@pytest.fixture(autouse=True)
def no_other_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def group(path: Path, most: str, now: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / "pids.max").write_text(f"{most}\n")
    (path / "pids.current").write_text(f"{now}\n")


@pytest.mark.parametrize(("line", "top"), [("0::/a/b", ""), ("7:pids:/a/b", "pids")])
def test_the_smallest_limit_of_all_control_groups_counts(tmp_path: Path, line: str, top: str) -> None:
    (tmp_path / "own").write_text(f"9:cpu:/x\n{line}\n")
    group(tmp_path / top / "a/b", "max", 5)
    group(tmp_path / top / "a", "100", 40)
    assert available_processes(tmp_path, tmp_path / "own") == 60
    group(tmp_path / top / "a/b", "30", 5)
    assert available_processes(tmp_path, tmp_path / "own") == 25


def test_without_limits_any_number_of_processes_is_available(tmp_path: Path) -> None:
    assert available_processes(tmp_path, tmp_path / "not-there") == math.inf


def test_a_limit_of_the_shell_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (50, 100))
    assert available_processes(tmp_path, tmp_path / "not-there") == 50
