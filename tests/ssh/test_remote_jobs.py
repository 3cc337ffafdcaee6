"""The life of jobs on remote hosts, without trouble: what is installed, started, recorded, killed and left behind."""

from __future__ import annotations

import os
from itertools import pairwise
from statistics import median

import pytest

from tests.support.pilot import job
from tests.support.remote_run import RemoteRun, remote_job, waiting_job
from tests.support.ssh_lab import Lab
from tests.support.waiting import wait_for

pytestmark = pytest.mark.any_worker


def test_jobs_run_on_their_host_and_nothing_stays_there(lab: Lab, channel: str):
    jobs = [
        remote_job("here", "hostname; pwd; exit 0"),
        remote_job("there", "hostname", host="tower"),
        remote_job("failing", "echo reason >&2; exit 7"),
        job("local", "/bin/sh", "-c", "hostname > local.out"),
    ]
    run = RemoteRun(lab, jobs, channel=channel, hosts={"wizard": {}, "tower": {}}).start()
    assert run.wait() == 1, run.explain()
    expected = {"here": "SUCCEED", "there": "SUCCEED", "failing": "FAILED", "local": "SUCCEED"}
    assert run.states() == expected, run.explain()
    out = (run.attempt("here") / "job.out").read_text().split()
    assert out == ["wizard", f"{lab.wizard.home_there}/qcg-run/x/work/1/here"]
    assert (run.attempt("there", host=lab.tower) / "job.out").read_text() == "tower\n"
    assert (run.attempt("failing") / "job.err").read_text() == "reason\n"
    assert (run.wd / "local.out").read_text() == "citadel\n"
    status = run.status("failing")
    assert status["EXIT_CODE"] == "7"
    assert status["HOST"] == "wizard"
    assert {"BOOT", "PID", "PROCESS_START", "STARTED", "ENDED", "SUBMITTED"} <= status.keys()
    run.check_nothing_left(lab.wizard, lab.tower, lab.citadel)


def test_the_run_directory_belongs_to_the_user_alone_and_has_no_contact_after_the_end(lab: Lab, any_channel: str):
    run = RemoteRun(lab, [remote_job("one")], channel=any_channel).start()
    run.finish()
    far = run.far_directory()
    private = [far.parent, far, *far.iterdir(), *(far / ".service").rglob("*"), run.attempt("one") / "job.status"]
    assert [str(path) for path in private if not path.is_symlink() and path.stat().st_mode & 0o077] == []
    assert run.attempt("one", "01").joinpath("job.out").stat().st_mode & 0o777 == 0o644, "jobs have the user's umask"
    assert not (far / ".service" / "contact").exists()
    assert os.readlink(run.attempt("one")) == "01"
    assert os.readlink(far / "log").startswith("log.20")


def test_iterations_and_dependencies_cross_hosts(lab: Lab, any_channel: str):
    jobs = [
        remote_job("many", iteration=3),
        job("between", "/bin/sh", "-c", "exit 0", after=["many"]),
        remote_job("last", host="tower", after=["between"]),
    ]
    run = RemoteRun(lab, jobs, channel=any_channel, hosts={"wizard": {}, "tower": {}}).start()
    run.finish()
    run.check_starts(["many:0", "many:1", "many:2", "last"], lab.wizard, lab.tower)
    assert run.status("many", point="2")["EXIT_CODE"] == "0"


def test_any_host_with_room_takes_a_job(lab: Lab, any_channel: str):
    jobs = [waiting_job(f"any-{number}", host="*") for number in range(4)]
    hosts = {"wizard": {"cores": 2}, "tower": {"cores": 2}}
    run = RemoteRun(lab, jobs, channel=any_channel, hosts=hosts).start()
    wait_for(lambda: len(run.marks(lab.wizard)) == 2 == len(run.marks(lab.tower)), what="two jobs on each host")
    for host in (lab.wizard, lab.tower):
        run.release(host)
    run.finish()
    run.check_starts([f"any-{number}" for number in range(4)], lab.wizard, lab.tower)


def test_jobs_share_the_gpus_of_a_host(lab: Lab, any_channel: str):
    jobs = [waiting_job(f"gpu-{n}", "echo $CUDA_VISIBLE_DEVICES", nodeCrs={"gpu": 1}) for n in range(3)]
    run = RemoteRun(lab, jobs, channel=any_channel, gpus=2).start()
    run.wait_for_log("gpu-0 EXECUTING")
    run.wait_for_log("gpu-1 EXECUTING")
    assert "gpu-2 QUEUED: it needs 1 core on one node and 1 GPU" in run.why("gpu-2"), "two of four cores are free"
    assert sorted(run.marks()) == ["gpu-0", "gpu-1"]
    run.release()
    run.finish()
    used = [(run.attempt(f"gpu-{n}") / "job.out").read_text().strip() for n in range(3)]
    assert sorted(used[:2]) == ["0", "1"]
    assert used[2] in used[:2]


def test_jobs_share_the_memory_of_a_host(lab: Lab, any_channel: str):
    jobs = [waiting_job(f"large-{n}", resources={"mem": "600MB"}) for n in range(2)]
    run = RemoteRun(lab, jobs, channel=any_channel, memory=1000).start()
    run.wait_for_log("large-0 EXECUTING")
    assert "large-1 QUEUED: it needs 1 core on one node and 600 MiB of memory" in run.why("large-1"), (
        "three of four cores are free"
    )
    assert run.marks() == ["large-0"]
    run.release()
    run.finish()
    run.check_starts(["large-0", "large-1"])


def test_cancelled_jobs_end_with_their_children(lab: Lab, any_channel: str):
    stubborn = "trap '' TERM; sleep 600 & echo up > ~/up; wait; wait"
    jobs = [remote_job("stubborn", stubborn), waiting_job("other"), waiting_job("queued", numCores=4, after=["other"])]
    run = RemoteRun(lab, jobs, channel=any_channel).start()
    wait_for((lab.wizard.home / "up").exists, what="the job")
    run.qcg_pm("-p", run.run_dir.name, "cancel", "stubborn", "queued")
    run.wait_for_states({"stubborn": "CANCELED", "queued": "CANCELED"}, 30)
    wait_for(lambda: not any("sleep 600" in str(one) for one in lab.wizard.processes()), what="the end of the child")
    run.release()
    assert run.wait() == 1
    assert run.states()["other"] == "SUCCEED"


def test_a_wall_time_is_kept_on_the_host_while_nobody_is_connected(lab: Lab, any_channel: str):
    run = RemoteRun(lab, [remote_job("long", "sleep 600", wt="3s")], channel=any_channel).start()
    run.wait_for_marks(1)
    run.kill()
    wait_for(lambda: "ENDED" in run.status("long"), what="the end of the job")
    run.start()
    assert run.wait() == 1
    assert run.states() == {"long": "FAILED"}
    run.check_starts(["long"])


def test_a_shared_file_system_gets_no_files(lab: Lab, any_channel: str):
    """The keep shows the home directory of citadel: sources are there already."""
    lab.record_commands()
    lab.citadel.write("project/data/one", "text")
    settings = {"install": ["data"], "retrieve": "always"}
    run = RemoteRun(lab, [remote_job("one", host="keep")], channel=any_channel, hosts={"keep": settings}).start()
    run.finish()
    assert run.marks(lab.keep) == ["one"]
    assert lab.recorded("rsync") == []


def test_listed_files_are_installed_before_the_first_job(lab: Lab, any_channel: str):
    lab.citadel.write("project/data/deep/one", "text")
    lab.citadel.write("project/secret", "not listed")
    look = remote_job("look", 'cat "$OLDPWD"/data/deep/one 2>/dev/null || cat ~/qcg-run/x/data/deep/one')
    run = RemoteRun(lab, [look], channel=any_channel, install=["data"]).start()
    run.finish()
    assert (run.attempt("look") / "job.out").read_text() == "text"
    assert not (run.far_directory() / "secret").exists()


def test_hundreds_of_jobs_need_one_login(lab: Lab, channel: str):
    names = [f"job-{number}" for number in range(201)]
    run = RemoteRun(lab, map(remote_job, names), channel=channel, cores=20).start()
    run.finish()
    run.check_starts(names)
    assert lab.wizard.logins() <= 2


def test_jobs_of_two_hosts_are_submitted_and_polled_with_one_call_for_each_host(lab: Lab):
    lab.record_commands()
    jobs = [waiting_job(f"{host}-{n}", host=host) for host in ("wizard", "tower") for n in range(4)]
    run = RemoteRun(lab, jobs, channel="one-shot", hosts={"wizard": {}, "tower": {}}).start()
    run.wait_for_marks(4)
    run.wait_for_marks(4, lab.tower)
    before = len(_times_of(lab, "jobs-poll"))
    wait_for(lambda: len(_times_of(lab, "jobs-poll")) > before + 12, what="polls")
    for host in ("wizard", "tower"):
        assert len(_times_of(lab, "jobs-submit", host)) <= 2
        times = _times_of(lab, "jobs-poll", host)
        # With a call for each of the four jobs, most calls would follow another one at once.
        assert median(after - time for time, after in pairwise(times)) > 0.4, times
    run.release()
    run.release(lab.tower)
    run.finish()


def _times_of(lab: Lab, sub_command: str, host: str = "") -> list[float]:
    """The times at which this sub-command was called, on one host or on all."""
    calls = [call for call in lab.recorded("ssh") if f" {sub_command} " in call.argv[-1]]
    return [call.time for call in calls if host in call.argv[-2]]


def test_cancelled_jobs_of_two_hosts_end_with_their_children_and_are_not_repeated(lab: Lab, channel: str):
    """Running and queued jobs are cancelled with one command; other jobs continue."""
    children = "trap '' TERM; sleep 600 & echo up >> ~/up; wait; wait"
    jobs = [
        remote_job(f"{name}-{host}", children, host=host, retry=3, numCores=cores)
        for host in ("wizard", "tower")
        for name, cores in (("running", 3), ("queued", 4))
    ]
    jobs.append(waiting_job("other"))
    run = RemoteRun(lab, jobs, channel=channel, hosts={"wizard": {}, "tower": {}}).start()
    wait_for(lambda: lab.wizard.read("up") and lab.tower.read("up"), what="the jobs")
    run.qcg_pm("-p", run.run_dir.name, "kill", "running-*", "queued-*")
    names = [f"{name}-{host}" for host in ("wizard", "tower") for name in ("running", "queued")]
    run.wait_for_states(dict.fromkeys(names, "CANCELED"), 30)
    left = [one for host in (lab.wizard, lab.tower) for one in host.processes() if "sleep 600" in str(one)]
    assert left == [], "reported before the children have ended"
    run.release()
    assert run.wait() == 1
    assert run.states()["other"] == "SUCCEED"
    run.check_starts(["running-wizard", "running-tower", "other"], lab.wizard, lab.tower)
    run.check_nothing_left(lab.wizard, lab.tower)
