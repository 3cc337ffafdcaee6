"""Unexpected exceptions of commands: a message, an exit code of their own, and a file for a bug report."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from qcg.pilotjob import __version__
from qcg.pilotjob.common.exit_codes import CRASHED
from tests.support.pilot import environment

# Each entry point, with a function of it that raises an unexpected exception.
COMMANDS = {
    "qcg-pm report": (
        "import sys; sys.argv = ['qcg-pm', 'report', '--json', 'private-directory'];"
        "import qcg.pilotjob.cli.commands.report as place; place.show_report = defect;"
        "from qcg.pilotjob.cli.entrypoints import qcg_pm as main"
    ),
    "qcg-pm": (
        "import sys; sys.argv = ['qcg-pm', 'private-directory/file.json'];"
        "import qcg.pilotjob.cli.main as place; place.Commands.resolve_command = defect;"
        "from qcg.pilotjob.cli.entrypoints import qcg_pm as main"
    ),
    "qcg-pm-service": (
        "import sys; sys.argv = ['qcg-pm-service', '--file-path', 'private-directory'];"
        "import qcg.pilotjob.manager.service as place; place.Service = defect;"
        "from qcg.pilotjob.service import main"
    ),
    "qcg-pm-client": (
        "import sys; sys.argv = ['qcg-pm-client', 'private-directory/program.py'];"
        "import qcg.pilotjob.cli.commands.client as place; place.own_arguments = defect;"
        "from qcg.pilotjob.cli.entrypoints import qcg_pm_client as main"
    ),
    "python -m qcg.pilotjob.batch": (
        "import sys; sys.argv = ['x', '--state-dir=b', '--run-dir=private-directory', '--max-allocations=1', 'run'];"
        "import qcg.pilotjob.batch.__main__ as place; place.AllocationRunner = defect; main = place.main"
    ),
}
DEFECT = """
def defect(*arguments, **options):
    raise LookupError("no such\\nthing \\udcff")
"""


def crash(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    program = f"{DEFECT}\n{COMMANDS[command]}\nmain()"
    variables = {"SECRET_TOKEN": "secret-value", **variables}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(**variables), timeout=60
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unexpected_exception_prints_a_message_and_writes_a_bug_report(command: str, tmp_path: Path):
    done = crash(command, TMPDIR=str(tmp_path))
    assert done.returncode == CRASHED, done
    assert "Traceback" not in done.stderr
    assert f"Error: {command} ended because of an unexpected error: LookupError: no such thing" in done.stderr
    (path,) = tmp_path.iterdir()
    assert str(path) in done.stderr
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    assert f"command: {command}\nversion: {__version__}\n" in text
    assert re.search(r"^python: 3\.\d+", text, re.MULTILINE)
    assert "platform: Linux" in text
    assert "Traceback" in text
    assert "in defect" in text
    assert "secret-value" not in text
    assert "private-directory" not in text


def test_without_a_writable_tmpdir_only_the_message_is_printed(tmp_path: Path):
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0));{COMMANDS['qcg-pm report']}"
    done = subprocess.run(
        [sys.executable, "-c", f"{DEFECT}\n{limited}\nmain()"],
        capture_output=True,
        text=True,
        env=environment(TMPDIR=str(tmp_path)),
        timeout=60,
    )
    assert done.returncode == CRASHED, done
    assert "Traceback" not in done.stderr
    assert "no file for a bug report could be written" in done.stderr
    assert os.listdir(tmp_path) == []
