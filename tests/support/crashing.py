"""Runs that are killed and resumed. Marks of their jobs, the report and the registry show what the runs did."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter, defaultdict
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.journal import queries
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.metadata import OPTIONS, REPORT_SIZE
from qcg.pilotjob.journal.snapshot import snapshot
from tests.support.pilot import job, start
from tests.support.processes import is_alive
from tests.support.waiting import wait_for

HISTORY = ["QUEUED", "SCHEDULED", "EXECUTING"]
PATIENCE = 60.0

# The options with which each command resumes a run, and the options before the request file of a new run.
RESUMING = {"qcg-pm": ["run"], "qcg-pm-service": []}
BEGINNING = {"qcg-pm": [], "qcg-pm-service": ["--file-path"]}


def marking(name: str, then: str = "", **more: Any) -> dict[str, Any]:
    """A job that writes a mark with its name (and index) when it starts, and then runs a script."""
    mark = f"{name}:${{it}}" if "iteration" in more else name
    return job(name, "/bin/sh", "-c", f"echo {mark} >> marks; {then or 'exit 0'}", **more)


def waiting(name: str, **more: Any) -> dict[str, Any]:
    """A job that writes its pid, and ends once the file `release` exists."""
    return marking(name, f"echo $$ >> {name}.pid; until [ -e release ]; do sleep 0.05; done", **more)


class Crashing:
    """One run in a directory of its own; its manager is started, killed and started again."""

    def __init__(self, wd: Path, requests: Path, *options: str) -> None:
        self.wd = wd
        self.run_dir = wd / ".qcgpjm-service-x"
        self.manager: subprocess.Popen[str] | None = None
        self._begin = (str(requests), "--wd", str(wd), "--id", "x", "--report-format", "json", *options)

    # -- life and death ---------------------------------------------------------------------------------------------

    def start(self, command: str = "qcg-pm", *options: str) -> subprocess.Popen[str]:
        """Start a manager for the run: the first one, or one that resumes the run."""
        self.manager = start(command, *self._arguments(command), *options, cwd=self.wd)
        return self.manager

    def finish(self, command: str = "qcg-pm", *options: str) -> subprocess.CompletedProcess[str]:
        """Run a manager until the end of the run."""
        process = self.start(command, *options)
        out, err = self._communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def _arguments(self, command: str) -> tuple[str, ...]:
        if (self.run_dir / "registry.sqlite").exists() and self._has_begun():
            return (*RESUMING[command], "--resume", str(self.run_dir))
        if self.run_dir.exists():  # no request has been acknowledged yet
            for path in self.run_dir.iterdir():
                path.unlink()
            self.run_dir.rmdir()
        return (*RESUMING[command], *BEGINNING[command], *self._begin)

    def _has_begun(self) -> bool:
        try:
            with snapshot(self.run_dir / "registry.sqlite") as connection:
                return OPTIONS.read(connection) is not None
        except JournalError as error:
            if "it was never completely created" in str(error):
                return False
            raise

    def wait(self) -> int:
        """Wait until the manager has exited; its exit code."""
        self._communicate()
        assert self.manager is not None
        return self.manager.returncode

    def _communicate(self) -> tuple[str, str]:
        """The output of the manager until its end. A manager that resumes the run may need more time for that."""
        assert self.manager is not None
        before = None
        while (now := (len(self.marks()), self._reported())) != before:
            before = now
            try:
                return self.manager.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                pass
        self.manager.send_signal(signal.SIGABRT)
        _, stack = self.manager.communicate()
        pytest.fail(f"The manager hangs.\n{stack}\n{self.log()}")

    def _reported(self) -> int:
        return len(_text(self.run_dir / "jobs.report"))

    def kill_manager(self) -> None:
        """Kill the manager with SIGKILL; agents and jobs continue."""
        assert self.manager is not None
        self.manager.kill()
        self.manager.communicate()

    def kill_agent(self) -> int:
        """Kill the agent; returns its pid."""
        pid = self.agent_pid()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not is_alive(pid), what=f"the end of agent {pid}")
        return pid

    def agent_pid(self) -> int:
        return wait_for(self._agent_pid, what="an agent")

    def _agent_pid(self) -> int:
        try:
            pid: int = json.loads((self.run_dir / "agent-local.json").read_bytes())["pid"]
        except FileNotFoundError:
            return 0
        return pid if is_alive(pid) else 0

    def release(self) -> None:
        """Release the waiting jobs."""
        (self.wd / "release").touch()

    # -- what it did ------------------------------------------------------------------------------------------------

    def marks(self) -> list[str]:
        try:
            return (self.wd / "marks").read_text().splitlines()
        except FileNotFoundError:
            return []

    def wait_for_marks(self, number: int, timeout: float = PATIENCE) -> None:
        wait_for(lambda: len(self.marks()) >= number, timeout, f"{number} marks")

    def pid_of(self, name: str) -> int:
        """The pid of a waiting job, which must have started once."""
        return int(wait_for(lambda: _text(self.wd / f"{name}.pid"), what=f"the start of {name}"))

    def entries(self) -> dict[str, dict[str, Any]]:
        """The entries of the report by name; each name must occur once."""
        entries = [json.loads(line) for line in (self.run_dir / "jobs.report").read_text().splitlines()]
        twice = [name for name, count in Counter(entry["name"] for entry in entries).items() if count > 1]
        assert not twice, f"reported more than once: {twice}"
        return {entry["name"]: entry for entry in entries}

    def entries_so_far(self) -> dict[str, dict[str, Any]]:
        """The entries of a report that is still being written."""
        lines = _text(self.run_dir / "jobs.report").splitlines(keepends=True)
        entries = [json.loads(line) for line in lines if line.endswith("\n")]
        return {entry["name"]: entry for entry in entries}

    def stored_report_size(self) -> int:
        with snapshot(self.run_dir / "registry.sqlite") as connection:
            return REPORT_SIZE.read(connection)

    def log(self) -> str:
        return (self.run_dir / "service.log").read_text()

    def log_so_far(self) -> str:
        return _text(self.run_dir / "service.log")

    # -- what must be true of it in the end -------------------------------------------------------------------------

    def check_starts(self, expected: set[str], *, again: frozenset[str] | set[str] = frozenset()) -> None:
        """Each of these jobs has started exactly once; jobs in `again` once or more."""
        starts = Counter(self.marks())
        assert set(starts) == expected
        assert {name: count for name, count in starts.items() if count > 1 and name not in again} == {}

    def check_success(self, runs: set[str], iterated: set[str]) -> None:
        """The report and the registry have the success of each attempt and of each iterated job."""
        entries = self.entries()
        assert set(entries) == runs | iterated
        assert {name: entry["state"] for name, entry in entries.items() if entry["state"] != "SUCCEED"} == {}
        for name in runs:
            entry = entries[name]
            begun = [HISTORY[1:] if "started" in one else ["SCHEDULED"] for one in entry.get("attempts", ())]
            earlier = [state for states in begun for state in [*states, "QUEUED"]]
            assert [step["state"] for step in entry["history"]] == ["QUEUED", *earlier, *HISTORY[1:], "SUCCEED"], entry
            assert _times(entry) == sorted(_times(entry)), entry
            runtime = entry["runtime"]
            assert runtime["exit_code"] == "0", entry
            assert int(runtime["pid"]) > 1, entry
            assert runtime["allocation"], entry
            assert runtime["rtime"].startswith("0:0"), entry
        self.check_registry(dict.fromkeys(runs | iterated, "SUCCEED"))
        self.check_cores(entries[name] for name in runs)

    def check_registry(self, expected: dict[str, str]) -> None:
        """The registry agrees with the report."""
        with snapshot(self.run_dir / "registry.sqlite") as connection:
            records = {record.seq: record for record in queries.job_records(connection)}
            states = {record.name: record.state.name for record in records.values()}
            for run in queries.attempt_records(connection):
                record = records[run.seq]
                if run.position >= 0:
                    states[f"{record.name}:{run.position}"] = run.state.name
                assert run.state >= State.SUCCEED, run
                assert run.ended, run
        assert states == expected

    def check_cores(self, entries: Any) -> None:
        """No core was ever granted to two jobs at the same time."""
        use: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
        for entry in entries:
            times = _times(entry)
            for part in entry["runtime"]["allocation"].rstrip("]").split("],"):
                node, _, cores = part.partition("[")
                for core in cores.split(":"):
                    use[f"{node}[{core}]"].append((times[-2], times[-1], entry["name"]))
        for core, spans in use.items():
            spans.sort()
            for (_, end, earlier), (begin, _, later) in pairwise(spans):
                assert end <= begin, f"{earlier} and {later} had {core} at once"

    def check_nothing_left(self) -> None:
        """A clean end leaves no contact file, no agent, and no partial files."""
        left = {path.name for path in self.run_dir.iterdir()}
        kept = {
            "agent-local.ledger",
            "agent-local.lock",
            "agent-local.log",
            "jobs.report",
            "registry.sqlite",
            "service.log",
        }
        unexpected = left - kept - {name for name in left if name.startswith(".")}
        assert not unexpected, f"left in the run directory: {sorted(unexpected)}"
        assert (self.run_dir / "jobs.report").stat().st_size == self.stored_report_size()


def _times(entry: dict[str, Any]) -> list[float]:
    return [datetime.fromisoformat(step["date"]).timestamp() for step in entry["history"]]


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
