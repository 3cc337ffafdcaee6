"""Runs stored by an earlier version can be resumed and read. `stored_runs/README.md` says how they were made."""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.host.hostname import host_name
from tests.support.pilot import run

STORED_RUNS = Path(__file__).parent / "stored_runs"

WAITING = {
    *(f"sweep:{index}" for index in (4, 5)),
    *(f"each:{index}" for index in range(6)),
    "values:0",
    "values:1",
    "wide",
    "script",
    "last",
}
"""Jobs and iterations that no manager had started."""
SUCCEEDED = {"prepare", "early:4", "early:5", "early:6", "sweep:0", "sweep:1"}
"""Jobs and iterations whose success is in the registry."""
INTERRUPTED = {"sweep:2", "sweep:3"}
"""Iterations that ran when the manager got its signal."""
ITERATED = {"early", "sweep", "each", "values"}
EVERYTHING = WAITING | SUCCEEDED | INTERRUPTED
STATES = {**dict.fromkeys(EVERYTHING | ITERATED, "SUCCEED"), "broken": "FAILED", "omitted": "OMITTED"}
"""The final states of a run in which every interrupted iteration runs again."""


class StoredRun:
    """A stored run, unpacked into a directory of its own."""

    def __init__(self, name: str, wd: Path) -> None:
        self.wd = wd
        self.run_dir = wd / f".qcgpjm-service-{name}"
        with tarfile.open(STORED_RUNS / f"{name}.tar.xz") as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extractall(wd, filter="data")
            else:  # Python 3.11.2 of Debian has no filters yet
                archive.extractall(wd)
        self.run_dir.chmod(0o700)
        for path in (self.run_dir / "contact.json", self.run_dir / "agent-local.json"):
            if path.exists():
                path.write_text(json.dumps({**json.loads(path.read_text()), "host": host_name()}))

    def resume(self, *options: str) -> int:
        for index in range(2, 6):
            (self.wd / f"release.{index}").touch()
        return run("qcg-pm", "run", "--resume", self.run_dir, *options, cwd=self.wd).returncode

    def starts(self) -> Counter[str]:
        return Counter((self.wd / "started").read_text().split())

    def ends(self) -> Counter[str]:
        return Counter((self.wd / "ended").read_text().split())

    def report(self) -> dict[str, dict[str, Any]]:
        """Entries of jobs.report by name; no name may occur twice."""
        entries = [json.loads(line) for line in (self.run_dir / "jobs.report").read_text().splitlines()]
        names = Counter(entry["name"] for entry in entries)
        assert set(names.values()) == {1}, names
        return {entry["name"]: entry for entry in entries}

    def states(self) -> dict[str, str]:
        return {name: entry["state"] for name, entry in self.report().items()}

    def info(self, *names: str) -> dict[str, dict[str, Any]]:
        done = run("qcg-pm", "info", *names, "--path", self.wd, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def killed(tmp_path: Path) -> StoredRun:
    return StoredRun("killed", tmp_path)


@pytest.fixture
def terminated(tmp_path: Path) -> StoredRun:
    return StoredRun("terminated", tmp_path)


@pytest.fixture
def ended(tmp_path: Path) -> StoredRun:
    return StoredRun("ended", tmp_path)


def check_history_kept(stored: StoredRun, resume: tuple[str, ...], expected_code: int = 1) -> None:
    """Resume; the jobs that had ended before have the same history and runtime afterwards."""
    names = sorted(SUCCEEDED | {"broken", "omitted"})
    before, reported = stored.info(*names), stored.report()
    assert set(reported) == {*names, "early"}
    assert stored.resume(*resume) == expected_code
    assert stored.info(*names) == before
    after = stored.report()
    assert {name: after[name] for name in reported} == reported


def test_a_stored_run_whose_manager_was_killed_is_brought_to_its_end(killed: StoredRun):
    assert killed.starts() == Counter(SUCCEEDED | INTERRUPTED | {"broken"})
    assert killed.ends() == Counter(SUCCEEDED | {"sweep:2"})
    check_history_kept(killed, ("--on-lost", "rerun"))
    assert killed.starts() == Counter([*EVERYTHING, "broken", "sweep:3"]), "only sweep:3 was lost and ran again"
    assert killed.ends() == Counter(EVERYTHING)
    assert killed.states() == STATES


def test_an_iteration_lost_in_a_stored_run_is_failed_by_default(killed: StoredRun):
    omitted = {"each:3", "each", "values:0", "values:1", "values", "wide", "script", "last"}
    check_history_kept(killed, ())
    assert killed.starts() == Counter((EVERYTHING - omitted) | {"broken"}), "nothing ran twice"
    states = killed.states()
    assert {name for name, state in states.items() if state == "FAILED"} == {"broken", "sweep:3", "sweep"}
    assert {name for name, state in states.items() if state == "OMITTED"} == {
        "omitted",
        *omitted - {"values:0", "values:1"},  # iterations of a job that was omitted as a whole have no entry
    }


def test_an_end_that_only_the_stored_ledger_has_is_taken_from_it(killed: StoredRun):
    """The agent recorded the end of sweep:2 when no manager was there."""
    assert killed.info("sweep:2")["sweep:2"]["state"] != "SUCCEED"
    killed.resume("--on-lost", "rerun")
    iteration = killed.report()["sweep:2"]
    pid = (killed.wd / "pid.2").read_text().strip()
    assert iteration["runtime"]["pid"] == pid
    assert iteration["runtime"]["exit_code"] == "0"


def test_a_stored_run_whose_manager_was_terminated_is_brought_to_its_end(terminated: StoredRun):
    assert terminated.starts() == Counter(SUCCEEDED | INTERRUPTED | {"broken"})
    assert terminated.ends() == Counter(SUCCEEDED)
    check_history_kept(terminated, ())
    assert terminated.starts() == Counter([*EVERYTHING, *INTERRUPTED, "broken"])
    assert terminated.ends() == Counter(EVERYTHING)
    assert terminated.states() == STATES


@pytest.mark.parametrize("name", ["killed", "terminated"])
def test_descriptions_of_a_stored_run_keep_their_meaning(tmp_path: Path, name: str):
    """Environment, variables, files, ranges of cores and values of jobs that were stored before they started."""
    stored = StoredRun(name, tmp_path)
    stored.resume("--on-lost", "rerun")
    assert (stored.wd / "out/script.txt").read_text() == "hello script on 1\n"
    report = stored.report()
    assert report["wide"]["resources"] == {"numCores": {"min": 1, "max": 2}, "wt": "600s"}
    assert report["prepare"]["attributes"] == {"owner": "someone"}
    assert report["last"]["dependencies"] == {"after": ["each", "values", "script"]}


def test_the_jobs_of_a_stored_run_can_be_listed(ended: StoredRun):
    done = run("qcg-pm", "jobs", "--path", ended.wd, "--json")
    assert done.returncode == 0
    states = {name: job["state"] for name, job in json.loads(done.stdout)["jobs"].items()}
    assert states == {name: state for name, state in STATES.items() if ":" not in name}


def test_the_jobs_of_a_stored_run_left_by_its_manager_can_be_listed(terminated: StoredRun):
    done = run("qcg-pm", "jobs", "--path", terminated.wd, "--json")
    assert done.returncode == 0
    states = {name: job["state"] for name, job in json.loads(done.stdout)["jobs"].items()}
    assert states == {
        **dict.fromkeys(("sweep", "each", "values", "wide", "script", "last"), "QUEUED"),
        **dict.fromkeys(("prepare", "early"), "SUCCEED"),
        "broken": "FAILED",
        "omitted": "OMITTED",
    }


def test_info_on_a_stored_run_agrees_with_its_report(ended: StoredRun):
    report = ended.report()
    assert {name: entry["state"] for name, entry in report.items()} == STATES
    info = ended.info(*sorted(STATES))
    assert {name: found["state"] for name, found in info.items()} == STATES
    for name in EVERYTHING | {"broken"}:
        runtime = report[name]["runtime"]
        for key in ("allocation", "rtime"):
            assert info[name]["runtime"][key] == runtime[key], name
        for key in ("exit_code", "pid"):
            assert str(info[name]["runtime"][key]) == runtime[key], name
        transitions = [step["state"] for step in info[name]["transitions"]]
        assert transitions == [step["state"] for step in report[name]["history"]]
    assert info["sweep"]["iterations"] == {"start": 0, "stop": 6, "total": 6, "finished": 6, "failed": 0}


def test_report_on_a_stored_run_counts_its_jobs(ended: StoredRun):
    done = run("qcg-pm", "report", ended.wd, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["finished"]
    assert report["jobs"] == {"SUCCEED": 8, "FAILED": 1, "OMITTED": 1}
    assert report["iterations"] == {"SUCCEED": 17}
    assert report["run_times"]["count"] == len(EVERYTHING) + 1, "every start"
    assert (report["nodes"], report["cores"]) == (1, 2)
    assert report["ended"] - report["started"] == pytest.approx(0.1198, abs=0.001)
