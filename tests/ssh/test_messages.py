"""Messages of remote jobs to their manager."""

from __future__ import annotations

import pytest

from tests.support.remote_run import CHANNELS, RemoteRun, remote_job
from tests.support.ssh_lab import Lab
from tests.support.waiting import wait_for

SENDS = 'set -e; for number in 1 2 3; do $QCG_PM_REMOTE message "$QCG_PM_REMOTE_RUN" step $number; done'


@pytest.mark.parametrize("channel", CHANNELS)
def test_messages_arrive_once_and_in_order(lab: Lab, channel: str):
    run = RemoteRun(lab, [remote_job("talks", SENDS)], channel=channel).start()
    run.finish()
    said = [line.partition("says: ")[2] for line in run.log().splitlines() if " talks says: " in line]
    assert said == ["step 1", "step 2", "step 3"]


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_message_without_a_manager_fails_no_job_and_arrives_later(lab: Lab, channel: str):
    waits = f"until [ -e ~/release ]; do sleep 0.05; done; {SENDS}; touch ~/said"
    run = RemoteRun(lab, [remote_job("talks", waits)], channel=channel).start()
    run.wait_for_marks(1)
    run.kill()
    run.release()
    wait_for((lab.wizard.home / "said").exists, 60, "the end of the job")
    run.start().finish()
    said = [line.partition("says: ")[2] for line in run.log().splitlines() if " talks says: " in line]
    assert said == ["step 1", "step 2", "step 3"]
