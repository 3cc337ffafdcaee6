"""Copies of outputs and logs that are slow or fail, with real SSH and rsync."""

from __future__ import annotations

import pytest

from tests.support.remote_run import RUN, RemoteRun, remote_job
from tests.support.ssh_lab import Lab
from tests.support.waiting import wait_for

pytestmark = pytest.mark.any_worker

SLOW = '#!/bin/sh\nif [ -e ~/slow ]; then touch ~/slowed; sleep 60; fi\nexec rsync "$@"\n'
HELD = '#!/bin/sh\ntouch ~/copying; until [ -e ~/go ]; do sleep 0.05; done; exec rsync "$@"\n'
BROKEN = '#!/bin/sh\nif [ -e ~/broken ]; then rm ~/broken; exit 12; fi\nexec rsync "$@"\n'
REFUSED_THREE_TIMES = """#!/bin/sh
echo x >> ~/tried
[ $(wc -l < ~/tried) -gt 3 ] || { echo "kex_exchange_identification: Connection reset by peer" >&2; exit 12; }
exec rsync "$@"
"""
WITH_OUTPUT = "mkdir result; echo hi > result/x"


def with_rsync(lab: Lab, script: str) -> dict[str, dict[str, list[str]]]:
    """hosts.toml with a program in place of rsync."""
    lab.citadel.write("own-rsync", script)
    return {"wizard": {"rsync": ["sh", f"{lab.citadel.home_there}/own-rsync"]}}


def test_a_job_whose_outputs_are_copied_at_a_stop_does_not_run_again(lab: Lab, any_channel: str):
    lab.citadel.write("slow", "")
    jobs = [remote_job("one", WITH_OUTPUT, outputs=["result/"])]
    run = RemoteRun(lab, jobs, channel=any_channel, hosts=with_rsync(lab, SLOW)).start()
    wait_for((lab.citadel.home / "slowed").exists, 30, "the copy of the outputs")
    run.interrupt()
    run.wait()
    (lab.citadel.home / "slow").unlink()
    run.start()
    assert run.wait() == 0, run.explain()
    assert run.states() == {"one": "SUCCEED"}
    assert run.marks() == ["one"]


def test_outputs_are_copied_again_after_rsync_has_failed_while_the_channel_lives(lab: Lab, channel: str):
    lab.citadel.write("broken", "")
    jobs = [remote_job("one", WITH_OUTPUT, outputs=["result/"])]
    run = RemoteRun(lab, jobs, channel=channel, hosts=with_rsync(lab, BROKEN)).start()
    assert run.wait() == 0, run.explain()
    assert run.marks() == ["one"]
    assert not (lab.citadel.home / "broken").exists()


def test_logs_are_retrieved_again_after_the_host_has_refused_connections(lab: Lab, any_channel: str):
    hosts = with_rsync(lab, REFUSED_THREE_TIMES)
    run = RemoteRun(lab, [remote_job("one", "echo said")], channel=any_channel, retrieve="always", hosts=hosts).start()
    run.finish()
    assert lab.citadel.read(f"qcg-run/{RUN}/log/job/1/one/01/job.out") == "said\n"
    assert len(lab.citadel.read("tried").split()) == 4
    assert "not retrieved" not in run.output()


def test_logs_of_a_host_that_dies_during_the_copy_are_reported_as_not_retrieved(lab: Lab, channel: str):
    hosts = with_rsync(lab, HELD)
    run = RemoteRun(lab, [remote_job("one", "echo said")], channel=channel, retrieve="always", hosts=hosts).start()
    wait_for((lab.citadel.home / "copying").exists, 30, "the copy of the logs")
    lab.wizard.refuse()
    lab.wizard.kill_sshd()
    lab.citadel.write("go", "")
    run.finish()
    assert "wizard: the logs of 1 attempt were not retrieved; `qcg-pm cat-log` shows them" in run.output()
    lab.wizard.heal()
    assert run.qcg_pm("-p", run.run_dir.name, "cat-log", "one") == "said\n"
