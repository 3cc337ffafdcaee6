"""Hosts that lose power, killed supervisors, and reused pids."""

from __future__ import annotations

import subprocess
from functools import partial

import pytest

from tests.support import processes
from tests.support.processes import Process
from tests.support.remote_run import RemoteRun, remote_job, waiting_job
from tests.support.ssh_lab import Lab
from tests.support.waiting import wait_for

pytestmark = pytest.mark.any_worker


def test_running_jobs_fail_when_their_host_loses_its_power(lab: Lab, channel: str):
    run = RemoteRun(lab, [waiting_job("running"), remote_job("done")], channel=channel).start()
    run.wait_for_marks(2)
    run.wait_for_states({"done": "SUCCEED"})
    lab.wizard.crash()
    lab.wizard.boot()
    run.wait_for_states({"running": "FAILED", "done": "SUCCEED"}, 30)
    assert run.wait() == 1
    run.check_starts(["running", "done"])


def test_jobs_are_started_after_a_host_has_booted(lab: Lab, channel: str):
    jobs = [remote_job(f"job-{number}", "sleep 0.1") for number in range(16)]
    run = RemoteRun(lab, jobs, channel=channel, options=("--on-lost", "rerun")).start()
    run.wait_for_marks(6)
    lab.wizard.crash()
    lab.wizard.boot()
    run.finish()
    assert set(run.states().values()) == {"SUCCEED"}
    assert len(run.marks()) <= len(jobs) + 4, "more than the running jobs were started again"


def test_a_reused_pid_is_neither_believed_nor_killed(lab: Lab, any_channel: str):
    run = RemoteRun(lab, [waiting_job("dead")], channel=any_channel).start()
    run.wait_for_marks(1)
    pid = int(wait_for(lambda: run.status("dead").get("PID", ""), what="the pid"))
    lab.wizard.refuse()
    lab.wizard.crash()
    lab.wizard.boot()
    lab.wizard.refuse()
    innocent, found = start_with_pid(lab, pid)
    lab.wizard.heal()
    run.wait_for_states({"dead": "FAILED"}, 30)
    assert run.wait() == 1
    assert processes.identify(found.pid) == found
    processes.end({found})
    innocent.wait(10)


def start_with_pid(lab: Lab, pid: int) -> tuple[subprocess.Popen[str], Process]:
    """Start a process on wizard with this pid there. Another one may get the pid first, and end soon."""
    for _ in range(20):
        lab.wizard.set_next_pid(pid)
        started = lab.wizard.start("sleep", "600")
        (found,) = wait_for(lambda: [one for one in lab.wizard.processes() if str(one).endswith("sleep 600")])
        if lab.wizard.inner_pid(found) == pid:
            return started, found
        processes.end({found})
        started.wait(10)
    raise AssertionError(f"no process got the pid {pid}")


def test_jobs_of_a_killed_supervisor_are_ended_and_reported(lab: Lab, channel: str):
    run = RemoteRun(lab, [waiting_job("lost")], channel=channel).start()
    run.wait_for_marks(1)
    run.kill_supervisor()
    run.wait_for_states({"lost": "FAILED"}, 30)
    assert run.wait() == 1
    run.check_starts(["lost"])
    run.check_nothing_left(timeout=20)


def test_a_job_that_was_killed_on_the_host_fails_with_its_signal(lab: Lab, any_channel: str):
    run = RemoteRun(lab, [remote_job("victim", "exec sleep 600")], channel=any_channel).start()
    victims = wait_for(lambda: [one for one in lab.wizard.processes() if str(one).endswith("sleep 600")])
    processes.end(set(victims))
    assert run.wait() == 1
    assert run.states() == {"victim": "FAILED"}
    assert run.status("victim").get("SIGNAL") in ("9", "SIGKILL", "KILL")


def _has_more_logins(lab: Lab, before: int) -> bool:
    return lab.wizard.logins() > before


def test_killed_connections_are_opened_again(lab: Lab, channel: str):
    run = RemoteRun(lab, [waiting_job("one"), waiting_job("two")], channel=channel).start()
    run.wait_for_marks(2)
    for _ in range(3):
        before = lab.wizard.logins()
        lab.wizard.kill_sshd()
        wait_for(partial(_has_more_logins, lab, before), 15, lambda: f"another login\n{run.explain()}")
    run.release()
    run.finish()
    run.check_starts(["one", "two"])
