"""One channel that stays open: it answers requests, and sends new records."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from qcg.pilotjob.host.remote.frames import request_frame
from tests.host.remote.far_side import TIMEOUT, FarSide, alive, channel, launch, script, until


def test_the_end_of_a_job_arrives_by_itself(far: FarSide) -> None:
    with channel(far) as open_channel:
        open_channel.init()
        report = open_channel.call("jobs-poll", acks={}, full=True)
        assert (report["reports"], report["live"]) == ({}, [])
        assert open_channel.call("jobs-submit", launches=[script("1", "exit 4")])["results"] == {"1": "accepted"}
        open_channel.until(lambda: "1" in open_channel.ends(), "the end of the job")
        assert open_channel.ends()["1"][1:3] == [4, "exit"]
        assert {event["ledger"] for event in open_channel.events} == {"wizard"}


def test_a_watcher_of_the_supervisor_is_woken_at_once(far: FarSide) -> None:
    """Otherwise records from just before that request would arrive a second later."""
    far.init()
    far.submit(script("1", "sleep 600"))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT)
        connection.connect(str(far.service / "wizard.sock"))
        connection.sendall(request_frame({"do": "watch"}))
        assert connection.recv(1) == b"\n"


def test_records_come_once_and_again_with_a_full_report(far: FarSide) -> None:
    with channel(far) as open_channel:
        open_channel.init()
        open_channel.call("jobs-poll", acks={}, full=True)
        open_channel.call("jobs-submit", launches=[launch("1", "true")])
        open_channel.until(lambda: "1" in open_channel.ends(), "the end of the job")
        assert open_channel.call("jobs-poll", acks={}, full=False)["reports"] == {}
        (records,) = open_channel.call("jobs-poll", acks={}, full=True)["reports"].values()
        assert [record[2][0] for record in records] == ["1"]
        last = records[-1][1]
        open_channel.call("jobs-poll", acks={"wizard": last}, full=False)
        assert open_channel.call("jobs-poll", acks={}, full=True)["reports"] == {}
        assert list((far.service / "claims").iterdir()) == []


def test_a_channel_ends_when_its_manager_is_gone_and_the_job_continues(far: FarSide) -> None:
    with channel(far) as first:
        first.init()
        first.call("jobs-poll", acks={}, full=True)
        first.call("jobs-submit", launches=[script("1", "until test -e ../go; do sleep 0.05; done")])
        first.close()
        assert first.process.returncode == 0
    with channel(far) as second:
        second.init()
        report = second.call("jobs-poll", acks={}, full=True)
        assert [running[0] for running in report["live"]] == ["1"]
        (far.run_dir / "work/1/go").touch()
        second.until(lambda: "1" in second.ends(), "the end of the job")


def test_a_channel_ends_when_another_one_has_replaced_it(far: FarSide) -> None:
    with channel(far) as old:
        old.init()
        old.call("jobs-poll", acks={}, full=True)
        epoch = far.epoch
        with channel(far) as new:
            new.init()
            stale, _ = old.raw_call("jobs-submit", launches=[launch("1", "true")], epoch=epoch)
            assert (stale["ok"], stale["code"]) == (False, "stale-epoch")
            assert old.process.wait(10) == 0
            assert new.call("jobs-poll", acks={}, full=True)["live"] == []


def test_a_killed_supervisor_is_replaced_and_its_jobs_are_reported_lost(far: FarSide) -> None:
    with channel(far) as open_channel:
        open_channel.init()
        open_channel.call("jobs-poll", acks={}, full=True)
        open_channel.call("jobs-submit", launches=[script("1", "echo $$ > pid; sleep 1000")])
        pid_file = far.run_dir / "work/1/job-1/pid"
        pid = int(until(lambda: pid_file.exists() and pid_file.read_text(), "the start of the job"))
        os.kill(far.supervisor(), signal.SIGKILL)
        open_channel.until(lambda: "1" in open_channel.ends(), "the record of the lost job")
        assert open_channel.ends()["1"][2] == "lost"
        assert "The supervisor on wizard that ran this job was killed" in open_channel.ends()["1"][3]
        until(lambda: not alive(pid), "the end of the process")
        assert far.status("1/job-1/NN")["END_REASON"] == "lost"
        assert any(event["event"] == "notice" for event in open_channel.events)


def test_a_channel_lists_and_shows_logs(far: FarSide) -> None:
    with channel(far) as open_channel:
        open_channel.init()
        open_channel.call("jobs-poll", acks={}, full=True)
        open_channel.call("jobs-submit", launches=[script("1", "echo output")])
        open_channel.until(lambda: "1" in open_channel.ends(), "the end of the job")
        listed = open_channel.call("cat-log", directory="1/job-1/NN", mode="list")
        assert listed["files"] == ["job", "job.err", "job.out", "job.status"]
        reply, content = open_channel.raw_call("cat-log", directory="1/job-1/NN", mode="cat", file="job.out")
        assert reply["ok"]
        assert content == b"output\n"
        refused, _ = open_channel.raw_call("cat-log", directory="1/job-1/NN", mode="tail")
        assert refused["code"] == "refused"


def test_messages_of_jobs_are_events_and_are_repeated_until_acknowledged(far: FarSide) -> None:
    with channel(far) as open_channel:
        open_channel.init()
        open_channel.call("jobs-poll", acks={}, full=True)
        text = "$QCG_PM_REMOTE message $QCG_PM_REMOTE_RUN half   'of it'"
        open_channel.call("jobs-submit", launches=[script("1", text)])
        open_channel.until(lambda: "1" in open_channel.ends(), "the end of the job")
        messages = [event for event in open_channel.events if event["event"] == "message"]
        assert [(event["id"], event["text"]) for event in messages] == [("1", "half of it")]
        number = messages[0]["number"]
    again = far.poll()["messages"]
    assert [message[1] for message in again] == ["1"]
    assert far.poll(acks={"messages": number})["messages"] == []


def test_a_message_arrives_before_the_end_of_its_job(far: FarSide) -> None:
    """Also when the channel reads both at once."""
    with channel(far) as open_channel:
        open_channel.init()
        open_channel.call("jobs-poll", acks={}, full=True)
        go = far.home / "go"
        text = f"until test -e {go}; do sleep 0.05; done; $QCG_PM_REMOTE message $QCG_PM_REMOTE_RUN half"
        open_channel.call("jobs-submit", launches=[script("1", text)])
        open_channel.until(lambda: open_channel.records(), "the start of the job")
        open_channel.call("beat")
        os.kill(open_channel.process.pid, signal.SIGSTOP)
        go.touch()
        ledger = far.service / "wizard.ledger"
        until(lambda: b'"e"' in ledger.read_bytes(), "the end of the job")
        os.kill(open_channel.process.pid, signal.SIGCONT)
        open_channel.until(lambda: "1" in open_channel.ends(), "the end of the job")
        assert [event["event"] for event in open_channel.events] == ["records", "message", "records"]


def test_a_supervisor_ends_two_seconds_after_its_last_job(far: FarSide) -> None:
    with channel(far) as open_channel:
        open_channel.init()
        open_channel.call("jobs-poll", acks={}, full=True)
        open_channel.call("jobs-submit", launches=[launch("1", "true")])
        open_channel.until(lambda: "1" in open_channel.ends(), "the end of the job")
        ended_at = open_channel.ends()["1"][0]
        until(lambda: not far.supervisor_pids(), "the end of the supervisor")
        assert time.time() - ended_at > 1.0
        assert not Path(far.service / "wizard.sock").exists()
        open_channel.call("jobs-submit", launches=[launch("2", "true")])
        open_channel.until(lambda: "2" in open_channel.ends(), "the end of a job under another supervisor")


def test_a_ledger_stays_short_when_its_records_are_acknowledged(far: FarSide) -> None:
    environment = {f"LONG_{number}": "x" * 100 for number in range(3)}
    with channel(far) as open_channel:
        open_channel.init()
        open_channel.call("jobs-poll", acks={}, full=True)
        ledger = far.service / "wizard.ledger"
        # Each record repeats the grant, so that few jobs fill a long ledger.
        grant = [["wizard", list(range(5000)), []]]
        for number in range(60):
            job = launch(str(number), "true", grant=grant, env=environment)
            open_channel.call("jobs-submit", launches=[job])
            open_channel.until(lambda id=str(number): id in open_channel.ends(), "the end of the job")
            open_channel.call("jobs-poll", acks={"wizard": open_channel.records()[-1][1]}, full=False)
        written = 60 * 3 * len(str(grant))
        until(lambda: ledger.stat().st_size < 2 << 20, "a compacted ledger")
        assert written > 4 << 20
        assert len(open_channel.ends()) == 60
        assert open_channel.call("jobs-poll", acks={}, full=True)["reports"] == {}


@pytest.mark.timed
def test_a_channel_ends_when_its_manager_is_silent(far: FarSide) -> None:
    code = (
        "import sys; from qcg.pilotjob.host.remote import serve; serve.SILENCE = 0.5; sys.exit(serve.main(sys.argv[2]))"
    )
    impatient = FarSide(far.home, command=[sys.executable, "-c", code])
    with channel(impatient) as open_channel:
        open_channel.init()
        began = time.monotonic()
        for _ in range(5):
            open_channel.call("beat")
            time.sleep(0.2)
        assert open_channel.process.wait(10) == 0
        assert time.monotonic() - began > 1.0


def test_ends_arrive_after_the_run_directory_was_removed(far: FarSide) -> None:
    """The job itself removes it, or a user does once the start was reported and acknowledged."""
    go = far.home / "go"
    with channel(far) as opened:
        opened.init()
        opened.call("jobs-poll", acks={}, full=True)
        up = far.home / "up"
        # Not while the supervisor still makes the directories of the other job.
        removal = f"until test -e {up}; do sleep 0.05; done; until rm -rf {far.run_dir}; do :; done"
        late = f"touch {up}; until test -e {go}; do sleep 0.05; done; exit 3"
        opened.call("jobs-submit", launches=[script("1", removal), script("2", late)])
        opened.until(lambda: {"1"} == set(opened.ends()), "the end of the job that has removed the directory")
        assert not far.run_dir.exists()
        opened.until(lambda: "2" in [record[2][0] for record in opened.records()], "the start of the other job")
        opened.call("beat")
        opened.call("jobs-poll", acks={"wizard": opened.records()[-1][1]}, full=False)
        go.touch()
        opened.until(lambda: "2" in opened.ends(), "the end of the other job")
        assert [opened.ends()[id][1:3] for id in ("1", "2")] == [[0, "exit"], [3, "exit"]]
        assert opened.process.wait(TIMEOUT) == 2
        assert opened.process.stderr is not None
        assert opened.process.stderr.read() == f"The run directory {far.run_dir} was removed on this host.\n".encode()
    assert not far.supervisor_pids()
