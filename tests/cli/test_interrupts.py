"""Ctrl-C ends a command with 130 and without a traceback at any time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pilot import environment, job, run, write_requests

ROOT = Path(__file__).parents[2]
ENTRIES = re.findall(r'^(qcg-pm\S*) = "(\S+):(\S+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
"""Name, module and function of every program that is installed."""

INTERRUPTED = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise AssertionError('it goes on')\n"
"""A module that gets a Ctrl-C while it is loaded."""

LOST = """
import os, select, signal, weakref
class Thing: pass
def gone(_):
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000): pass
thing = Thing()
reference = weakref.ref(thing, gone)
del thing
select.select([], [], [], 30)
raise AssertionError('it goes on')
"""
"""The same, where Python prints what is raised and forgets it."""

WHILE_IT_MEASURES = """
import os, select, signal, tempfile, weakref
make = tempfile.TemporaryDirectory.__init__
class Thing: pass
def gone(_):
    os.kill(os.getpid(), signal.{name})
    for _ in range(1000): pass
def interrupted(self, *arguments, **options):
    make(self, *arguments, **options)
    thing = Thing()
    reference = weakref.ref(thing, gone)
    del thing
    select.select([], [], [], 30)
    raise AssertionError('it goes on')
tempfile.TemporaryDirectory.__init__ = interrupted
"""

WHILE_IT_CLOSES = """
import os, signal
from {module} import {owner} as owner
plain = owner.{function}
def interrupted(*arguments, **options):
    done = plain(*arguments, **options)
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000): pass
    raise AssertionError('it goes on')
owner.{function} = interrupted
"""
"""Ctrl-C once the jobs of a run are over: as soon as the service has left signals alone, or before the table."""
CLOSING = [("qcg.pilotjob.manager.signals", "EarlySignals", "end"), ("qcg.pilotjob.report", "analysis", "analyse")]


def call(name: str, *arguments: str, instead_of: str, by: str, shims: Path) -> subprocess.CompletedProcess[str]:
    """Start an installed program, with another module in place of one that it imports."""
    (shims / f"{instead_of}.py").write_text(by)
    module, function = {name: rest for name, *rest in ENTRIES}[name]
    path = os.pathsep.join(filter(None, [str(shims), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", f"import sys; from {module} import {function}; sys.exit({function}())", *arguments],
        env=environment(PYTHONPATH=path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", [name for name, *_ in ENTRIES])
def test_an_interrupt_while_a_program_is_loaded_ends_it_quietly(tmp_path: Path, name: str):
    done = call(name, "--help", instead_of="click", by=INTERRUPTED, shims=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("line", [("report", "."), ("run", "r.json", "--nodes", "1")], ids=lambda line: line[0])
def test_an_interrupt_while_a_command_is_loaded_is_no_job_that_failed(tmp_path: Path, line: tuple[str, ...]):
    done = call("qcg-pm", *line, instead_of="sqlite3", by=INTERRUPTED, shims=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


def test_an_interrupt_in_a_destructor_is_not_lost(tmp_path: Path):
    done = call("qcg-pm", "report", ".", instead_of="sqlite3", by=LOST, shims=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_a_destructor_during_a_measurement_is_not_lost(tmp_path: Path, number: signal.Signals):
    (tmp_path / "wd").mkdir()
    by = WHILE_IT_MEASURES.format(name=number.name)
    line = ("bench", "--nodes", "1", "--wd", str(tmp_path / "wd"))
    done = call("qcg-pm", *line, instead_of="sitecustomize", by=by, shims=tmp_path)
    assert (done.returncode, done.stdout) == (128 + number, ""), done.stderr
    assert "it goes on" not in done.stderr
    assert list((tmp_path / "wd").iterdir()) == []


@pytest.mark.parametrize(("module", "owner", "function"), CLOSING)
def test_an_interrupt_at_the_end_of_a_run_prints_the_report_command(
    tmp_path: Path, module: str, owner: str, function: str
):
    requests = write_requests(tmp_path / "r.json", [job("a", "true")])
    by = WHILE_IT_CLOSES.format(module=module, owner=owner, function=function)
    line = ("run", str(requests), "--nodes", "1", "--wd", str(tmp_path))
    done = call("qcg-pm", *line, instead_of="sitecustomize", by=by, shims=tmp_path)
    (run_dir,) = tmp_path.glob(".qcgpjm-service-*")
    told = f"interrupted while the run closed; `qcg-pm report {run_dir}` shows the result\n"
    assert (done.returncode, done.stdout, done.stderr) == (130, "", told)
    assert "SUCCEED     1" in run("qcg-pm", "report", run_dir).stdout


def test_a_command_that_ignores_interrupts_ignores_them_while_it_loads(tmp_path: Path):
    """As a shell starts a command in the background."""
    ignoring = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = call("qcg-pm", "--help", instead_of="click", by=INTERRUPTED, shims=tmp_path)
    finally:
        signal.signal(signal.SIGINT, ignoring)
    assert "it goes on" in done.stderr


LAST_STEPS = """
import os, signal
from qcg.pilotjob.manager.metrics_file import MetricsFile
finish = MetricsFile.finish
async def interrupted(file):
    os.kill(os.getpid(), signal.{name})
    await finish(file)
MetricsFile.finish = interrupted
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_last_steps_of_a_manager_does_not_change_its_result(tmp_path: Path, number: signal.Signals):
    requests = write_requests(tmp_path / "r.json", [job("a", "true")])
    line = ("run", str(requests), "--nodes", "1", "--wd", str(tmp_path), "--metrics-file", str(tmp_path / "run.prom"))
    by = LAST_STEPS.format(name=number.name)
    done = call("qcg-pm", *line, instead_of="sitecustomize", by=by, shims=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "SUCCEED     1" in done.stdout
    assert "qcg_pm_manager_alive" in (tmp_path / "run.prom").read_text()
    assert f"{number.name}: the manager ends already" in (tmp_path / "service.log").read_text()
