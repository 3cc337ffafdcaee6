"""Copies of the registry in TMPDIR are removed when a signal ends the command."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from qcg.pilotjob.common.options import Options
from qcg.pilotjob.journal.journal import FILE_NAME, Journal
from qcg.pilotjob.journal.metadata import OPTIONS
from tests.support.pilot import environment

PROGRAM = """
import os, sys
from qcg.pilotjob.journal import snapshot

original = snapshot.{function}

def interrupted(*given):
    result = original(*given)
    open(os.environ["REACHED"], "w").close()
    os.kill(os.getpid(), {number})
    return result

snapshot.{function} = interrupted
sys.argv = ["qcg-pm", "jobs", "--path", sys.argv[1]]
from qcg.pilotjob.cli.entrypoints import qcg_pm
qcg_pm()
"""


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A working directory with a run whose manager died: its registry has a WAL."""
    path = tmp_path / "alive" / FILE_NAME
    path.parent.mkdir(mode=0o700)
    journal = Journal.create(path)
    journal.set_metadata(OPTIONS, Options())
    journal.commit()
    run_dir = tmp_path / "wd" / ".qcgpjm-service-x"
    shutil.copytree(path.parent, run_dir)
    journal.close()
    return run_dir.parent


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("function", ["copy_own", "_copy", "check_format"])
def test_no_copy_is_left_after_a_signal(crashed: Path, tmp_path: Path, number: int, function: str):
    copies, reached = tmp_path / "tmp", tmp_path / "reached"
    copies.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(function=function, number=int(number)), crashed],
        env=environment(TMPDIR=str(copies), REACHED=str(reached)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert reached.exists()
    assert done.returncode in (-number, 128 + number), done
    assert "Traceback" not in done.stderr
    assert list(copies.iterdir()) == []
