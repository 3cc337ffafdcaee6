"""Jobs of a remote host that go through its batch system, here a stub."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.host.records import Ended, EndReason, Launch, NodeGrant, RemotePart, RemoteRequest, Started
from qcg.pilotjob.host.remote import batch_jobs, status_file
from qcg.pilotjob.host.remote.batch_jobs import BatchJobs
from qcg.pilotjob.host.remote.claims import Claims
from qcg.pilotjob.host.remote.errors import STALE_EPOCH, CommandError
from qcg.pilotjob.host.remote.layout import Layout, write_text
from qcg.pilotjob.host.remote.ledger_view import RunView
from tests.support.stub_queue import StubQueue
from tests.support.waiting import wait_for

RUN_JOB = "import sys; from qcg.pilotjob.host.remote import run_job; sys.exit(run_job.main(sys.argv[-1]))"
COMMAND = [sys.executable, "-c", RUN_JOB]
REQUEST = RemoteRequest(0, 2, 0, 0, None)
GRANT: list[NodeGrant] = [("cluster", (0,), ())]


HOSTS: list[Host] = []
"""The hosts of the current test."""


class Host:
    """A run directory on a host with a batch system."""

    def __init__(self, directory: Path, stub: StubQueue, **described: Any) -> None:
        self.layout = Layout(str(directory))
        self.layout.make()
        if not os.path.lexists(self.layout.log):
            os.symlink("log.1", self.layout.log)
        self.log: list[str] = []
        write_text(self.layout.instance, "run-1\n")
        write_text(self.layout.batch, json.dumps(stub.described(**described)))
        self.jobs = BatchJobs(self.layout, COMMAND, self.log.append)
        self.view = RunView(self.layout)
        HOSTS.append(self)

    def submit(self, *launches: Launch) -> dict[str, Any]:
        return self.jobs.submit(request(*launches))

    def order_end(self, name: str, message: str) -> list[str]:
        return self.jobs.take_order({"ids": [f"{name}:1.1"], "reason": EndReason.CANCEL, "message": message})

    def poll(self) -> list[Any]:
        """The new records after a poll of status files and of the queue."""
        self.jobs.poll()
        return [body for _, body in self.view.read().get("batch", [])]

    def directory(self, name: str, number: int = 1) -> Path:
        return Path(self.layout.run_dir, "log.1", "job", "1", name, f"{number:02}")

    def status(self, name: str) -> dict[str, Any]:
        return status_file.read(str(self.directory(name))) or {}


@pytest.fixture(autouse=True)
def closing_hosts() -> Iterator[None]:
    yield
    while HOSTS:
        HOSTS.pop().jobs.close()


@pytest.fixture
def stub(tmp_path: Path) -> StubQueue:
    return StubQueue(tmp_path / "queue")


@pytest.fixture
def host(tmp_path: Path, stub: StubQueue) -> Host:
    return Host(tmp_path / "run", stub)


def request(*launches: Launch) -> dict[str, Any]:
    """A request in the form in which it arrives."""
    return json.loads(json.dumps({"do": "jobs-submit", "epoch": 1, "launches": launches}))


def launch(name: str, *argv: str, asks: RemoteRequest = REQUEST, **fields: Any) -> Launch:
    directives = fields.pop("directives", {})
    part = RemotePart(f"job/1/{name}/01", "1", name, 1, [], [], directives, asks)
    words = list(argv) or ["true"]
    blank = Launch(f"{name}:1.1", words, {}, [], f"work/1/{name}", None, None, None, None, None, False, GRANT)
    return blank._replace(remote=part, **fields)


def ends(records: list[Any]) -> list[Ended]:
    return [body for body in records if isinstance(body, Ended)]


def test_a_job_runs_as_the_batch_system_starts_it(host: Host, stub: StubQueue):
    assert host.submit(launch("a", "sh", "-c", "echo $GREETING; pwd; exit 3", env={"GREETING": "hello"})) == {
        "a:1.1": "accepted"
    }
    (job,) = stub.jobs()
    assert host.poll() == []
    assert [running.id for running in host.view.live()] == ["a:1.1"]
    stub.run(job["id"])
    started, ended = host.poll()
    assert isinstance(started, Started)
    assert (started.id, started.grant) == ("a:1.1", GRANT)
    assert (ended.exit_code, ended.reason, ended.pid, ended.grant) == (3, EndReason.EXIT, started.pid, GRANT)
    assert host.directory("a").joinpath("job.out").read_text() == f"hello\n{host.layout.run_dir}/work/1/a\n"
    assert host.view.live() == []
    status = host.status("a")
    assert (status["JOB_ID"], status["BATCH_SYSTEM"], status["EXIT_CODE"]) == (job["id"], "stub", "3")
    assert int(status["PROCESS_START"]) > 0
    assert status["BOOT"]


def test_directives_ask_for_what_the_job_asks_for(host: Host, stub: StubQueue):
    own = {"--partition": "big", "--exclusive": "", "-p": "two words", "--memory": "1"}
    asks = RemoteRequest(3, 2, 1, 500, 90.0)
    host.submit(launch("a", asks=asks, wall_time=90.0, directives=own), launch("b"))
    options = {job["id"]: job["options"] for job in stub.jobs()}
    first, second = options[stub.id("a")], options[stub.id("b")]
    out = f"{host.directory('a')}/job.out"
    assert first[:6] == [
        "--name=a.run-1.a_1.1",
        f"--out={out}",
        f"--err={out[:-3]}err",
        "--nodes=3",
        "--cores=2",
        "--gpus=1",
    ]
    assert first[6:] == ["--minutes=3", "--partition=big", "--exclusive", '-p "two words"', "--memory=1"]
    assert second[3:] == ["--nodes=1", "--cores=2"]


def test_a_directive_of_several_lines_is_refused(host: Host, stub: StubQueue):
    results = host.submit(launch("a", directives={"--comment": "x\n#STUB --partition=other"}), launch("b"))
    assert "has several lines" in results["a:1.1"]["error"]
    assert results["b:1.1"] == "accepted"
    (ended,) = ends(host.poll())
    assert (ended.id, ended.reason) == ("a:1.1", EndReason.UNSTARTABLE)


def test_a_directive_on_which_the_run_depends_is_refused(host: Host):
    results = host.submit(launch("a", directives={"--name": "mine"}))
    assert results["a:1.1"]["error"] == "The directive --name cannot be given, because the run depends on it."


def test_another_batch_job_with_the_same_id_is_not_adopted(host: Host, stub: StubQueue):
    host.submit(launch("a"))
    path = stub.directory / "1.job"
    path.write_text(path.read_text().replace("a.run-1", "another"))
    (ended,) = ends(host.poll())
    assert (ended.reason, ended.message[:32]) == (EndReason.LOST, "Stub does not know job 1 any mor")


def test_commands_do_not_see_variables_of_another_batch_job(
    host: Host, stub: StubQueue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("STUB_JOB", "7")
    monkeypatch.setenv("OTHER", "seen")
    host.submit(launch("a"))
    (job,) = stub.jobs()
    assert "STUB_JOB" not in job["env"]
    assert job["env"]["OTHER"] == "seen"


def test_a_job_that_the_batch_system_refuses_fails_alone(host: Host, stub: StubQueue):
    launches = [
        launch(f"j{number}", directives={"--partition": "nope"} if number == 20 else {}) for number in range(50)
    ]
    assert set(host.submit(*launches).values()) == {"accepted"}
    (ended,) = ends(host.poll())
    assert (ended.id, ended.reason) == ("j20:1.1", EndReason.UNSTARTABLE)
    assert ended.message == "Stub refused the job: stub: there is no partition nope"
    assert len(stub.jobs()) == 49
    assert len(stub.calls("submit")) == 50
    assert host.status("j20")["END_REASON"] == "unstartable"


def test_all_jobs_are_queried_with_one_command(host: Host, stub: StubQueue):
    host.submit(*[launch(f"j{number}") for number in range(20)])
    before = len(stub.calls("list"))
    assert host.poll() == []
    (words,) = stub.calls("list")[before:]
    assert len(words) == 20


def test_the_queue_is_queried_at_its_intervals_only(tmp_path: Path, stub: StubQueue):
    host = Host(tmp_path / "run", stub, submit_poll_interval=600.0, poll_interval=600.0)
    for name in ("a", "b", "c"):
        host.submit(launch(name))
        Host(tmp_path / "run", stub, submit_poll_interval=600.0).poll()
    assert len(stub.calls("list")) == 1
    asked = Path(host.layout.service, "batch.asked")
    os.utime(asked, (0, 0))
    host.poll()
    assert len(stub.calls("list")) == 2


def test_a_kill_does_not_wait_for_the_interval(tmp_path: Path, stub: StubQueue):
    host = Host(tmp_path / "run", stub, submit_poll_interval=600.0, poll_interval=600.0)
    host.submit(launch("a"))
    host.order_end("a", "")
    (ended,) = ends(host.poll())
    assert ended.reason == EndReason.CANCEL


def test_a_repeated_launch_is_recognised(host: Host, stub: StubQueue):
    host.submit(launch("a"))
    assert host.submit(launch("a")) == {"a:1.1": "known"}
    assert len(stub.jobs()) == 1
    stub.run("1")
    host.poll()
    assert host.submit(launch("a")) == {"a:1.1": "known"}
    assert len(stub.jobs()) == 1


def test_a_job_that_ended_between_two_polls_is_found(host: Host, stub: StubQueue, tmp_path: Path):
    host.submit(launch("a", "false"))
    stub.run("1")
    stub.forget("1")
    (ended,) = ends(Host(tmp_path / "run", stub).poll())
    assert (ended.exit_code, ended.reason) == (1, EndReason.EXIT)
    assert stub.calls("ended") == []


def test_acknowledged_records_are_not_reported_again(host: Host, stub: StubQueue, tmp_path: Path):
    host.submit(launch("a"), launch("b"))
    stub.run(stub.id("a"))
    host.poll()
    host.view.acknowledge({"batch": 2})
    stub.run(stub.id("b"))
    again = Host(tmp_path / "run", stub)
    assert {body.id for body in again.poll()} == {"b:1.1"}
    assert again.view.unacknowledged()["batch"][0][0] == 3


# -- submissions that are interrupted ------------------------------------------------------------------------------


def test_a_command_killed_while_it_submits_leads_to_one_execution(host: Host, stub: StubQueue, tmp_path: Path):
    stub.set("submit", "die")
    submitter = os.fork()
    if submitter == 0:
        host.submit(launch("a", "sh", "-c", "echo x >> ../count"))
        os._exit(0)
    assert os.waitpid(submitter, 0)[1] == signal.SIGKILL
    stub.clear("submit", "die")
    assert "JOB_ID" not in host.status("a")
    again = Host(tmp_path / "run", stub)
    assert again.submit(launch("a")) == {"a:1.1": "known"}
    assert len(stub.jobs()) == 1
    assert again.status("a")["JOB_ID"] == "1"
    stub.run("1")
    (ended,) = ends(again.poll())
    assert ended.exit_code == 0
    assert Path(host.layout.run_dir, "work/1/count").read_text() == "x\n"


def test_nothing_is_submitted_while_the_command_of_a_killed_process_lives(
    host: Host, stub: StubQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    stub.set("submit", "die", "2")
    stub.set("find", "answer")  # the batch job of the killed process is not in the queue yet
    submitter = os.fork()
    if submitter == 0:
        host.submit(launch("a"))
        os._exit(0)
    os.waitpid(submitter, 0)
    monkeypatch.setattr("qcg.pilotjob.host.remote.batch_submission.WAIT_FOR_OTHERS", 0.0)
    Host(tmp_path / "run", stub).poll()
    assert stub.calls("find") == []
    assert len(stub.jobs()) == 1
    stub.clear("find", "answer")

    def is_adopted() -> bool:
        Host(tmp_path / "run", stub).poll()
        return "JOB_ID" in host.status("a")

    wait_for(is_adopted, 30, "the end of the command")
    assert len(stub.jobs()) == 1


def test_a_command_killed_before_it_submits_is_replaced(host: Host, stub: StubQueue, tmp_path: Path):
    host.jobs.accept(request(launch("a")))
    assert stub.jobs() == []
    again = Host(tmp_path / "run", stub)
    assert again.poll() == []
    assert [job["name"] for job in stub.jobs()] == ["a.run-1.a_1.1"]


def test_a_claim_without_an_attempt_is_taken_over(host: Host, stub: StubQueue):
    Claims(host.layout, "batch").make("a:1.1", "/elsewhere", GRANT)
    assert host.submit(launch("a")) == {"a:1.1": "accepted"}
    assert len(stub.jobs()) == 1


def test_a_claim_without_an_attempt_is_not_live(host: Host):
    Claims(host.layout, "batch").make("a:1.1", "/elsewhere", GRANT)
    host.poll()
    assert host.view.live() == []


def test_an_attempt_submitted_twice_is_executed_once(host: Host, stub: StubQueue):
    stub.set("submit", "silent", "cannot connect to the server")
    stub.set("find", "answer")
    host.submit(launch("a", "sh", "-c", "echo x >> ../count"))
    stub.clear("submit", "silent")
    assert host.poll() == []
    assert len(stub.jobs()) == 2
    assert stub.run("2") == 0
    assert stub.run("1") == 0
    (ended,) = ends(host.poll())
    assert (ended.reason, ended.exit_code) == (EndReason.EXIT, 0)
    assert Path(host.layout.run_dir, "work/1/count").read_text() == "x\n"


def test_an_attempt_that_starts_while_it_is_submitted_again_is_not_lost(host: Host, stub: StubQueue):
    """The batch system takes it late, and lists it too late for the search."""
    stub.set("submit", "silent", "cannot connect to the server")
    stub.set("find", "answer")
    host.submit(launch("a", "sh", "-c", "echo x >> ../count; until [ -e ../go ]; do sleep 0.02; done; exit 3"))
    stub.clear("submit", "silent")
    stub.set("submit", "hang")
    again = threading.Thread(target=host.poll)
    again.start()
    wait_for(lambda: len(stub.calls("submit")) == 2, what="the second submission")
    first = stub.start("1")
    wait_for(lambda: "STARTED" in host.status("a"), what="the start of the job")
    stub.clear("submit", "hang")
    again.join()
    assert host.status("a")["JOB_ID"] == "2"
    assert stub.run("2") == 0, "it ends without a second execution"
    assert ends(host.poll()) == []
    assert [running.id for running in host.view.live()] == ["a:1.1"]
    Path(host.layout.run_dir, "work/1/go").touch()
    assert first.wait(60) == 3
    (ended,) = ends(host.poll())
    assert (ended.reason, ended.exit_code) == (EndReason.EXIT, 3)
    assert Path(host.layout.run_dir, "work/1/count").read_text() == "x\n"


def test_a_submission_without_an_answer_is_found_by_its_name(host: Host, stub: StubQueue):
    stub.set("submit", "silent", "cannot connect to the server")
    host.submit(launch("a"))
    assert "JOB_ID" not in host.status("a")
    assert host.poll() == []
    assert host.status("a")["JOB_ID"] == "1"
    assert len(stub.jobs()) == 1


def test_a_submit_command_that_was_killed_may_have_submitted_the_job(host: Host, stub: StubQueue):
    stub.set("submit", "killed")
    host.submit(launch("a"))
    assert host.jobs.problem.endswith("was killed by signal 15")
    assert host.poll() == []
    assert host.status("a")["JOB_ID"] == "1"
    assert len(stub.jobs()) == 1


def test_a_batch_system_that_cannot_be_reached_gets_the_job_when_it_is_back(host: Host, stub: StubQueue):
    stub.set("submit", "fail", "cannot connect")
    stub.set("find", "fail", "cannot connect")
    host.submit(launch("a"))
    for _ in range(5):
        assert host.poll() == []
    assert host.jobs.problem == "Stub cannot be reached: cannot connect"
    assert len(stub.calls("submit")) == 1
    stub.clear("submit", "fail")
    stub.clear("find", "fail")
    assert host.poll() == []
    assert len(stub.jobs()) == 1


def test_a_submission_that_always_fails_without_a_reason_is_given_up(host: Host, stub: StubQueue):
    stub.set("submit", "fail", "cannot connect")
    host.submit(launch("a"))
    records: list[Any] = []
    for _ in range(4):
        records += host.poll()
    (ended,) = ends(records)
    assert (ended.reason, ended.message) == (EndReason.UNSTARTABLE, "Stub cannot be reached: cannot connect")
    assert len(stub.calls("submit")) == 3


def test_a_submit_command_that_hangs_is_killed_and_others_continue(tmp_path: Path, stub: StubQueue):
    Host(tmp_path / "run", stub).submit(launch("a"))
    host = Host(tmp_path / "run", stub, timeout=2.0)
    stub.set("submit", "hang")
    host.submit(launch("b"))
    assert "had no answer in 2 s" in host.status("b")["SUBMIT_ERROR"]
    stub.run("1")
    (ended,) = ends(host.poll())
    assert (ended.id, ended.exit_code) == ("a:1.1", 0)


# -- answers of the batch system -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "text", "problem"),
    [
        ("fail", "cannot connect", "cannot be reached"),
        ("fail", "internal error 7", "internal error 7"),
        ("answer", "1 RUNNING a.run-1.a_1.1\nGARBAGE\n", "is not understood: GARBAGE"),
        ("answer", "slurmctld\x1b[31m is away\n", "is not understood"),
        ("answer", "WARNING: cannot connect\n", "cannot be reached"),
    ],
)
def test_no_job_is_lost_when_the_batch_system_cannot_be_queried(
    host: Host, stub: StubQueue, trouble: str, text: str, problem: str
):
    host.submit(launch("a"), launch("b"))
    stub.forget("1")
    stub.forget("2")
    stub.set("list", trouble, text)
    assert host.poll() == []
    assert problem in host.jobs.problem
    assert len(host.view.live()) == 2
    stub.clear("list", trouble)
    assert [ended.reason for ended in ends(host.poll())] == [EndReason.LOST, EndReason.LOST]
    assert host.jobs.problem == ""


def test_a_line_that_is_not_understood_does_not_hide_the_other_jobs(host: Host, stub: StubQueue):
    host.submit(launch("a"), launch("b"), launch("c"))
    stub.set("list", "answer", f"GARBAGE\n{stub.id('b')} CANCELLED b.run-1.b_1.1\n")
    assert [ended.id for ended in ends(host.poll())] == ["b:1.1"]
    assert "is not understood: GARBAGE" in host.jobs.problem
    # The line may be about any other job.
    assert {running.id for running in host.view.live()} == {"a:1.1", "c:1.1"}


def test_a_list_command_that_hangs_is_killed_and_ends_are_still_found(tmp_path: Path, stub: StubQueue):
    Host(tmp_path / "run", stub).submit(launch("a"), launch("b"))
    stub.run(stub.id("a"))
    host = Host(tmp_path / "run", stub, timeout=2.0)
    stub.set("list", "hang")
    assert [ended.id for ended in ends(host.poll())] == ["a:1.1"]
    assert "had no answer in 2 s" in host.jobs.problem


def test_a_missing_command_is_reported(tmp_path: Path, stub: StubQueue):
    host = Host(tmp_path / "run", stub, submit=["/no/such/sbatch", "{script}"])
    host.submit(launch("a"))
    (ended,) = ends(host.poll())
    assert ended.message == "The command /no/such/sbatch of Stub cannot be started: No such file or directory."


def test_a_job_that_the_batch_system_has_forgotten_is_lost(host: Host, stub: StubQueue):
    host.submit(launch("a"))
    stub.forget("1")
    stub.set("list", "fail", "no such job")
    (ended,) = ends(host.poll())
    assert (ended.reason, ended.exit_code, ended.pid) == (EndReason.LOST, -1, 0)
    assert ended.message == "Stub does not know job 1 any more, and its program was not started."


def test_the_accounting_gives_the_cause_of_a_forgotten_job(host: Host, stub: StubQueue):
    host.submit(launch("a"))
    stub.forget("1")
    stub.set("ended", "states", '{"1": "NODEFAIL"}')
    (ended,) = ends(host.poll())
    assert ended.message == "A node of the job failed, says Stub (state NODEFAIL)."


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        ("CANCELLED", EndReason.LOST, "cancelled in Stub by a user or an administrator"),
        ("TIMEOUT", EndReason.TIMEOUT, "at the time limit"),
        ("MEMORY", EndReason.MEMORY, "more memory"),
        ("NODEFAIL", EndReason.LOST, "A node of the job failed"),
        ("COMPLETED", EndReason.LOST, "its program was not started"),
    ],
)
def test_the_state_of_a_batch_job_that_is_over_is_the_cause(
    host: Host, stub: StubQueue, state: str, reason: str, words: str
):
    host.submit(launch("a"))
    stub.set_state("1", state)
    (ended,) = ends(host.poll())
    assert ended.reason == reason
    assert words in ended.message
    assert host.status("a")["END_REASON"] == reason


def test_the_last_output_of_a_script_that_could_not_start_is_reported(host: Host, stub: StubQueue):
    host.submit(launch("a"))
    host.directory("a").joinpath("job.err").write_text("job: 7: exec: /usr/bin/python3.9: not found\n")
    stub.set_state("1", "COMPLETED")
    (ended,) = ends(host.poll())
    assert ended.message.endswith("was not started: job: 7: exec: /usr/bin/python3.9: not found.")


# -- ends that are ordered or come from outside --------------------------------------------------------------------


def test_a_waiting_job_is_killed_in_the_queue(host: Host, stub: StubQueue):
    host.submit(launch("a"), launch("b"))
    assert host.order_end("a", "Enough.") == ["a:1.1"]
    (ended,) = ends(host.poll())
    assert (ended.id, ended.reason, ended.message) == ("a:1.1", EndReason.CANCEL, "Enough.")
    assert stub.calls("kill") == [[stub.id("a")]]
    assert sorted(job["state"] for job in stub.jobs()) == ["CANCELLED", "WAITING"]


def test_a_job_that_was_not_submitted_yet_is_ended_without_a_batch_job(host: Host, stub: StubQueue):
    host.jobs.accept(request(launch("a")))
    host.order_end("a", "")
    (ended,) = ends(host.poll())
    assert (ended.reason, ended.pid) == (EndReason.CANCEL, 0)
    assert stub.jobs() == []


def test_a_kill_that_the_batch_system_misses_is_repeated(host: Host, stub: StubQueue):
    host.submit(launch("a"))
    stub.set("kill", "fail", "cannot connect")
    host.order_end("a", "")
    assert host.poll() == []
    stub.clear("kill", "fail")
    (ended,) = ends(host.poll())
    assert ended.reason == EndReason.CANCEL


def test_a_killed_job_ends_with_its_whole_process_tree(host: Host, stub: StubQueue):
    script = "trap 'echo got it' TERM; setsid sleep 1000 & echo $! > ../child; while :; do sleep 0.1; done"
    host.submit(launch("a", "bash", "-c", script))
    runner = stub.start("1")
    child = Path(host.layout.run_dir, "work/1/child")
    wait_for(lambda: child.exists() and child.read_text(), 30, "the start of the job")
    host.order_end("a", "Enough.")
    host.poll()
    runner.send_signal(signal.SIGTERM)
    runner.wait(30)
    (ended,) = ends(host.poll())
    assert (ended.reason, ended.message, ended.exit_code) == (EndReason.CANCEL, "Enough.", -signal.SIGKILL)
    assert host.directory("a").joinpath("job.out").read_text() == "got it\n"
    assert not Path(f"/proc/{child.read_text().strip()}").exists()


def test_a_job_that_the_batch_system_ends_is_lost_with_its_cause(host: Host, stub: StubQueue):
    host.submit(launch("a", "sleep", "1000"))
    runner = stub.start("1")
    wait_for(lambda: "STARTED" in host.status("a"), 30, "the start of the job")
    runner.send_signal(signal.SIGTERM)
    runner.wait(30)
    host.jobs.update(ask=False)
    assert host.jobs.asks_why
    assert ends(host.poll()) == [], "the batch system has not settled its state yet"
    stub.set_state("1", "CANCELLED")
    (ended,) = ends(host.poll())
    assert (ended.reason, ended.exit_code) == (EndReason.LOST, -signal.SIGTERM)
    assert "cancelled in Stub by a user or an administrator" in ended.message


def test_a_job_that_the_batch_system_ended_is_reported_without_cause_when_it_is_unknown(
    host: Host, stub: StubQueue, monkeypatch: pytest.MonkeyPatch
):
    host.submit(launch("a", "sleep", "1000"))
    runner = stub.start("1")
    wait_for(lambda: "STARTED" in host.status("a"), 30, "the start of the job")
    runner.send_signal(signal.SIGTERM)
    runner.wait(30)
    monkeypatch.setattr(batch_jobs, "WAIT_FOR_STATE", 0.0)
    (ended,) = ends(host.poll())
    assert (ended.reason, ended.message) == (EndReason.LOST, "Stub ended the batch job.")


def test_the_wall_time_is_enforced_on_the_compute_node(host: Host, stub: StubQueue):
    host.submit(launch("a", "sleep", "1000", wall_time=0.5))
    stub.run("1")
    (ended,) = ends(host.poll())
    assert (ended.reason, ended.message) == (EndReason.TIMEOUT, "The job exceeded its wall time of 0.5 s.")


def test_a_program_that_cannot_be_started_is_the_reason_of_the_end(host: Host, stub: StubQueue):
    host.submit(launch("a", "no-such-program"))
    assert stub.run("1") == 1
    (ended,) = ends(host.poll())
    assert (ended.reason, ended.pid) == (EndReason.UNSTARTABLE, 0)
    assert "no-such-program is not found on PATH" in ended.message


def test_a_batch_job_that_is_queued_again_does_not_run_twice(host: Host, stub: StubQueue):
    host.submit(launch("a", "sh", "-c", "echo x >> ../count; exec sleep 1000"))
    runner = stub.start("1", start_new_session=True)
    wait_for(lambda: "STARTED" in host.status("a"), 30, "the start of the job")
    os.killpg(runner.pid, signal.SIGKILL)
    os.kill(int(host.status("a")["PID"]), signal.SIGKILL)
    runner.wait(30)
    assert stub.run("1") == 0
    (ended,) = ends(host.poll())
    assert ended.reason == EndReason.LOST
    assert "a second time" in ended.message
    assert Path(host.layout.run_dir, "work/1/count").read_text() == "x\n"


def test_changes_are_announced_in_one_directory(host: Host, stub: StubQueue):
    host.submit(launch("a"), launch("b"))
    assert os.listdir(host.jobs.changes) == []
    stub.run(stub.id("b"))
    assert os.listdir(host.jobs.changes) == ["b:1.1"]


@pytest.mark.parametrize("name", ["", "job.status"])
def test_an_attempt_whose_files_were_removed_ends_after_its_batch_job_is_killed(host: Host, stub: StubQueue, name: str):
    host.submit(launch("a"), launch("b"))
    path = host.directory("a") / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    stub.set("find", "fail", "the batch system is down")
    assert host.poll() == []
    assert stub.calls("kill") == []
    stub.clear("find", "fail")
    assert host.poll() == []
    assert stub.calls("kill") == [[stub.id("a")]]
    (ended,) = ends(host.poll())
    assert (ended.id, ended.reason) == ("a:1.1", EndReason.LOST)
    assert f"were removed while it was under way ({host.directory('a')})" in ended.message
    assert [running.id for running in host.view.live()] == ["b:1.1"]
    assert len(stub.calls("submit")) == 2


def test_an_order_to_end_jobs_reaches_all_although_the_files_of_one_were_removed(host: Host, stub: StubQueue):
    host.submit(launch("a"), launch("b"))
    shutil.rmtree(host.directory("a"))
    order = {"ids": ["a:1.1", "b:1.1"], "reason": EndReason.CANCEL, "message": "enough"}
    assert host.jobs.kill(order) == ["a:1.1", "b:1.1"]
    host.poll()
    assert {job["state"] for job in stub.jobs()} == {"CANCELLED"}
    kept = ends([body for _, body in host.view.ledgers["batch"].kept])
    assert sorted((ended.id, ended.reason, ended.message) for ended in kept) == [
        ("a:1.1", EndReason.CANCEL, "enough"),
        ("b:1.1", EndReason.CANCEL, "enough"),
    ]


def test_an_attempt_whose_claim_was_removed_ends(host: Host, stub: StubQueue):
    host.submit(launch("a"))
    os.unlink(host.layout.claim("a:1.1"))
    (ended,) = ends(Host(Path(host.layout.run_dir), stub).poll())
    assert ended.reason == EndReason.LOST
    assert "were removed" in ended.message


def test_a_channel_that_was_replaced_writes_nothing(host: Host, stub: StubQueue):
    host.submit(launch("a"))
    host.jobs.set_epoch(1)
    stub.run(stub.id("a"))
    write_text(host.layout.epoch, "2\n")
    ledger = Path(host.layout.of_host(".ledger", "batch"))
    before = ledger.read_bytes()
    with pytest.raises(CommandError, match="channel 2 has replaced it") as refused:
        host.poll()
    assert refused.value.code == STALE_EPOCH
    host.jobs.close()
    assert ledger.read_bytes() == before
    other = Host(Path(host.layout.run_dir), stub)
    other.jobs.set_epoch(2)
    assert [ended.id for ended in ends(other.poll())] == ["a:1.1"]


def test_a_channel_that_waits_for_the_ledger_while_it_is_replaced_writes_nothing(host: Host, stub: StubQueue):
    host.jobs.set_epoch(1)
    host.submit(launch("a"))
    held = os.open(host.layout.of_host(".lock", "batch"), os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    errors: list[Exception] = []

    def poll() -> None:
        try:
            host.jobs.poll()
        except CommandError as error:
            errors.append(error)

    waiting = threading.Thread(target=poll)
    waiting.start()
    write_text(host.layout.epoch, "2\n")
    os.close(held)
    waiting.join()
    assert [str(error)[:32] for error in errors] == ["The request is of channel 1 of t"]


def test_a_ledger_that_another_host_has_written_is_read_again_although_its_size_is_remembered(
    host: Host, stub: StubQueue, monkeypatch: pytest.MonkeyPatch
):
    """A client of a network file system keeps attributes of files for some seconds."""
    host.submit(launch("a"))
    ledger = host.layout.of_host(".ledger", "batch")
    real, remembered = os.stat, os.stat(ledger)
    other = Host(Path(host.layout.run_dir), stub)
    other.submit(launch("b"))
    stub.run(stub.id("b"))
    assert len(other.poll()) == 2
    monkeypatch.setattr(os, "stat", lambda path, **how: remembered if path == ledger else real(path, **how))
    stub.run(stub.id("a"))
    host.poll()
    assert [number for number, _ in host.view.ledgers["batch"].kept] == [1, 2, 3, 4]


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_batch_jobs_run_on_a_file_system_without_locks(
    host: Host, stub: StubQueue, monkeypatch: pytest.MonkeyPatch, number: int
):
    def flock(descriptor: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    assert host.submit(launch("a")) == {"a:1.1": "accepted"}
    stub.run(stub.id("a"))
    assert [ended.reason for ended in ends(host.poll())] == [EndReason.EXIT]
