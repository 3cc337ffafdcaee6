"""Every way of tracking gives the same states for the same jobs, and a host that has news says so."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.remote_run import RemoteRun, remote_job, waiting_job
from tests.support.ssh_lab import Lab

LONG = 600
"""Seconds between two polls where news must come in another way."""
WAYS: dict[str, dict[str, Any]] = {
    "over the channel": {"channel": "serve"},
    "by polling": {"channel": "one-shot", "poll_interval": 0.5, "submit_poll_interval": 0.5},
    "by messages": {"channel": "one-shot", "tracking": "messages", "manager_address": "citadel"},
    "by ssh": {"channel": "one-shot", "tracking": "ssh", "manager_address": "boss@citadel"},
}
FRUITLESS_POLLS = 13
"""Polls without news after which the next one is three minutes away: longer than any wait of a test."""
POLL = f"""
from qcg.pilotjob.api.client import Manager
manager = Manager()
for _ in range({FRUITLESS_POLLS}):
    manager.poll(["one"])
"""
JOBS = [
    remote_job("good"),
    remote_job("bad", "exit 3"),
    remote_job("killed", "kill -KILL $$"),
    remote_job("late", "exec sleep 300", wt="1s"),
    remote_job("sweep", "exit ${it}", iteration=2),
    remote_job("after-good", after=["good"]),
    remote_job("after-bad", after=["bad"]),
]
EXPECTED = {
    "good": ("SUCCEED", 0),
    "bad": ("FAILED", 3),
    "killed": ("FAILED", -9),
    "late": ("FAILED", -15),
    "sweep": ("FAILED", None),
    "after-good": ("SUCCEED", 0),
    "after-bad": ("OMITTED", None),
}


@pytest.mark.parametrize("way", WAYS)
def test_all_ways_of_tracking_give_the_same_states(lab: Lab, way: str):
    settings = {"poll_interval": LONG, "submit_poll_interval": LONG, **WAYS[way]}
    run = RemoteRun(lab, JOBS, channel=settings.pop("channel"), **settings)
    began = time.monotonic()
    run.start()
    assert run.wait() == 1, run.explain()
    assert time.monotonic() - began < 60
    run.check_nothing_left(lab.wizard)
    assert "EXECUTING" in [step["state"] for step in run.report()["good"]["history"]], "a short job has started, too"
    entries = {name: entry for name, entry in run.report().items() if ":" not in name}
    found = {name: (entry["state"], entry.get("runtime", {}).get("exit_code")) for name, entry in entries.items()}
    assert {name: (state, None if code is None else int(code)) for name, (state, code) in found.items()} == EXPECTED


@pytest.mark.parametrize("is_resumed", [False, True], ids=["first-manager", "resumed"])
@pytest.mark.parametrize("way", ["by messages", "by ssh"])
def test_the_end_of_a_job_is_known_long_before_the_next_poll(lab: Lab, way: str, is_resumed: bool):
    run = RemoteRun(lab, [waiting_job("one")], poll_interval=LONG, submit_poll_interval=LONG, **WAYS[way]).start()
    run.wait_for_log("one EXECUTING")
    if is_resumed:
        run.kill()
        run.start()
        run.wait_for_log("1 job was found running")
    lab.citadel.run("python", "-c", POLL, cwd="project")
    run.release()
    run.wait_for_states({"one": "SUCCEED"})
    run.finish()
