"""Every job runs exactly once, whatever is lost between a submission on the host and its reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.remote_run import RemoteRun, connected, remote_job, waiting_job
from tests.support.ssh_lab import Lab
from tests.support.waiting import wait_for

pytestmark = pytest.mark.any_worker

SLOW = 1.0
"""Round trip in seconds: jobs have started on the host half of it before the manager can know."""

NOTICED = {"serve": "wizard has not answered for 10 s", "one-shot": "wizard does not answer; it is down"}
"""How a connection without any packet is noticed: by heartbeats on the channel, or by those of ssh."""

NAMES = [f"job-{number}" for number in range(4)]


def submit_slowly(lab: Lab, channel: str, hosts: Mapping[str, Mapping[str, Any]] | None = None) -> RemoteRun:
    """A run whose first jobs have just started on wizard, while the reply to their submission is on its way."""
    (host,) = hosts or ("wizard",)
    jobs = connected([waiting_job(name, host=host) for name in NAMES], host)
    run = RemoteRun(lab, jobs, channel=channel, hosts=hosts).start()
    run.wait_for_connection()
    lab.wizard.slow_down(SLOW)
    run.open_gate()
    run.wait_for_marks(1)
    return run


def finish(run: RemoteRun) -> None:
    """Let all jobs end: each was started once."""
    run.wait_for_marks(len(NAMES))
    run.release()
    run.finish()
    run.check_starts(NAMES)
    assert set(run.states().values()) == {"SUCCEED"}
    # A first attempt that the host has not got may be followed by another one: the connection may be lost early.
    assert not any(run.attempt(name, "01").exists() and run.attempt(name, "02").exists() for name in NAMES)


def test_jobs_run_once_when_the_connection_is_killed_before_the_answer(lab: Lab, channel: str):
    run = submit_slowly(lab, channel)
    lab.wizard.kill_sshd()
    lab.wizard.slow_down(0)
    finish(run)


def test_a_black_hole_before_the_answer_is_noticed_and_the_states_are_right_soon_after_it(lab: Lab, channel: str):
    run = submit_slowly(lab, channel)
    lab.wizard.drop()
    lab.wizard.slow_down(0)
    run.wait_for_log(f"wizard is unreachable .*: {NOTICED[channel]}")
    run.wait_for_marks(len(NAMES))
    run.release()
    wait_for(lambda: all("ENDED" in run.status(name) for name in NAMES), what="the ends of the jobs")
    lab.wizard.heal()
    failed = len(run.pauses())
    run.wait_for_states(dict.fromkeys(NAMES, "SUCCEED"))
    run.check_soon_connected(failed)
    finish(run)


def test_jobs_are_adopted_after_the_manager_was_killed_in_the_submit_window(lab: Lab, channel: str):
    run = submit_slowly(lab, channel)
    run.kill()
    lab.wizard.slow_down(0)
    run.start()
    finish(run)


def test_jobs_are_adopted_through_the_second_login_host(lab: Lab, channel: str):
    """The first login host is lost after it has started jobs and before it could answer."""
    run = submit_slowly(lab, channel, {"wizards": {"address": ["wizard", "wizard2"]}})
    lab.wizard.refuse()
    lab.wizard.kill_sshd()
    wait_for(lambda: lab.wizard2.logins() > 0, 30, "a login on the second host")
    finish(run)
    assert {run.status(name)["HOST"] for name in NAMES} <= {"wizard", "wizard2"}


def test_a_manager_that_was_killed_finds_the_results_of_jobs_that_ended_without_it(lab: Lab, channel: str):
    run = RemoteRun(lab, [waiting_job("good"), waiting_job("bad", "exit 3")], channel=channel).start()
    run.wait_for_marks(2)
    run.kill()
    run.release()
    wait_for(lambda: all("ENDED" in run.status(name) for name in ("good", "bad")), what="the ends of the jobs")
    wait_for(lambda: not run.supervisors(), what="the end of the supervisor")
    run.start()
    assert run.wait() == 1
    assert run.states() == {"good": "SUCCEED", "bad": "FAILED"}
    run.check_starts(["good", "bad"])


def test_a_manager_that_was_killed_while_connecting_starts_its_jobs_later(lab: Lab, channel: str):
    lab.wizard.drop()
    run = RemoteRun(lab, map(remote_job, NAMES), channel=channel).start()
    run.wait_for_log("submit")
    run.kill()
    lab.wizard.heal()
    run.start()
    run.finish()
    run.check_starts(NAMES)


def test_a_second_login_host_takes_over_when_the_first_is_dead(lab: Lab, channel: str):
    lab.wizard.refuse()
    hosts = {"wizards": {"address": ["wizard", "wizard2"], "retrieve": "always"}}
    jobs = [remote_job("one", "echo hello", host="wizards"), waiting_job("killed", host="wizards")]
    run = RemoteRun(lab, jobs, channel=channel, hosts=hosts).start()
    run.wait_for_marks(2)
    run.wait_for_states({"one": "SUCCEED"})
    assert run.qcg_pm("-p", run.run_dir.name, "poll", "killed").startswith("killed EXECUTING")
    assert run.qcg_pm("-p", run.run_dir.name, "cat-log", "one") == "hello\n"
    run.qcg_pm("-p", run.run_dir.name, "cancel", "killed")
    assert run.wait() == 1
    assert run.states() == {"one": "SUCCEED", "killed": "CANCELED"}
    assert run.status("one")["HOST"] == "wizard2"
    assert lab.citadel.read("qcg-run/x/log/job/1/one/01/job.out") == "hello\n"
