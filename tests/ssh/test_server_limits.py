"""Servers with limits, loud profiles, and jobs that cannot start: the other jobs run."""

from __future__ import annotations

import pytest

from tests.support.remote_run import RemoteRun, remote_job, waiting_job
from tests.support.ssh_lab import Lab

pytestmark = pytest.mark.any_worker

NAMES = [f"job-{number}" for number in range(20)]


def test_one_session_per_connection_is_enough(lab: Lab, channel: str):
    lab.wizard.configure_sshd(MaxSessions=1)
    lab.citadel.write("project/data/one", "text")
    run = RemoteRun(lab, map(remote_job, NAMES), channel=channel, install=["data"], retrieve="always").start()
    run.finish()
    run.check_starts(NAMES)


def test_three_connections_at_a_time_are_enough(lab: Lab, channel: str):
    lab.wizard.configure_sshd(MaxStartups="3:100:3")
    lab.citadel.write("project/data/one", "text")
    run = RemoteRun(lab, map(remote_job, NAMES), channel=channel, install=["data"], retrieve="always").start()
    run.finish()
    run.check_starts(NAMES)
    assert "beginning MaxStartups throttling" not in lab.wizard.sshd_log()


def test_noise_of_a_profile_does_no_harm(lab: Lab, channel: str):
    lab.wizard.make_profile_loud()
    hosts = {"wizard": {"login_shell": True}}
    run = RemoteRun(lab, [remote_job("one", "exit 0"), waiting_job("two")], channel=channel, hosts=hosts).start()
    run.wait_for_marks(2)
    run.release()
    run.finish()
    run.check_starts(["one", "two"])


def test_one_job_that_cannot_start_leaves_the_others_alone(lab: Lab, any_channel: str):
    """Its directory cannot be made: a file is in its place."""
    names = [f"job-{number}" for number in range(50)]
    lab.wizard.write("qcg-run/x/work/1/job-17", "in the way")
    run = RemoteRun(lab, map(remote_job, names), channel=any_channel, cores=50).start()
    assert run.wait() == 1, run.explain()
    states = run.states()
    assert states.pop("job-17") == "FAILED"
    assert set(states.values()) == {"SUCCEED"}
    run.check_starts(name for name in names if name != "job-17")
    assert "job-17" in str(run.report()["job-17"])


def test_an_unknown_host_is_refused_with_the_nearest_name(lab: Lab):
    run = RemoteRun(lab, [remote_job("one", host="wizzard")]).start()
    assert run.wait() != 0
    assert "wizard" in (run.wd / "err").read_text() + (run.wd / "out").read_text()


def test_no_socket_of_a_shared_connection_is_left_on_the_managers_side(lab: Lab, channel: str):
    run = RemoteRun(lab, [remote_job("one")], channel=channel).start()
    run.finish()
    assert lab.citadel.run("ls", f"/tmp/qcg-pm-ssh-{lab.citadel.uid}").stdout == ""
