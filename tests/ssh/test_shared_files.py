"""Hosts of `hosts.toml` that have the same files, such as two partitions or two login hosts of one cluster."""

from __future__ import annotations

import pytest

from tests.support.remote_run import RUN, RemoteRun, connected, remote_job, waiting_job
from tests.support.ssh_lab import Lab

pytestmark = pytest.mark.any_worker


def test_a_second_host_with_the_same_run_directory_is_refused_with_advice(lab: Lab, channel: str):
    """Otherwise the channels of both would replace each other for ever."""
    jobs = [waiting_job("running"), *connected([remote_job("second", host="wizard2")])]
    run = RemoteRun(lab, jobs, channel=channel, hosts={"wizard": {}, "wizard2": {}}).start()
    run.wait_for_marks(1)
    run.wait_for_connection()
    run.open_gate()
    run.wait_for_log("wizard2 is unreachable")
    told = run.why("second")
    assert "for the host wizard, which has the same files" in told
    assert "give wizard2 a `directory` of its own" in told
    run.qcg_pm("-p", run.run_dir.name, "cancel", "second")
    run.release()
    assert run.wait() == 1
    assert run.states() == {"running": "SUCCEED", "first": "SUCCEED", "gate": "SUCCEED", "second": "CANCELED"}
    assert run.marks() == ["running"]
    assert "wizard is unreachable" not in run.log()


def test_two_hosts_of_one_machine_have_directories_of_their_own(lab: Lab, channel: str):
    hosts = {"wizard": {}, "more": {"address": "wizard", "directory": "qcg-run-more"}}
    names = [f"{host}-{number}" for host in hosts for number in range(4)]
    jobs = [remote_job(name, host=name.partition("-")[0]) for name in names]
    run = RemoteRun(lab, jobs, channel=channel, hosts=hosts).start()
    run.finish()
    run.check_starts(names)
    assert (lab.wizard.home / "qcg-run-more" / RUN / "log" / "job" / "1" / "more-0" / "NN" / "job.status").exists()
    run.check_nothing_left()
