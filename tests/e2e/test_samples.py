"""The sample request files of the documents run unchanged."""

from __future__ import annotations

import hashlib
import json
import time
from datetime import datetime, timedelta
from pathlib import Path

from tests.support.pilot import Run, run

SAMPLES = Path(__file__).parent / "samples"


def test_msleep2_runs_in_its_sandbox_with_its_streams_named_after_its_cores(tmp_path: Path):
    began = time.monotonic()
    done = run("qcg-pm-service", "--file-path", SAMPLES / "msleep2.json", "--wd", tmp_path, "--nodes", "4")
    took = timedelta(seconds=time.monotonic() - began)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "sleep.sandbox/sleep2.2.1.stdout").read_text() == ""
    assert (tmp_path / "sleep.sandbox/sleep2.2.1.stderr").read_text() == ""
    block = (tmp_path / "jobs.report").read_text().splitlines()
    assert block[0] == "msleep2 (SUCCEED)"
    assert [line.rsplit(": ", 1)[1] for line in block[1:5]] == ["QUEUED", "SCHEDULED", "EXECUTING", "SUCCEED"]
    known = dict(line.strip().split(": ", 1) for line in block[5:])
    assert known["allocation"] == "n0[0:1]"
    assert known["wd"] == str(tmp_path / "sleep.sandbox")
    hours, minutes, seconds = known["rtime"].split(":")
    assert timedelta(seconds=5) <= timedelta(hours=int(hours), minutes=int(minutes), seconds=float(seconds)) < took


def test_bac16_runs_each_amber_after_the_namd_of_its_index(tmp_path: Path):
    for name in ("bac-namd.sh", "bac-amber.sh"):
        (tmp_path / name).write_text((SAMPLES / name).read_text())
    options = ["--wd", str(tmp_path), "--nodes", "28,28,28,28", "--report-format", "json"]
    done = run("qcg-pm-service", "--file-path", SAMPLES / "bac16.json", *options)
    assert done.returncode == 0, done.stderr
    report = Run(tmp_path, done).report
    assert set(report) == {f"{program}_bac16_{index}" for program in ("namd", "amber") for index in range(1, 17)}
    assert {entry["state"] for entry in report.values()} == {"SUCCEED"}
    for index in range(1, 17):
        namd, amber = report[f"namd_bac16_{index}"], report[f"amber_bac16_{index}"]
        assert _time(namd, "SUCCEED") <= _time(amber, "SCHEDULED")
        nodes = namd["runtime"]["allocation"].split(",")
        assert 1 <= len(nodes) <= 2
        assert all(node.count(":") == 27 for node in nodes), "whole nodes"
        assert (tmp_path / f"logs/namd_bac16_{index}.stdout").read_text() == f"namd {index}\n"
        assert (tmp_path / f"logs/amber_bac16_{index}.stdout").read_text() == f"amber {index} after namd {index} on 4\n"


def _time(entry: dict, state: str) -> datetime:
    return next(datetime.fromisoformat(step["date"]) for step in entry["history"] if step["state"] == state)


def test_the_samples_are_those_of_the_documents():
    """The digests of the texts in the documents reveal any change of a sample."""
    bac16 = json.loads((SAMPLES / "bac16.json").read_text())
    submit, wait = json.loads((SAMPLES / "msleep2.json").read_text())
    assert _digest(bac16) == "75574595a61ef50224b513537fbe2a07822637879667123543d76baef041a295"
    assert _digest(submit) == "51804c9fd8ed0ceccff28bd54ce6833c695e0129e20727906cc4e87e5f1686d0"
    assert wait == {"request": "control", "command": "finishAfterAllTasksDone"}


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
