"""Named resources and parts of GPUs, as a user sees them."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import pytest

from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager
from tests.support.crashing import Crashing
from tests.support.pilot import job, run, write_requests
from tests.support.waiting import wait_for

MARK_BOTH_ENDS = "echo + >> marks; sleep 0.05; echo - >> marks"


def most_at_once(marks: list[str]) -> int:
    """The most jobs that ran at the same time; a job writes + at its start and - at its end."""
    running = most = 0
    for mark in marks:
        running += 1 if mark == "+" else -1
        most = max(most, running)
    return most


def test_no_more_jobs_run_at_once_than_there_are_licenses(tmp_path: Path):
    jobs = [job("it", script=MARK_BOTH_ENDS, iteration=12, named={"license": 1})]
    file = write_requests(tmp_path / "r.json", jobs)
    result = run("qcg-pm", "run", file, "--nodes", "8", "--wd", tmp_path, "--resource", "license=2")
    assert result.returncode == 0, result.stderr
    marks = (tmp_path / "marks").read_text().split()
    assert marks.count("+") == 12
    assert most_at_once(marks) == 2
    assert "named: 1 license" in run("qcg-pm", "info", "--path", tmp_path, "it:3").stdout


def test_counters_hold_over_kills_of_the_manager(tmp_path: Path):
    jobs = [job("it", script=MARK_BOTH_ENDS, iteration=40, named={"license": 1})]
    file = write_requests(tmp_path / "r.json", jobs)
    crashing = Crashing(tmp_path, file, "--nodes", "8", "--resource", "license=3")
    for number in (6, 20, 40):
        crashing.start()
        wait_for(partial(has_marks, crashing, number), what=f"{number} marks")
        crashing.kill_manager()
    assert crashing.finish().returncode == 0
    assert crashing.marks().count("+") == crashing.marks().count("-") == 40
    assert most_at_once(crashing.marks()) == 3


def has_marks(crashing: Crashing, number: int) -> bool:
    return len(crashing.marks()) >= number


def test_jobs_run_on_nodes_with_their_counter(tmp_path: Path):
    jobs = [job("it", "true", iteration=4, named={"fpga": 1})]
    file = write_requests(tmp_path / "r.json", jobs)
    options = ("--nodes", "n1:4,n2:4,fpga=2", "--report-format", "json")
    assert run("qcg-pm", "run", file, *options, "--wd", tmp_path).returncode == 0
    entries = [json.loads(line) for line in (tmp_path / "jobs.report").read_text().splitlines()]
    nodes = {entry["runtime"]["allocation"].split("[")[0] for entry in entries if "pid" in entry["runtime"]}
    assert nodes == {"n2"}
    assert entries[-1]["resources"] == {"numCores": {"exact": 1}, "named": {"fpga": 1}}
    assert entries[0]["runtime"]["named"] == "1 fpga"


def test_jobs_that_share_a_gpu_see_the_same_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    show = 'echo "$CUDA_VISIBLE_DEVICES"; while [ $(cat out.* | wc -l) -lt 2 ]; do sleep 0.05; done'
    jobs = [
        job("half", script=show, iteration=2, nodeCrs={"gpu": 0.5}, stdout="out.${it}"),
        job("whole", script='echo "$CUDA_VISIBLE_DEVICES"', nodeCrs={"gpu": 1}, stdout="whole"),
        job("both", script='echo "$CUDA_VISIBLE_DEVICES"', nodeCrs={"gpu": 2}, stdout="both"),
    ]
    file = write_requests(tmp_path / "r.json", jobs)
    result = run("qcg-pm", "run", file, "--wd", tmp_path, "--share-cores")
    assert result.returncode == 0, result.stderr
    seen = [(tmp_path / f"out.{number}").read_text() for number in range(2)]
    assert seen == ["4\n", "4\n"]
    assert (tmp_path / "whole").read_text() in ("4\n", "7\n")
    assert (tmp_path / "both").read_text() == "4,7\n"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--resource", "license"], '"license" is not a name with a whole number; write license=4'),
        (
            ["--resource", "fpga=1", "--nodes", "n1:2,fpga=2"],
            "--resource fpga=1: n1 has a resource of that name, too; a name belongs to the run or to nodes, so rename"
            " one of them",
        ),
        (
            ["--resource", "fpga=1/node", "--nodes", "n1:2,fpga=2"],
            '--resource: "fpga" is given twice: a node has that resource already; leave out one',
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(tmp_path: Path, options: list[str], sentence: str):
    file = write_requests(tmp_path / "r.json", [job("a", "true")])
    result = run("qcg-pm", "run", file, "--wd", tmp_path, *options)
    assert result.returncode == 2
    assert sentence in " ".join(result.stderr.split())
    assert not list(tmp_path.glob(".qcgpjm-service-*"))


def test_a_program_sees_the_counters_of_its_manager(tmp_path: Path):
    options = ["--nodes", "n1:4,fpga=2", "--resource", "license=2", "--wd", str(tmp_path)]
    manager = LocalManager(options, {"log_file": ""})
    try:
        wait = [sys.executable, "-c", "import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)"]
        jobs = Jobs()
        jobs.add(name="a", exec=wait[0], args=wait[1:], named={"license": 1, "fpga": 2})
        jobs.add(name="b", exec="true", named={"license": 2})
        manager.submit(jobs)
        wait_for(lambda: manager.status("a")["jobs"]["a"]["data"]["status"] == "EXECUTING", what="the start of a")
        have = manager.resources()
        assert have["named"] == {
            "license": {"total": 2, "used": 1, "free": 1},
            "fpga": {"total": 2, "used": 2, "free": 0, "nodes": {"n1": {"total": 2, "used": 2, "free": 0}}},
        }
        assert manager.system_status()["Resources"]["Named"] == have["named"]
        reason = manager.why("b")
        (tmp_path / "go").touch()
        assert manager.wait4(["a", "b"]) == {"a": "SUCCEED", "b": "SUCCEED"}
        assert "it needs 2 license; 1 of the 2 of this run are taken by 'a'" in str(reason)
        assert manager.resources()["named"]["license"]["free"] == 2
    finally:
        manager.finish()
        manager.cleanup()
