"""A manager in a notebook, with a real kernel."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager
from tests.support.project import ROOT

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.timeout(300)]

BEGIN = """
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager
manager = LocalManager(["--cores", "2", "--wd", ".", "--id", "<b>x"], {"log_file": ""})
"""
WITHOUT_WIDGETS = """
import sys
sys.modules["ipywidgets"] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "ipywidgets" else found(name, *rest)
"""
SUBMIT = 'names = manager.submit(Jobs().add(name="it", exec="sh", args=["-c", "[ ${it} != 2 ]"], iteration=5))'
UNTIL_UPDATED = """
import time
deadline = time.monotonic() + 60
while "5 of 5 done" not in manager._table.value and time.monotonic() < deadline:
    time.sleep(0.05)
print(manager._table.value)
"""


class Notebook:
    """A notebook that was executed."""

    def __init__(self, wd: Path, *cells: str) -> None:
        self._book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        spec = {"name": "python3", "display_name": "python3", "language": "python"}
        self._book.metadata["kernelspec"] = spec
        client = NotebookClient(
            self._book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(wd)}}
        )
        asyncio.run(client.async_execute())

    def outputs(self, cell: int) -> list[dict[str, Any]]:
        return [dict(output.get("data", {})) for output in self._book.cells[cell].outputs]

    def text(self, cell: int) -> str:
        return "".join(output.get("text", "") for output in self._book.cells[cell].outputs)

    @property
    def widgets(self) -> list[dict[str, Any]]:
        """The last states of all widgets."""
        states = self._book.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
        return [found["state"] for found in states.values()]


@pytest.fixture(autouse=True)
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of Jupyter are in the directory of the test."""
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")


def test_a_manager_is_displayed_as_a_live_table(tmp_path: Path):
    book = Notebook(tmp_path, BEGIN, "manager", SUBMIT, "manager.wait4(names)", UNTIL_UPDATED, "manager.finish()")
    (shown,) = book.outputs(1)
    assert shown["text/plain"] == "run <b>x: 0 of 0 done, 0 running, 0 of 2 cores used"
    assert "&lt;b&gt;x" in shown["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in shown
    table = book.text(4)
    assert "5 of 5 done" in table, "it was not shown again"
    assert "<b>x" not in table.replace("<b>&lt;b&gt;x", "")


def test_waits_show_a_progress_bar(tmp_path: Path):
    book = Notebook(
        tmp_path, BEGIN, SUBMIT, "print(manager.wait4(names, progress=True))", "manager.wait4all(progress=True)"
    )
    assert book.text(2) == "{'it': 'FAILED'}\n"
    for cell in (2, 3):
        assert any("application/vnd.jupyter.widget-view+json" in output for output in book.outputs(cell))
    bars = [state for state in book.widgets if state.get("_model_name") == "IntProgressModel"]
    labels = [state["value"] for state in book.widgets if state.get("_model_name") == "LabelModel"]
    assert [(bar["value"], bar["max"], bar["bar_style"]) for bar in bars] == [(5, 5, "danger")] * 2
    assert labels == ["5 of 5 done, 1 not successful"] * 2


def test_without_ipywidgets_table_and_bar_are_plain_text(tmp_path: Path):
    book = Notebook(
        tmp_path,
        WITHOUT_WIDGETS + BEGIN,
        SUBMIT,
        "states = manager.wait4(names, progress=True)",
        "manager",
        "manager.finish()",
    )
    (bar,) = book.outputs(2)
    assert '<progress value="5" max="5"' in bar["text/html"]
    assert "5 of 5 done, 1 not successful" in bar["text/html"]
    (table,) = book.outputs(3)
    assert set(table) == {"text/plain", "text/html"}
    assert "✗ FAILED" in re.sub(r"<.*?>", "", table["text/html"])


def test_asyncio_waits_show_a_progress_bar_too(tmp_path: Path):
    begin = """
from qcg.pilotjob.api.aio import AsyncManager
from qcg.pilotjob.api.job import Jobs
async with AsyncManager(local=True, server_args=["--cores", "2", "--wd", "."], cfg={"log_file": ""}) as manager:
    names = await manager.submit(Jobs().add(name="it", exec="true", iteration=5))
    print(await manager.wait4(names, progress=True))
"""
    book = Notebook(tmp_path, begin)
    assert book.text(0) == "{'it': 'SUCCEED'}\n"
    assert [state["value"] for state in book.widgets if state.get("_model_name") == "LabelModel"] == ["5 of 5 done"]


def test_the_notebook_of_the_tutorial_works(tmp_path: Path):
    page = (ROOT / "docs/tutorials/python.md").read_text()
    program = page.partition("## In a notebook")[2].partition("```python\n")[2].partition("```")[0]
    table, bar, end = [cell.strip() for cell in program.rsplit("\n\n", 2)]
    book = Notebook(tmp_path, table, bar, end)
    assert "of 20 done" in book.outputs(0)[-1]["text/html"]
    assert book.outputs(1)[-1]["text/plain"] == "{'sweep': 'SUCCEED'}"
    assert "20 of 20 done" in [state.get("value") for state in book.widgets]


def test_outside_of_notebooks_a_manager_has_text_and_html(tmp_path: Path):
    with LocalManager(["--cores", "2", "--wd", str(tmp_path), "--id", "x"], {"log_file": ""}) as manager:
        manager.wait4(manager.submit(Jobs().add(name="a", exec="true")))
        bundle = manager._repr_mimebundle_()
        assert bundle == {
            "text/plain": "run x: 1 of 1 done, 0 running, 0 of 2 cores used",
            "text/html": manager._repr_html_(),
        }
    gone = manager._repr_mimebundle_()
    assert gone["text/plain"].startswith("LocalManager: ")
    assert "1 of 1" not in gone["text/html"]
