"""What a manager needs later is in memory soon after its start, also when the installation is replaced meanwhile."""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from qcg.pilotjob.cli import late_modules
from qcg.pilotjob.cli.service_runner import run_service
from tests.support.pilot import job, write_requests

AT_THE_START = {
    "qcg.pilotjob.cli.submission_files",
    "qcg.pilotjob.executors.allocation_agents",
    "qcg.pilotjob.journal.saved_run",
    "qcg.pilotjob.manager.allocation_layouts",
    "qcg.pilotjob.manager.metrics_file",
    "qcg.pilotjob.manager.notification_rules",
    "qcg.pilotjob.manager.resume",
    "qcg.pilotjob.manager.run_notifications",
}
"""Modules of options, of resumed runs and of allocations: a manager that needs them loads them at its start."""
REPORTS = {
    "qcg.pilotjob.report.attempt_files",
    "qcg.pilotjob.report.launch_analysis",
    "qcg.pilotjob.report.render_analysis",
}
"""Modules of `qcg-pm report`."""
REMOTE = "qcg.pilotjob.executors.ssh."
"""Modules of remote hosts, which are loaded at the start of a run with such hosts."""

LOADED = """
import asyncio, sys
import qcg.pilotjob.cli.commands.run, qcg.pilotjob.cli.commands.service
from qcg.pilotjob.cli import late_modules, progress, service_runner
late_modules.DELAY = 0.0
asyncio.run(late_modules.load_late_modules())
for name, module in sys.modules.items():
    if name.startswith("qcg.pilotjob."):
        print(name, module.__file__)
"""


def imports_in_functions(source: str) -> Iterator[str]:
    """Names of modules, and of what is imported from them."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    yield from (alias.name for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module is not None:
                    yield node.module
                    yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is a module, so this is a function or a class
        return False


def test_no_module_is_loaded_first_when_the_run_is_old():
    done = subprocess.run([sys.executable, "-c", LOADED], stdout=subprocess.PIPE, text=True, check=True)
    loaded = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert run_service.__module__ in loaded
    wanted: set[str] = set()
    for path in loaded.values():
        with open(path, encoding="utf-8") as source:
            wanted.update(imports_in_functions(source.read()))
    ours = {name for name in wanted if name.startswith("qcg.pilotjob.") and is_module(name)}
    late = {name for name in ours - loaded.keys() if not name.startswith(REMOTE)}
    assert late == AT_THE_START | REPORTS, "others belong into `cli/late_modules.py`"


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), ModuleNotFoundError("it is gone")])
def test_a_module_that_cannot_be_loaded_does_not_end_the_run(error: Exception, monkeypatch: pytest.MonkeyPatch):
    loaded: list[str] = []
    failures = {"qcg.pilotjob.manager.live_summary": error}

    def load(name: str) -> None:
        if name in failures:
            raise failures.pop(name)
        loaded.append(name.removeprefix("qcg.pilotjob."))

    monkeypatch.setattr(late_modules, "import_module", load)
    monkeypatch.setattr(late_modules, "DELAY", 0.0)
    monkeypatch.setattr(late_modules, "PAUSE", 0.0)
    asyncio.run(late_modules.load_late_modules())
    tried_again = isinstance(error, OSError)
    assert loaded == [name for name in late_modules.MODULES if tried_again or name != "manager.live_summary"]


AT_ONCE = """
from qcg.pilotjob.cli import late_modules
from qcg.pilotjob.cli.entrypoints import qcg_pm
late_modules.DELAY = 0.0
qcg_pm()
"""


def test_a_run_loads_them_soon_after_its_start(tmp_path: Path):
    path = write_requests(tmp_path / "requests.json", [job("a", "true")])
    arguments = ["run", str(path), "--wd", str(tmp_path), "--nodes", "1"]
    line = [sys.executable, "-X", "importtime", "-c", AT_ONCE, *arguments]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert "qcg.pilotjob.core.why" in done.stderr  # of a handler
    assert "qcg.pilotjob.report.recorded_history" in done.stderr  # of the summary for displays
