"""Hosts that are set up in unusual ways, and jobs that do unusual things on them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from tests.support.remote_run import RUN, RemoteRun, remote_job, waiting_job
from tests.support.ssh_lab import Lab
from tests.support.waiting import wait_for

pytestmark = pytest.mark.any_worker

MESSAGE = '$QCG_PM_REMOTE message "$QCG_PM_REMOTE_RUN"'
"""How a job sends a message."""


def test_the_directory_of_runs_may_be_a_link_to_another_file_system(lab: Lab, any_channel: str):
    lab.wizard.run("mkdir", "-p", "scratch/runs")
    lab.wizard.run("ln", "-s", "scratch/runs", "qcg-run")
    run = RemoteRun(lab, [remote_job("one", "pwd -P")], channel=any_channel).start()
    run.finish()
    assert (lab.wizard.home / "scratch" / "runs" / RUN / ".service").is_dir()
    assert "scratch/runs" in (run.attempt("one") / "job.out").read_text()


def test_a_job_for_any_host_avoids_a_dead_one(lab: Lab, any_channel: str):
    lab.wizard.refuse()
    jobs = [remote_job(f"any-{number}", host="*") for number in range(8)]
    run = RemoteRun(lab, jobs, channel=any_channel, hosts={"wizard": {}, "tower": {}}).start()
    run.finish(30)
    assert sorted(run.marks(lab.tower)) == sorted(job["name"] for job in jobs)


def test_messages_of_a_job_without_a_manager_do_no_harm_and_are_kept(lab: Lab, any_channel: str):
    script = f"set -e; {MESSAGE} early; until [ -e ~/alone ]; do sleep 0.05; done; {MESSAGE} late"
    run = RemoteRun(lab, [remote_job("talking", script)], channel=any_channel).start()
    wait_for(lambda: _messages(run), what="the first message")
    run.kill()
    lab.wizard.write("alone", "")
    wait_for(lambda: "ENDED" in run.status("talking"), what="the end of the job")
    assert run.status("talking")["EXIT_CODE"] == "0"
    assert [line.partition("|")[2] for line in _messages(run)] == ["early", "late"]
    run.start()
    run.finish()


def _messages(run: RemoteRun) -> list[str]:
    status = run.attempt("talking") / "job.status"
    lines = status.read_text().splitlines() if status.exists() else []
    return [line for line in lines if line.startswith("MESSAGE=")]


def test_a_job_that_damages_its_status_file_has_the_right_state(lab: Lab, any_channel: str):
    run = RemoteRun(lab, [remote_job("vandal", 'echo garbage > "$QCG_PM_ATTEMPT_DIR/job.status"; exit 5')],
                    channel=any_channel).start()  # fmt: skip
    assert run.wait() == 1
    assert run.report()["vandal"]["state"] == "FAILED"
    assert "5" in run.why("vandal")


@pytest.mark.parametrize("is_reported", [False, True], ids=["at-once", "after-its-start-is-reported"])
def test_the_end_of_a_job_that_removes_its_records_arrives_over_the_channel(lab: Lab, is_reported: bool):
    job = waiting_job("vandal", "rm -rf ~/qcg-run") if is_reported else remote_job("vandal", "rm -rf ~/qcg-run")
    run = RemoteRun(lab, [job], channel="serve").start()
    if is_reported:
        run.wait_for_log("vandal EXECUTING")
        run.release()
    run.finish()
    assert run.marks() == ["vandal"]


def test_a_job_whose_records_are_removed_at_once_is_lost_and_not_started_again(lab: Lab):
    """If its start was reported before that, the run waits until its user gives the host up."""
    run = RemoteRun(lab, [remote_job("vandal", "rm -rf ~/qcg-run")], channel="one-shot").start()
    wait_for(lambda: run.states() or "the directory was removed" in run.log(), 60, "an end or an explanation")
    if not run.states():
        run.qcg_pm("hosts", "forget", "wizard", "--yes")
    assert run.wait() == 1
    assert run.states() == {"vandal": "FAILED"}
    assert run.marks() == ["vandal"]


def test_removed_records_are_explained_and_the_run_can_be_ended(lab: Lab, channel: str):
    run = RemoteRun(lab, [waiting_job("victim")], channel=channel).start()
    run.wait_for_log("victim EXECUTING")
    lab.wizard.run("rm", "-rf", "qcg-run")
    if channel == "serve":
        run.kill_supervisor()  # which could still report the end of the job
    run.release()
    run.wait_for_log("the directory was removed")
    assert "the directory was removed" in run.why("victim")
    run.interrupt()
    assert run.wait(45) != 0
    assert run.marks() == ["victim"]


def test_attempts_are_numbered_and_the_link_names_the_last_one(lab: Lab, any_channel: str):
    run = RemoteRun(lab, [waiting_job("twice")], channel=any_channel, options=("--on-lost", "rerun")).start()
    run.wait_for_marks(1)
    assert os.readlink(run.attempt("twice")) == "01"
    lab.wizard.crash()
    lab.wizard.boot()
    run.wait_for_marks(2)
    run.release()
    run.finish()
    assert os.readlink(run.attempt("twice")) == "02"
    assert run.status("twice", "02")["EXIT_CODE"] == "0"


def test_a_job_that_runs_again_is_a_new_attempt_with_its_files_as_they_are_then(lab: Lab, any_channel: str):
    job = remote_job("again", "grep -q right in.txt && cp in.txt out.txt", inputs=["in.txt"], outputs=["out.txt"])
    run = RemoteRun(lab, [job, remote_job("next", after=["again"])], channel=any_channel)
    lab.citadel.write("project/in.txt", "wrong\n")
    run.start()
    assert run.wait() == 1, run.explain()
    assert run.states() == {"again": "FAILED", "next": "OMITTED"}
    lab.citadel.write("project/in.txt", "right\n")
    run.start("--rerun", "failed").finish()
    assert run.marks() == ["again", "again", "next"]
    assert os.readlink(run.attempt("again")) == "02"
    assert (run.wd / "work" / "1" / "again" / "out.txt").read_text() == "right\n"
    run.check_nothing_left(lab.wizard, lab.citadel)


def test_a_remote_job_of_a_live_run_is_run_again(lab: Lab, any_channel: str):
    run = RemoteRun(lab, [remote_job("again", "test -e ~/there"), waiting_job("other")], channel=any_channel).start()
    run.wait_for_states({"again": "FAILED"})
    lab.wizard.write("there", "")
    assert run.qcg_pm("rerun", "again") == "1 job or iteration is queued again\n"
    run.release()
    run.finish()
    assert run.marks().count("again") == 2
    assert os.readlink(run.attempt("again")) == "02"


def test_an_adopted_job_can_be_cancelled(lab: Lab, any_channel: str):
    run = RemoteRun(lab, [waiting_job("adopted")], channel=any_channel).start()
    run.wait_for_marks(1)
    run.kill()
    run.start()
    run.wait_for_log("1 job was found running")
    run.qcg_pm("-p", run.run_dir.name, "cancel", "adopted")
    assert run.wait() == 1
    assert run.states() == {"adopted": "CANCELED"}
    assert not any("until" in str(one) for one in lab.wizard.processes())


def test_a_host_without_python_is_explained_and_leaves_other_hosts_alone(lab: Lab, any_channel: str):
    hosts = {"wizard": {"python": "python9"}, "tower": {}}
    run = RemoteRun(
        lab, [remote_job("never"), remote_job("fine", host="tower")], channel=any_channel, hosts=hosts
    ).start()
    run.wait_for_states({"fine": "SUCCEED"})
    run.wait_for_log("wizard is unreachable")
    assert "python9" in run.why("never")
    run.qcg_pm("-p", run.run_dir.name, "cancel", "never")
    assert run.wait() == 1
    assert run.states() == {"never": "CANCELED", "fine": "SUCCEED"}


def test_a_host_that_cannot_be_initialised_leaves_another_table_for_the_same_machine_alone(lab: Lab, channel: str):
    hosts = {"bad": {"address": "wizard", "python": "python9"}, "good": {"address": "wizard"}}
    jobs = [remote_job("never", host="bad"), remote_job("fine", host="good")]
    run = RemoteRun(lab, jobs, channel=channel, hosts=hosts).start()
    run.wait_for_states({"fine": "SUCCEED"})
    run.wait_for_log("bad is unreachable")
    assert "python9" in run.why("never")
    run.qcg_pm("-p", run.run_dir.name, "cancel", "never")
    assert run.wait() == 1
    assert run.states() == {"never": "CANCELED", "fine": "SUCCEED"}
    run.check_starts(["fine"])


@pytest.fixture
def ending_logind(lab: Lab) -> Iterator[None]:
    """The settings of a logind that ends the processes of a user at logout."""
    configure = "mkdir -p /run/systemd/users /etc/systemd; printf '[Login]\\nKillUserProcesses=yes\\n' > $0"
    lab.wizard.run("sh", "-c", configure, "/etc/systemd/logind.conf", as_root=True)
    yield
    lab.wizard.run("rm", "-rf", "/run/systemd/users", "/etc/systemd/logind.conf", as_root=True)


@pytest.mark.usefixtures("ending_logind")
def test_a_host_that_ends_processes_at_logout_is_noticed_with_advice(lab: Lab, any_channel: str):
    advice = r"ends all processes of hobo at logout \(KillUserProcesses=yes of logind\).*`loginctl enable-linger hobo`"
    run = RemoteRun(lab, [remote_job("one")], channel=any_channel).start()
    run.finish()
    assert len(re.findall(f"wizard: .*{advice}", run.output())) == 1, run.output()
    check = lab.citadel.run("qcg-pm", "hosts", "check", "wizard", "--hosts", "hosts.toml", cwd="project").stdout
    assert re.search(f"^note +advice .*{advice}", check, re.MULTILINE)


def test_a_directory_of_another_run_is_left_alone(lab: Lab, any_channel: str):
    """Two projects with the same run id on one host."""
    first = RemoteRun(lab, [remote_job("one")], channel=any_channel).start()
    first.finish()
    first.check_nothing_left()
    before = sorted(str(path) for path in first.far_directory().rglob("*"))
    lab.citadel.run("mv", "project", "earlier")
    second = RemoteRun(lab, [remote_job("two")], channel=any_channel).start()
    second.wait_for_log("wizard is unreachable")
    assert "another run" in second.why("two")
    second.qcg_pm("-p", second.run_dir.name, "cancel", "two")
    second.wait()
    assert sorted(str(path) for path in first.far_directory().rglob("*")) == before
    assert first.marks() == ["one"]


def test_a_full_disk_fails_jobs_with_a_reason(lab: Lab, channel: str):
    lab.wizard.run("mkdir", "qcg-run")
    lab.wizard.run("mount", "-t", "tmpfs", "-o", f"size=200k,uid={lab.wizard.uid},mode=700", "tmpfs",
                   f"{lab.wizard.home_there}/qcg-run", as_root=True)  # fmt: skip
    try:
        jobs = [remote_job("filler", "head -c 1000000 /dev/zero > fill"), remote_job("next", after=[])]
        run = RemoteRun(lab, jobs, channel=channel, cores=1).start()
        assert run.wait(60) == 1, run.explain()
        assert run.states()["filler"] == "FAILED"
    finally:
        lab.wizard.run("umount", "-l", f"{lab.wizard.home_there}/qcg-run", as_root=True)
