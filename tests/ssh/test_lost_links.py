"""Networks that are cut, silent or refusing: job states are correct soon after the network is back."""

from __future__ import annotations

import re

import pytest

from tests.support.remote_run import RemoteRun, remote_job, waiting_job
from tests.support.ssh_lab import Lab
from tests.support.waiting import wait_for

pytestmark = pytest.mark.any_worker


def test_the_states_are_right_soon_after_a_refusing_host_is_back(lab: Lab, channel: str):
    run = RemoteRun(lab, [waiting_job("good"), waiting_job("bad", "exit 3")], channel=channel).start()
    run.wait_for_marks(2)
    lab.wizard.refuse()
    lab.wizard.kill_sshd()
    run.wait_for_log("unreachable")
    run.release()
    wait_for(lambda: all("ENDED" in run.status(name) for name in ("good", "bad")), what="the ends of the jobs")
    wait_for(lambda: len(run.pauses()) > 3, what="a longer pause between two trials")
    lab.wizard.heal()
    failed = len(run.pauses())
    run.wait_for_states({"good": "SUCCEED", "bad": "FAILED"})
    run.check_soon_connected(failed)
    assert run.wait() == 1
    run.check_starts(["good", "bad"])


def test_an_unreachable_host_delays_its_own_jobs_only(lab: Lab, any_channel: str):
    lab.tower.cut()
    jobs = [remote_job("late", host="tower"), remote_job("prompt")]
    run = RemoteRun(lab, jobs, channel=any_channel, hosts={"wizard": {}, "tower": {}}).start()
    run.wait_for_states({"prompt": "SUCCEED"})
    run.wait_for_log("tower is unreachable")
    assert "tower is unreachable since" in run.why("late")
    lab.tower.heal()
    run.finish()
    run.check_starts(["late"], lab.tower)


def test_jobs_start_when_one_of_several_dead_login_hosts_is_back(lab: Lab, any_channel: str):
    for host in (lab.wizard, lab.wizard2):
        host.refuse()
    hosts = {"wizards": {"address": ["wizard", "wizard2"]}}
    run = RemoteRun(lab, [remote_job("late", host="wizards")], channel=any_channel, hosts=hosts).start()
    run.wait_for_log("wizards is unreachable")
    told = run.why("late")
    assert "wizard refuses connections" in told
    assert "wizard2 refuses connections" in told
    lab.wizard2.heal()
    run.finish()
    run.check_starts(["late"])
    assert run.status("late")["HOST"] == "wizard2"


def test_nothing_stays_on_a_host_whose_manager_was_killed_while_the_network_was_silent(lab: Lab, channel: str):
    """The host does not notice that its connection is dead."""
    run = RemoteRun(lab, [waiting_job("one")], channel=channel).start()
    run.wait_for_log("one EXECUTING")
    lab.wizard.drop()
    run.kill()
    run.release()
    wait_for(lambda: "ENDED" in run.status("one"), what="the end of the job")
    wait_for(lambda: not [one for one in lab.wizard.processes() if " sshd:" not in f" {one}"], 60, run.explain)
    lab.wizard.heal()
    run.start().finish()
    run.check_starts(["one"])


def test_a_resumed_run_starts_while_its_host_is_down_and_reconciles_later(lab: Lab, channel: str):
    run = RemoteRun(lab, [waiting_job("remote"), remote_job("elsewhere", host="tower", after=["remote"])],
                    channel=channel, hosts={"wizard": {}, "tower": {}}).start()  # fmt: skip
    run.wait_for_marks(1)
    run.kill()
    lab.wizard.refuse()
    run.start()
    run.release()
    run.wait_for_log("wizard is unreachable")
    assert "no contact to wizard (since" in run.why("remote")
    lab.wizard.heal()
    run.finish()
    run.check_starts(["remote"])


def test_cancel_names_the_host_that_gets_the_kill_later(lab: Lab, any_channel: str):
    run = RemoteRun(lab, [waiting_job("one")], channel=any_channel).start()
    run.wait_for_marks(1)
    run.wait_for_log("one EXECUTING")
    lab.wizard.refuse()
    lab.wizard.kill_sshd()
    run.wait_for_log("wizard is unreachable")
    said = run.qcg_pm("cancel", "one")
    assert re.fullmatch(
        r"canceling 1 job on wizard: the host is unreachable since 20\S+ \S+; the request is sent when it answers\n",
        said,
    )
    lab.wizard.heal()
    run.wait_for_states({"one": "CANCELED"})
    run.wait()
    run.check_nothing_left()


def test_a_run_ends_after_its_unreachable_host_was_given_up(lab: Lab, any_channel: str):
    run = RemoteRun(lab, [waiting_job("one"), remote_job("two", host="tower", after=["one"])], channel=any_channel,
                    hosts={"wizard": {}, "tower": {}}).start()  # fmt: skip
    run.wait_for_marks(1)
    run.wait_for_log("one EXECUTING")
    assert "is connected, and only an unreachable host" in run.refused("hosts", "forget", "wizard", "--yes")
    lab.wizard.refuse()
    lab.wizard.kill_sshd()
    run.wait_for_log("wizard is unreachable")
    assert "give --yes too" in run.refused("hosts", "forget", "wizard")
    assert run.qcg_pm("hosts", "forget", "wizard", "--yes") == "wizard was given up: 1 job that ran there is lost.\n"
    assert run.wait() == 1
    assert run.states() == {"one": "FAILED", "two": "OMITTED"}
    run.release()
    run.check_nothing_left()


def test_a_decision_without_a_manager_is_followed_by_the_next_one(lab: Lab, any_channel: str):
    run = RemoteRun(lab, [waiting_job("one")], channel=any_channel).start()
    run.wait_for_marks(1)
    run.wait_for_log("one EXECUTING")
    run.kill()
    lab.wizard.refuse()
    lab.wizard.kill_sshd()
    assert "the next manager of this run" in run.qcg_pm("hosts", "forget", "wizard", "--yes")
    run.start()
    assert run.wait() == 1
    assert run.states() == {"one": "FAILED"}
    run.release()
    run.check_nothing_left()


def test_an_unreachable_host_does_not_keep_a_run_from_its_end(lab: Lab, channel: str):
    run = RemoteRun(lab, [waiting_job("one")], channel=channel).start()
    run.wait_for_marks(1)
    lab.wizard.drop()
    run.interrupt()
    assert run.wait(45) != 0
    lab.wizard.heal()
    run.release()
    run.start()
    run.wait()
    run.check_starts(["one"])
