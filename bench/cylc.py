"""Tasks of cylc-flow on the hosts of the SSH laboratory. It is measured only when asked for: it takes minutes."""

from __future__ import annotations

import platform
import shutil
import sqlite3
import subprocess
from datetime import datetime
from pathlib import Path

from bench.peers import Missing, Peer, environment_of, set_up
from tests.support.ssh_host import Host
from tests.support.ssh_lab import Lab

PEER = Peer("cylc-flow", 200, requirement="cylc-flow==8.5.4", driver="run_cylc")
PYTHON = "/usr/bin/python3"
"""The Python of the hosts, which do not show the one of this project."""
PATIENCE = 1800.0

_WRAPPER = f"""#!{PYTHON}
# Its packages are not in PYTHONPATH, which it takes out of the path of its modules.
import os
import sys

sys.path.insert(0, os.path.expanduser("~/cylc"))
from cylc.flow.scripts.cylc import main

sys.exit(main())
"""
_PLATFORM = """    [[{name}]]
        hosts = {name}
        cylc path = /home/{user}/bin
        use login shell = False
        ssh command = {ssh}
"""
_SSH = "ssh -oBatchMode=yes -oConnectTimeout=10 -oControlMaster=auto -oControlPersist=60 -oControlPath=/tmp/%C"
_WORKFLOW = """[scheduler]
    allow implicit tasks = False
[task parameters]
    n = 1..{each}
[scheduling]
    [[queues]]
        [[[default]]]
            limit = 0
    [[graph]]
        R1 = \"\"\"
{graph}
        \"\"\"
[runtime]
"""
_TASKS = """    [[{name}<n>]]
        platform = {name}
        script = true
"""


class Cylc:
    """cylc-flow on citadel, and on the hosts that run its tasks."""

    def __init__(self, lab: Lab, hosts: list[Host], directory: Path) -> None:
        """Raises `Missing` where it cannot be installed."""
        self._citadel = lab.citadel
        self._hosts = hosts
        self.version = set_up(PEER, directory)
        found = subprocess.run([PYTHON, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
        if found.split(".")[:2] != platform.python_version().split(".")[:2]:
            raise Missing(f"{PEER.name} needs the same Python here and on the hosts, which have {found}")
        (packages,) = environment_of(directory, PEER).glob("lib/python*/site-packages")
        for host in (lab.citadel, *hosts):
            shutil.copytree(packages, host.home / "cylc")
            host.write("bin/cylc", _WRAPPER, mode=0o755)
        platforms = "".join(_PLATFORM.format(name=host.name, user=host.user, ssh=_SSH) for host in hosts)
        lab.citadel.write(".cylc/flow/global.cylc", f"[platforms]\n{platforms}")

    def rate(self, count: int) -> float:
        """Tasks a second, from the first submission to the last end, without the start of the scheduler."""
        each = count // len(self._hosts)
        graph = "\n".join(f"            {host.name}<n>" for host in self._hosts)
        tasks = "".join(_TASKS.format(name=host.name) for host in self._hosts)
        self._citadel.write("cylc-src/bench/flow.cylc", _WORKFLOW.format(each=each, graph=graph) + tasks)
        for words in (["install", "--no-run-name", "bench"], ["play", "--no-detach", "bench"]):
            done = self._citadel.run("cylc", *words, timeout=PATIENCE, check=False)
            if done.returncode:
                raise Missing(f"cylc {words[0]} failed: {(done.stdout + done.stderr)[-2000:]}")
        database = self._citadel.home / "cylc-run" / "bench" / "log" / "db"
        with sqlite3.connect(database) as connection:
            times = connection.execute("SELECT time_submit, time_run_exit, run_status FROM task_jobs").fetchall()
        succeeded = [(_moment(submitted), _moment(ended)) for submitted, ended, status in times if status == 0]
        if len(succeeded) < each * len(self._hosts):
            raise Missing(f"{PEER.name} ended with {len(succeeded)} of {count} tasks succeeded")
        shutil.rmtree(self._citadel.home / "cylc-run" / "bench")
        return len(succeeded) / (max(ended for _, ended in succeeded) - min(submitted for submitted, _ in succeeded))


def _moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
