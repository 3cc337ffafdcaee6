"""Jobs on remote hosts that are started again by their own policy."""

from __future__ import annotations

import json

import pytest

from tests.support.remote_run import RemoteRun, remote_job
from tests.support.ssh_lab import Lab

pytestmark = pytest.mark.any_worker


def test_remote_jobs_run_again_for_each_cause_that_their_policy_names(lab: Lab, any_channel: str):
    jobs = [
        remote_job("code", "echo attempt ${attempt}; [ ${attempt} = 3 ]", retry={"on": {"exit": 2}, "delay": "0.2s"}),
        remote_job(
            "slow",
            "[ ${attempt} = 2 ] || sleep 600",
            wt="1s",
            retry={"on": ["timeout"], "grow": {"wt": ["60s"]}},
        ),
        remote_job("copied", "[ ${attempt} = 1 ] || echo x > result", outputs=["result"], retry={"on": ["staging"]}),
        remote_job("other", "exit 5", retry={"on": ["exit"], "exit_codes": [1], "max": 3}),
    ]
    run = RemoteRun(lab, jobs, channel=any_channel).start()
    assert run.wait() == 1, run.explain()
    expected = {"code": "SUCCEED", "slow": "SUCCEED", "copied": "SUCCEED", "other": "FAILED"}
    assert run.states() == expected, run.explain()
    assert sorted(run.marks()) == sorted([*["code"] * 3, *["slow"] * 2, *["copied"] * 2, "other"])
    assert [(run.attempt("code", f"0{number}") / "job.out").read_text() for number in (1, 2, 3)] == [
        f"attempt {number}\n" for number in (1, 2, 3)
    ]
    shown = json.loads(run.qcg_pm("-p", run.run_dir.name, "info", "--json", *expected))
    causes = {name: [attempt["cause"] for attempt in entry.get("attempts", [])] for name, entry in shown.items()}
    assert causes == {"code": ["exit", "exit"], "slow": ["timeout"], "copied": ["staging"], "other": []}
    run.check_nothing_left(lab.wizard, lab.citadel)
