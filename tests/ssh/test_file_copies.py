"""Copies of outputs that are slow or fail, with real SSH and rsync."""

from __future__ import annotations

from tests.support.remote_run import RemoteRun, remote_job
from tests.support.ssh_lab import Lab
from tests.support.waiting import wait_for

SLOW = '#!/bin/sh\nif [ -e ~/slow ]; then touch ~/slowed; sleep 60; fi\nexec rsync "$@"\n'
BROKEN = '#!/bin/sh\nif [ -e ~/broken ]; then rm ~/broken; exit 12; fi\nexec rsync "$@"\n'
WITH_OUTPUT = "mkdir result; echo hi > result/x"


def test_a_job_whose_outputs_are_copied_at_a_stop_does_not_run_again(lab: Lab):
    lab.citadel.write("slow-rsync", SLOW)
    lab.citadel.write("slow", "")
    jobs = [remote_job("one", WITH_OUTPUT, outputs=["result/"])]
    run = RemoteRun(lab, jobs, hosts={"wizard": {"rsync": ["sh", f"{lab.citadel.home_there}/slow-rsync"]}}).start()
    wait_for((lab.citadel.home / "slowed").exists, 30, "the copy of the outputs")
    run.interrupt()
    run.wait()
    (lab.citadel.home / "slow").unlink()
    run.start()
    assert run.wait() == 0, run.explain()
    assert run.states() == {"one": "SUCCEED"}
    assert run.marks() == ["one"]


def test_outputs_are_copied_again_after_rsync_has_failed_while_the_channel_lives(lab: Lab):
    lab.citadel.write("broken-rsync", BROKEN)
    lab.citadel.write("broken", "")
    jobs = [remote_job("one", WITH_OUTPUT, outputs=["result/"])]
    run = RemoteRun(lab, jobs, hosts={"wizard": {"rsync": ["sh", f"{lab.citadel.home_there}/broken-rsync"]}}).start()
    assert run.wait() == 0, run.explain()
    assert run.marks() == ["one"]
    assert not (lab.citadel.home / "broken").exists()
