"""A manager shared by the tests of a module, and the results of commands on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.cli.main import main

Pm = Callable[..., Result]


@pytest.fixture(scope="module")
def wd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("manager")


@pytest.fixture(scope="module")
def manager(wd: Path) -> Iterator[LocalManager]:
    with LocalManager(["--nodes", "n1:2", "--wd", wd], {"log_file": ""}) as running:
        yield running


@pytest.fixture
def pm(manager: LocalManager, wd: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pm]:
    """`pm("wait", "a")` is `qcg-pm wait a` in the working directory of the manager. Jobs do not outlive the test."""
    monkeypatch.chdir(wd)

    def call(*arguments: str, code: int = 0, **options: Any) -> Result:
        done = CliRunner().invoke(main, arguments, prog_name="qcg-pm", **options)
        assert done.exit_code == code, f"{arguments}: exit code {done.exit_code}\n{done.output}\n{done.exception!r}"
        return done

    yield call
    left = manager.list()
    manager.cancel([name for name, job in left.items() if not manager.is_status_finished(job["status"])])
    manager.wait4all(60)
    manager.remove(list(left))


@pytest.fixture
def pm_json(pm: Pm) -> Callable[..., Any]:
    """The JSON output of a command."""

    def call(*arguments: str, code: int = 0) -> Any:
        return json.loads(pm(*arguments, "--json", code=code).stdout)

    return call
