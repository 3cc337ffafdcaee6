"""Makes the stored runs: `python make_runs.py PROGRAM`, with the path of a `qcg-pm` of the version to store.

Each run is made in a temporary directory and written to an archive beside this file.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TIMEOUT = 60.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {TIMEOUT:.0f} s")
        time.sleep(0.05)


def job(name: str, then: str = "", *, iterated: bool = False, **keys: Any) -> dict[str, Any]:
    """A job that writes its name to `started`, runs `then`, and writes its name to `ended`."""
    mark = f"{name}:${{it}}" if iterated else name
    script = f"echo {mark} >> started; {then or ':'}; echo {mark} >> ended"
    return {"name": name, "execution": {"exec": "/bin/sh", "args": ["-c", script]}, **keys}


BLOCK = (
    "echo $$ > pid.${it}; n=0; "
    "while [ ${it} -ge 2 ] && ! [ -e release.${it} ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n + 1)); done"
)
"""Shell text of an iteration that waits for a file, for a minute at most. Iterations 0 and 1 do not wait."""


def after(*names: str) -> dict[str, list[str]]:
    return {"after": list(names)}


JOBS = [
    job("prepare", attributes={"owner": "someone"}),
    job("broken", "exit 3"),
    job("omitted", dependencies=after("broken")),
    job("early", iterated=True, iteration={"start": 4, "stop": 7}),
    job("sweep", BLOCK, iterated=True, iteration={"stop": 6}, dependencies=after("prepare")),
    job("each", iterated=True, iteration={"stop": 6}, dependencies=after("sweep:${it}")),
    job("values", iterated=True, iteration={"values": ["x", "y z"]}, dependencies=after("sweep")),
    job("wide", resources={"numCores": {"min": 1, "max": 2}, "wt": "10m"}, dependencies=after("sweep", "prepare")),
    {
        "name": "script",
        "execution": {
            "script": 'echo script >> started\necho "$GREETING ${jname} on ${ncores}"\necho script >> ended',
            "env": {"GREETING": "hello"},
            "stdout": "out/script.txt",
            "wd": ".",
        },
        "dependencies": after("wide"),
    },
    job("last", dependencies=after("each", "values", "script")),
]
"""Two cores: sweep:0 and sweep:1 end, sweep:2 and sweep:3 block, and every job after them waits."""

STARTED = {"prepare", "broken", *(f"early:{index}" for index in (4, 5, 6)), *(f"sweep:{index}" for index in range(4))}
ENDED = STARTED - {"broken", "sweep:2", "sweep:3"}


class StoredRun:
    """One run, from its start to its archive."""

    def __init__(self, program: str, name: str) -> None:
        self._program = program
        self._name = name
        self._wd = Path(tempfile.mkdtemp(prefix="stored-run-"))
        self._run_dir = self._wd / f".qcgpjm-service-{name}"
        submission = [{"request": "submit", "jobs": JOBS}, {"request": "control", "command": "finishAfterAllTasksDone"}]
        (self._wd / "requests.json").write_text(json.dumps(submission))

    def start(self) -> subprocess.Popen[bytes]:
        line = [self._program, "run", "requests.json", "--id", self._name, "--nodes", "2", "--report-format", "json"]
        return subprocess.Popen(line, cwd=self._wd, stderr=subprocess.DEVNULL)

    def wait_until_blocked(self) -> None:
        """Wait until the two blocked iterations run. The registry has the ends of the other jobs a moment later."""
        wait_until(lambda: self._lines("started") == STARTED, "start of the blocked iterations")
        wait_until(lambda: self._lines("ended") == ENDED, "end of the other jobs")
        time.sleep(2.0)

    def release(self, *iterations: int) -> None:
        for index in iterations:
            (self._wd / f"release.{index}").touch()

    def end_without_manager(self, iteration: int) -> None:
        """End an iteration while no manager runs, so that only the ledger of the agent has the result."""
        ledger = self._run_dir / "agent-local.ledger"
        before = ledger.read_text().count('["e",')
        self.release(iteration)
        wait_until(lambda: ledger.read_text().count('["e",') > before, f"end of sweep:{iteration} in the ledger")

    def kill_agent(self, iteration: int) -> None:
        """Kill the agent first, so that it records nothing, then the iteration that still runs."""
        os.kill(json.loads((self._run_dir / "agent-local.json").read_bytes())["pid"], signal.SIGKILL)
        os.kill(int((self._wd / f"pid.{iteration}").read_text()), signal.SIGKILL)
        time.sleep(0.5)

    def store(self) -> None:
        with tarfile.open(HERE / f"{self._name}.tar.xz", "w:xz") as archive:
            for path in sorted(self._wd.iterdir()):
                archive.add(path, path.name, filter=_without_owner)

    def _lines(self, name: str) -> set[str]:
        path = self._wd / name
        return set(path.read_text().split()) if path.exists() else set()


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def make_killed(program: str) -> None:
    """The manager gets SIGKILL. One iteration ends after it, then agent and last iteration get SIGKILL too."""
    stored = StoredRun(program, "killed")
    manager = stored.start()
    stored.wait_until_blocked()
    manager.kill()
    manager.wait()
    stored.end_without_manager(2)
    stored.kill_agent(3)
    stored.store()


def make_terminated(program: str) -> None:
    stored = StoredRun(program, "terminated")
    manager = stored.start()
    stored.wait_until_blocked()
    manager.terminate()
    manager.wait()
    stored.store()


def make_ended(program: str) -> None:
    stored = StoredRun(program, "ended")
    stored.release(2, 3, 4, 5)
    stored.start().wait()
    stored.store()


if __name__ == "__main__":
    for make in (make_killed, make_terminated, make_ended):
        make(sys.argv[1])
