"""Wall times are enforced: SIGTERM at the limit, SIGKILL after a grace, and a message with the limit."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from qcg.pilotjob.host.jobhost import JOB_GRACE
from tests.support.pilot import job, run_requests
from tests.support.processes import is_alive

CATCHES = "trap 'echo terminated > caught; exit 0' TERM; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; echo $$ > deaf.pid; sleep 1000 & echo $! > deaf-child.pid; while :; do sleep 0.05; done"


def seconds(entry: dict[str, Any]) -> float:
    hours, minutes, rest = entry["runtime"]["rtime"].split(":")
    return timedelta(hours=int(hours), minutes=int(minutes), seconds=float(rest)).total_seconds()


def test_a_job_that_takes_too_long_is_ended_and_failed_with_a_message(tmp_path: Path):
    sharing = {"name": "maximum-iters"}
    split = {"name": "split-into", "params": {"parts": 8}}
    done = run_requests(
        tmp_path,
        [
            job("catches", script=CATCHES, wt="3s"),
            job("deaf", script=DEAF, wt="PT3S"),
            job("tree", script="setsid sleep 1000 & echo $! > tree.pid; wait", wt="0:00:03"),
            job("after", "true", after=["catches"]),
            job("it", script="[ ${it} = 0 ] || sleep 1000", iteration=2, wt="3s"),
            job("shared", "sleep", "1000", iteration=2, resources={"numCores": {"scheduler": sharing}, "wt": "3s"}),
            job("split", "sleep", "1000", iteration=2, resources={"numCores": {"scheduler": split}, "wt": "3s"}),
            job("quick", "true", wt="10h"),
        ],
        options=("--nodes", "16"),
    )
    report = done.report
    states = done.states
    late = ["catches", "deaf", "tree", "it:1", "shared:0", "shared:1", "split:0", "split:1"]
    for name in late:
        assert states[name] == "FAILED", name
        assert "wall time" in report[name]["messages"].lower(), name
        assert "3 s" in report[name]["messages"], report[name]["messages"]
        assert seconds(report[name]) >= 3
        assert (seconds(report[name]) >= 3 + JOB_GRACE) == (name == "deaf"), name
    assert {states[name] for name in ("it", "shared", "split")} == {"FAILED"}
    assert states["after"] == "OMITTED"
    assert states["it:0"] == states["quick"] == "SUCCEED"
    assert (tmp_path / "caught").read_text() == "terminated\n"
    for name in ("deaf", "deaf-child", "tree"):
        assert not is_alive(int((tmp_path / f"{name}.pid").read_text())), name
    assert done.done.returncode == 1
