"""Commands of the far side, each a process of its own."""

from __future__ import annotations

import io
import os
import signal
import stat
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from qcg.pilotjob.host.records import Usage
from tests.host.remote.far_side import INSTANCE, LOG, FarSide, alive, encode, launch, script, until

WAITING = "echo $$ > pid; until test -e ../go; do sleep 0.02; done"


def pid_of(far: FarSide, name: str) -> int:
    path = far.run_dir / "work/1" / name / "pid"
    return int(until(lambda: path.exists() and path.read_text(), f"the start of {name}"))


def test_jobs_run_and_their_ends_are_polled(far: FarSide) -> None:
    assert far.submit(launch("1", "true"), script("2", "exit 3")) == {"1": "accepted", "2": "accepted"}
    first, second = far.ended("1", "2")
    assert (first[1], first[2]) == (0, "exit")
    assert (second[1], second[2]) == (3, "exit")


def test_the_run_directory_has_the_documented_layout(far: FarSide) -> None:
    far.submit(script("1", "echo out; echo err >&2; pwd > here", name="a"))
    far.ended("1")
    far.submit(script("2", "true", name="a", number=2))
    far.ended("2")
    assert os.readlink(far.log) == LOG
    jobs = far.run_dir / LOG / "job/1/a"
    assert os.readlink(jobs / "NN") == "02"
    assert sorted(path.name for path in (jobs / "01").iterdir()) == ["job", "job.err", "job.out", "job.status"]
    assert (jobs / "01/job.out").read_text() == "out\n"
    assert (jobs / "01/job.err").read_text() == "err\n"
    assert (far.run_dir / "work/1/a/here").read_text() == f"{far.run_dir}/work/1/a\n"
    assert os.access(jobs / "01/job", os.X_OK)
    assert (far.run_dir / "share/cycle").is_dir()
    for path in (far.home / "qcg-run", far.run_dir, far.service, jobs, jobs / "01"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_the_script_of_an_attempt_runs_as_the_job_did(far: FarSide) -> None:
    far.submit(launch("1", "/bin/sh", "-c", 'echo "$GREETING" "$0" > said', "it's", env={"GREETING": "a 'b'\n c"}))
    far.ended("1")
    said = far.run_dir / "work/1/job-1/said"
    before = said.read_text()
    said.unlink()
    subprocess.run([far.log / "job/1/job-1/NN/job"], check=True)
    assert said.read_text() == before == "a 'b'\n c it's\n"


def test_the_status_file_has_the_whole_life_of_an_attempt(far: FarSide) -> None:
    far.submit(script("1", "exit 3"), script("2", "kill -9 $$"))
    far.ended("1", "2")
    status = far.status("1/job-1/NN")
    assert list(status)[:6] == ["ATTEMPT", "RUN", "HOST", "BOOT", "BATCH_SYSTEM", "SUBMITTED"]
    assert (status["ATTEMPT"], status["RUN"], status["HOST"]) == ("1", INSTANCE, "wizard")
    assert (status["EXIT_CODE"], status["END_REASON"]) == ("3", "exit")
    assert int(status["PID"]) > 0
    assert int(status["PROCESS_START"]) > 0
    assert status["SUBMITTED"] <= status["STARTED"] <= status["ENDED"]
    assert far.status("1/job-2/NN")["SIGNAL"] == "9"
    states = far.poll(paths=["1/job-1/NN", "1/unknown/NN"])["states"]
    assert states["1/job-1/NN"]["EXIT_CODE"] == "3"
    assert states["1/unknown/NN"] == {}


def test_records_and_status_files_have_the_usage_of_an_attempt(far: FarSide) -> None:
    far.submit(script("1", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"))
    (ended,) = far.ended("1")
    usage = Usage(*ended[-1])
    assert usage.cpu > 0.001
    assert usage.memory > 0
    assert far.status("1/job-1/NN")["USAGE"] == " ".join(map(str, usage))


def test_a_memory_limit_holds_without_a_connection(far: FarSide) -> None:
    code = "import time; block = bytearray(200 << 20); time.sleep(1000)"
    far.submit(launch("1", sys.executable, "-S", "-c", code, memory=100))
    until(lambda: "ENDED" in far.status("1/job-1/NN"), "the end of the job")
    assert far.status("1/job-1/NN")["END_REASON"] == "memory"
    assert "more than the 100.0 MiB of its limit" in far.status("1/job-1/NN")["END_MESSAGE"]
    assert far.ended("1")[0][2] == "memory"


def test_a_repeated_launch_is_recognised_and_not_started_again(far: FarSide) -> None:
    job = script("1", "echo run >> ../count")
    assert far.submit(job) == {"1": "accepted"}
    assert far.submit(job) == {"1": "known"}
    far.ended("1")
    assert far.submit(job) == {"1": "known"}
    assert (far.run_dir / "work/1/count").read_text() == "run\n"


def test_the_same_launches_from_eight_commands_at_once_run_once_each(far: FarSide) -> None:
    jobs = [script(str(number), f"echo {number} >> ../count") for number in range(20)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: far.submit(*jobs), range(8)))
    far.ended(*(str(number) for number in range(20)))
    assert sorted(map(int, (far.run_dir / "work/1/count").read_text().split())) == list(range(20))
    for number in range(20):
        assert sorted(answer[str(number)] for answer in answers) == ["accepted"] + ["known"] * 7


def test_one_poisoned_launch_among_fifty_fails_alone(far: FarSide) -> None:
    jobs = [launch(str(number), "true") for number in range(50)]
    jobs[7][1] = {"not": "a list"}
    jobs[19] = launch("19", "true", name="x" * 300)
    jobs[31] = launch("31", "no-such-program")
    results = far.submit(*jobs)
    assert "argv" in results.pop("7")["error"]
    assert set(results.values()) == {"accepted"}
    ends = dict(zip(map(str, range(50)), far.ended(*map(str, range(50))), strict=True))
    bad = {id: end for id, end in ends.items() if end[2] != "exit"}
    assert {id: end[2] for id, end in bad.items()} == {"7": "unstartable", "19": "unstartable", "31": "unstartable"}
    assert "File name too long" in bad["19"][3]
    assert "no-such-program" in bad["31"][3]
    assert all(end[1] == 0 for id, end in ends.items() if id not in bad)


def test_acknowledged_records_are_not_repeated_and_their_claims_are_removed(far: FarSide) -> None:
    far.submit(launch("1", "true"))
    far.ended("1")
    assert [path.name for path in (far.service / "claims").iterdir()] == ["1"]
    (records,) = far.poll()["reports"].values()
    assert far.poll(acks={"wizard": records[-1][1]})["reports"] == {}
    assert far.poll()["reports"] == {}
    assert list((far.service / "claims").iterdir()) == []


def test_a_running_job_is_reported_as_live(far: FarSide) -> None:
    far.submit(script("1", WAITING))
    pid = pid_of(far, "job-1")
    (running,) = far.poll()["live"]
    assert running[0] == "1"
    assert running[1] == pid
    assert running[3] == [["wizard", [0], []]]
    (far.run_dir / "work/1/go").touch()
    far.ended("1")
    assert far.poll()["live"] == []


def test_a_kill_ends_the_whole_process_tree(far: FarSide) -> None:
    far.submit(script("1", "setsid sh -c 'echo $$ > pid; exec sleep 1000' & wait"), script("2", "sleep 1000"))
    pid = pid_of(far, "job-1")
    done = far.call("jobs-kill", ids=["1", "2", "unknown"], how="kill", reason="cancel", message="Enough.")["done"]
    assert done == ["1", "2"]
    first, second = far.ended("1", "2")
    assert (first[2], first[3]) == ("cancel", "Enough.")
    assert second[2] == "cancel"
    assert not alive(pid)
    assert far.status("1/job-1/NN")["END_REASON"] == "cancel"


def test_waiting_jobs_of_a_lane_are_retracted_and_running_ones_are_not(far: FarSide) -> None:
    far.submit(script("1", WAITING), launch("2", "true", lane="1"), launch("3", "true", lane="1"))
    pid_of(far, "job-1")
    far.call("jobs-kill", ids=["1", "3"], how="retract")
    (far.run_dir / "work/1/go").touch()
    first, second, third = far.ended("1", "2", "3")
    assert (first[2], second[2], third[2]) == ("exit", "exit", "closed")
    assert second[5] >= first[0]


def test_a_signal_reaches_jobs_that_handle_it(far: FarSide) -> None:
    far.submit(script("1", "trap 'exit 7' USR1; echo $$ > pid; while :; do sleep 0.02; done"))
    pid_of(far, "job-1")
    far.call("jobs-kill", ids=["1"], how="signal", signal=int(signal.SIGUSR1))
    assert far.ended("1")[0][1] == 7


def test_a_wall_time_holds_without_a_connection(far: FarSide) -> None:
    far.submit(launch("1", "sleep", "1000", wall_time=0.2))
    until(lambda: "ENDED" in far.status("1/job-1/NN"), "the end of the job")
    assert far.status("1/job-1/NN")["END_REASON"] == "timeout"
    assert far.ended("1")[0][2] == "timeout"


def test_jobs_of_a_killed_supervisor_are_lost_and_others_run_afterwards(far: FarSide) -> None:
    far.submit(script("1", WAITING), launch("2", "true", lane="1"))
    pid = pid_of(far, "job-1")
    os.kill(far.supervisor(), signal.SIGKILL)
    assert far.submit(launch("3", "true")) == {"3": "accepted"}
    first, second, third = far.ended("1", "2", "3")
    assert (first[2], second[2], third[2]) == ("lost", "closed", "exit")
    until(lambda: not alive(pid), "the end of the job")
    assert far.submit(script("1", WAITING)) == {"1": "known"}


def test_a_poll_finds_jobs_whose_supervisor_was_killed(far: FarSide) -> None:
    far.submit(script("1", WAITING))
    pid_of(far, "job-1")
    os.kill(far.supervisor(), signal.SIGKILL)
    assert far.ended("1")[0][2] == "lost"


def test_a_claim_without_content_is_of_a_crash_and_its_attempt_lost(far: FarSide) -> None:
    (far.service / "claims/1").touch(mode=0o600)
    assert far.ended("1")[0][2] == "lost"
    assert far.submit(launch("1", "true")) == {"1": "known"}


def test_a_reused_pid_is_neither_believed_nor_killed(far: FarSide, tmp_path: Path) -> None:
    far.submit(script("1", "echo $$ > pid; sleep 1000"))
    pid_of(far, "job-1")
    supervisor = far.supervisor()
    os.kill(supervisor, signal.SIGKILL)
    with subprocess.Popen(["sleep", "1000"]) as innocent:
        ledger = far.service / "wizard.ledger"
        pid = pid_of(far, "job-1")
        ledger.write_text(ledger.read_text().replace(f",{pid},", f",{innocent.pid},"))
        assert far.ended("1")[0][2] == "lost"
        assert innocent.poll() is None
        innocent.kill()


def test_a_stale_epoch_is_refused_and_starts_nothing(far: FarSide) -> None:
    old = far.epoch
    far.init()
    assert far.epoch is not None
    assert old is not None
    assert far.epoch > old
    for do in ("jobs-submit", "jobs-poll", "jobs-kill"):
        reply, _ = far.raw_call(do, launches=[launch("1", "true")], ids=[], epoch=old)
        assert (reply["ok"], reply["code"]) == (False, "stale-epoch")
    assert far.poll()["live"] == []


def test_a_launch_without_an_epoch_is_refused(far: FarSide) -> None:
    far.epoch = None
    reply, _ = far.raw_call("jobs-submit", launches=[launch("1", "true")])
    assert (reply["ok"], reply["code"]) == (False, "stale-epoch")


def test_the_directory_of_another_run_is_refused(far: FarSide) -> None:
    reply, _ = far.raw_call("remote-init", instance="other", uuid="u", log=LOG)
    assert (reply["ok"], reply["code"]) == (False, "other-run")
    assert str(far.run_dir) in reply["error"]


def test_the_directory_of_another_host_of_the_run_is_refused_until_that_one_is_tidied_up(far: FarSide) -> None:
    far.init(host="cluster")
    assert far.init(host="cluster")["epoch"] > 0
    reply, _ = far.raw_call("remote-init", instance=far.instance, host="login", uuid="u", log=LOG)
    assert (reply["ok"], reply["code"]) == (False, "other-host")
    assert "for the host cluster, which has the same files" in reply["error"]
    assert "give login a `directory` of its own" in reply["error"]
    far.call("remote-tidy", remove=False)
    far.init(host="login")


def test_a_shared_file_system_is_recognised_by_its_uuid(far: FarSide) -> None:
    assert far.init(uuid="random")["shared"] is False
    assert far.init(uuid="random")["shared"] is False
    (far.service / "uuid").write_text("random\n")
    assert far.init(uuid="random")["shared"] is True
    assert far.init(uuid="new")["shared"] is False


def test_init_describes_the_host(far: FarSide) -> None:
    far.submit(launch("1", "true"))
    far.ended("1")
    reply = far.init()
    assert reply["hostname"] == "wizard"
    assert reply["run_dir"] == str(far.run_dir)
    assert reply["home"] == str(far.home)
    assert reply["cpus"] >= 1
    assert reply["memory"] > 100
    assert reply["ledgers"] == {"wizard": 2}
    assert reply["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def archive(**files: str) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as writer:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            writer.addfile(entry, io.BytesIO(text.encode()))
    return content.getvalue()


def test_service_files_are_private_and_removed_by_tidy(far: FarSide) -> None:
    far.call("remote-init", archive(contact="address", keys="secret"), instance=INSTANCE, log=LOG)
    assert (far.service / "keys").read_text() == "secret"
    assert stat.S_IMODE((far.service / "keys").stat().st_mode) == 0o600
    far.epoch = None
    far.call("remote-tidy", remove=False)
    assert not (far.service / "contact").exists()
    assert not (far.service / "keys").exists()
    assert (far.service / "instance").exists()


def test_service_files_cannot_leave_their_directory(far: FarSide) -> None:
    for name in ("../x", "epoch", "wizard.ledger", "/tmp/x"):
        reply, _ = far.raw_call("remote-init", archive(**{name: "x"}), instance=INSTANCE, log=LOG)
        assert (reply["ok"], reply["code"]) == (False, "refused")


def test_tidy_removes_records_only_when_no_job_is_left(far: FarSide) -> None:
    far.submit(script("1", WAITING))
    pid_of(far, "job-1")
    assert far.call("remote-tidy", remove=True)["removed"] is False
    (far.run_dir / "work/1/go").touch()
    far.ended("1")
    # It has ended the idle supervisor within the few seconds that it waits for that.
    assert far.call("remote-tidy", remove=True)["removed"] is True
    assert list(far.service.glob("*.ledger")) == []
    assert far.supervisor_pids() == []
    assert (far.log / "job/1/job-1/NN/job.status").exists()


def test_the_directory_of_an_ended_run_is_removed_and_nothing_else(far: FarSide, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    far.submit(script("1", WAITING + f"; ln -s {elsewhere} ../link; touch result"))
    pid_of(far, "job-1")
    reply, _ = far.raw_call("remote-tidy", purge=INSTANCE)
    assert "may still be running" in reply["error"]
    (far.run_dir / "work/1/go").touch()
    far.ended("1")
    for other in ("another", ""):
        reply, _ = far.raw_call("remote-tidy", purge=other)
        assert (reply["ok"], reply["code"]) == (False, "other-run")
    assert (far.run_dir / "work/1/job-1/result").exists()
    (far.home / "qcg-run/mine").touch()
    assert far.call("remote-tidy", purge=INSTANCE)["removed"] is True
    assert not far.run_dir.exists()
    assert (elsewhere / "kept").exists()
    assert (far.home / "qcg-run/mine").exists()
    reply, _ = far.raw_call("remote-tidy", purge=INSTANCE)
    assert (reply["ok"], reply["code"]) == (False, "absent")


def test_the_directory_of_an_earlier_job_of_the_same_name_is_moved_aside(far: FarSide) -> None:
    far.submit(script("1", "echo first", name="a"))
    far.ended("1")
    far.submit(script("2", "echo second", name="a"))
    far.ended("2")
    jobs = far.log / "job/1/a"
    assert (jobs / "NN/job.out").read_text() == "second\n"
    assert (jobs / "01.old-1/job.out").read_text() == "first\n"


def test_banners_and_bad_requests_are_answered_in_sentences(far: FarSide) -> None:
    with far.popen("jobs-poll") as process:
        out, err = process.communicate(b"hello\n")
    assert out == b""
    assert b"no frame" in err
    assert b"Traceback" not in err
    with far.popen("jobs-poll") as process:
        out, err = process.communicate(encode({"do": "jobs-poll", "n": 1}))
    assert b"marker" in err
    with far.popen("jobs-poll") as process:
        out, err = process.communicate(encode(far.request("jobs-kill")))
    assert out == b""
    assert b"The request is 'jobs-kill', and the command jobs-poll." in err


def test_a_command_before_init_says_what_is_missing(tmp_path: Path) -> None:
    reply, _ = FarSide(tmp_path).raw_call("jobs-poll")
    assert not reply["ok"]
    assert "remote-init has to come first" in reply["error"]


def test_a_message_never_fails_a_job(far: FarSide) -> None:
    text = "set -e; rm -rf $QCG_PM_REMOTE_RUN/.service/messages; mkdir $QCG_PM_REMOTE_RUN/.service/messages"
    far.submit(script("1", text + "; $QCG_PM_REMOTE message $QCG_PM_REMOTE_RUN lost 2>err; echo survived"))
    assert far.ended("1")[0][1] == 0
    assert (far.log / "job/1/job-1/NN/job.out").read_text() == "survived\n"
    assert "was not stored" in (far.run_dir / "work/1/job-1/err").read_text()
    assert far.status("1/job-1/NN")["MESSAGE"].endswith("|lost")


def test_a_message_outside_of_a_job_is_refused_without_failing(far: FarSide) -> None:
    with far.popen("message", "hello") as process:
        _, err = process.communicate()
    assert process.returncode == 0
    assert b"only a job of the run" in err


def test_a_gate_admits_sub_commands_by_name(far: FarSide) -> None:
    request = far.request("jobs-kill", ids=[])
    environment = {**far.environment, "QCG_PM_GATE_ADMITS": "jobs-poll,remote-serve"}
    command = [*far.command, "remote-serve", "qcg-run/test"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        out, _ = process.communicate(encode(request))
    assert b'"code":"refused"' in out
    assert b"does not admit jobs-kill" in out
