"""The usage of jobs in reports, `info` and tables."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.pilot import job, run, write_requests

BURN = "i=0; while [ $i -lt 8000 ]; do i=$((i+1)); done"


def test_usage_of_every_attempt_is_in_report_info_and_closing_table(tmp_path: Path):
    many = job("many", "bash", "-c", BURN, iteration=40)
    again = job("again", "bash", "-c", f"{BURN}; exit 3", retry={"max": 1})
    requests = write_requests(tmp_path / "r.json", [many, again])
    ended = run(
        "qcg-pm",
        "run",
        requests,
        "--wd",
        tmp_path,
        "--nodes",
        "n1:1",
        "--report-format",
        "json",
        "--json",
        cwd=tmp_path,
    )
    report = json.loads(ended.stdout)["report"]
    entries = [json.loads(line) for line in (tmp_path / "jobs.report").read_text().splitlines()]
    runtimes = {entry["name"]: entry["runtime"] for entry in entries}
    iterations = [runtimes[f"many:{index}"] for index in range(40)]
    # The relay starts most of them, the job host the others.
    seconds = [float(runtime["cpu_time"].rpartition(":")[2]) for runtime in [*iterations, runtimes["again"]]]
    assert min(seconds) > 0.001
    assert all(int(runtime["max_memory"]) > 1 << 20 for runtime in iterations)
    assert all(0 < float(runtime["cpu_efficiency"]) < 2 for runtime in iterations)
    (earlier,) = next(entry for entry in entries if entry["name"] == "again")["attempts"]
    assert float(earlier["cpu_time"].rpartition(":")[2]) > 0.001
    assert abs(report["cpu_seconds"] - sum(seconds) - float(earlier["cpu_time"].rpartition(":")[2])) < 0.001
    assert 0 < report["cpu_efficiency"] < 1.5
    assert report["max_memory"] == max(int(runtime["max_memory"]) for runtime in [*iterations, runtimes["again"]])
    info = json.loads(run("qcg-pm", "info", "many:7", "--path", tmp_path, "--json").stdout)["many:7"]["runtime"]
    assert info["max_memory"] == int(runtimes["many:7"]["max_memory"])
    assert info["cpu_time"] == runtimes["many:7"]["cpu_time"]
    assert info["cpu_seconds"] > 0
