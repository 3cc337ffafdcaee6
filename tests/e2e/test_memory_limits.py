"""Jobs that use more memory than they may, as users see them."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.pilot import job, run, run_requests

EAT = """
import sys, time
blocks = []
for step in range(int(sys.argv[1])):
    blocks.append(bytearray(10 << 20))
    time.sleep(0.02)
time.sleep(float(sys.argv[2]))
"""


def eater(name: str, megabytes: int, hold: float = 5.0, **more: object) -> dict[str, object]:
    """A job that allocates memory in steps, and keeps it for a while."""
    return job(name, sys.executable, "-S", "-c", EAT, str(megabytes // 10), str(hold), **more)


def test_a_job_that_eats_memory_is_ended_by_its_limit_and_retried_with_more(tmp_path: Path):
    retry = {"on": {"memory": 3}, "grow": {"mem": 2}}
    ended = run_requests(tmp_path, [eater("hungry", 300, resources={"mem": "100MB"}, retry=retry)])
    (entry,) = ended.report.values()
    assert entry["state"] == "SUCCEED"
    assert [attempt["cause"] for attempt in entry["attempts"]] == ["memory", "memory"]
    assert [attempt["requested_memory"] for attempt in entry["attempts"]] == [str(100 << 20), str(200 << 20)]
    assert "more than the 100.0 MiB of its limit" in entry["attempts"][0]["messages"]
    assert "more than the 200.0 MiB of its limit" in entry["attempts"][1]["messages"]
    assert int(entry["attempts"][0]["max_memory"]) > 100 << 20
    assert entry["runtime"]["requested_memory"] == str(400 << 20)


def test_without_a_retry_the_job_fails_with_limit_and_peak(tmp_path: Path):
    ended = run_requests(tmp_path, [eater("hungry", 1000, resources={"mem": "100MB"})])
    (entry,) = ended.report.values()
    assert entry["state"] == "FAILED"
    assert 'more than the 100.0 MiB of its limit; ask for more with "mem"' in entry["messages"]
    assert "hungry FAILED: The job used" in ended.done.stdout
    why = run("qcg-pm", "why", "hungry", "--path", tmp_path).stdout
    assert "more than the 100.0 MiB of its limit" in why


def test_memory_of_node_crs_is_a_limit_only_with_the_option_of_the_run(tmp_path: Path):
    jobs = [eater("hungry", 200, resources={"nodeCrs": {"mem": 100}})]
    for name, options, state in (("free", (), "SUCCEED"), ("enforced", ("--enforce-memory",), "FAILED")):
        directory = tmp_path / name
        directory.mkdir()
        ended = run_requests(directory, jobs, options=("--nodes", "1", *options))
        assert [entry["state"] for entry in ended.report.values()] == [state]


def test_iterations_with_limits_run_beside_others_without(tmp_path: Path):
    few = eater("few", 50, 0.1, resources={"mem": "200MB"}, iteration=6)
    many = job("many", "true", iteration=200)
    ended = run_requests(tmp_path, [few, many], options=("--nodes", "2"))
    assert {entry["state"] for entry in ended.report.values()} == {"SUCCEED"}
    assert len(ended.report) == 6 + 200 + 2
