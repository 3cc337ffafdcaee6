"""The agent as a manager sees it: real processes, real ZeroMQ."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.agent.pidfile import is_alive, read_agent_pid
from qcg.pilotjob.host.records import Ended, Started
from tests.agent.manager import NAME, AgentProcess, Manager, launch, manager
from tests.support.processes import is_alive as process_is_alive
from tests.support.waiting import wait_for


def test_a_new_agent_sends_hello_and_an_empty_report(first: Manager, agent: AgentProcess) -> None:
    assert first.meet() == protocol.Report([], [])
    first.send(protocol.Identify())
    hello = first.next(protocol.Hello)
    assert (hello.agent, hello.pid) == (NAME, agent.pid)
    assert hello.cores == sorted(os.sched_getaffinity(0))


def test_an_agent_sends_hello_again_when_the_manager_does_not_know_it(first: Manager, agent: AgentProcess) -> None:
    first.meet()
    first.send(protocol.Identify())
    assert first.meet().live == []


def test_several_requests_to_identify_get_one_hello_and_one_report(
    first: Manager, agent: AgentProcess, run_dir: Path
) -> None:
    """A manager that does not know the agent asks after each message. A second report would lack records sent after the
    first one."""
    first.meet()
    for _ in range(3):
        first.send(protocol.Identify())
    first.meet()
    first.start(launch("a", "true", wd=run_dir))
    first.ended("a")
    assert not [message for message in first._kept if isinstance(message, (protocol.Hello, protocol.Report))]


def test_starts_and_ends_of_jobs_are_reported(first: Manager, agent: AgentProcess, run_dir: Path) -> None:
    first.meet()
    first.start(launch("a", "echo", "hi", wd=run_dir), launch("b", "sh", "-c", "exit 3", wd=run_dir))
    assert (first.ended("a").exit_code, first.ended("b").exit_code) == (0, 3)
    assert first.started("a").pid == first.ended("a").pid
    assert (run_dir / "a.out").read_text() == "hi\n"
    assert sorted(first.records) == [1, 2, 3, 4]


def test_ends_are_reported_while_a_long_batch_is_being_started(
    first: Manager, agent: AgentProcess, run_dir: Path
) -> None:
    first.meet()
    first.start(*(launch(str(number), "true", wd=run_dir) for number in range(300)))
    reported = [first.next(protocol.News).records for _ in range(2)]
    assert all(len(records) < 100 for records in reported)
    for records in reported:
        first._take(records)
    for number in range(300):
        assert first.ended(str(number)).exit_code == 0
    assert sorted(first.records) == list(range(1, 601))


def test_a_cancelled_job_ends_and_one_past_its_wall_time_too(
    first: Manager, agent: AgentProcess, run_dir: Path
) -> None:
    first.meet()
    first.start(launch("a", "sleep", "1000", wd=run_dir), launch("b", "sleep", "1000", wd=run_dir, wall_time=0.2))
    first.started("a")
    first.send(protocol.Kill(["a", "nobody"]))
    assert (first.ended("a").reason, first.ended("a").exit_code) == ("cancel", -signal.SIGTERM)
    assert first.ended("b").reason == "timeout"


def test_a_job_without_its_executable_is_reported_and_other_jobs_run(
    first: Manager, agent: AgentProcess, run_dir: Path
) -> None:
    first.meet()
    first.start(launch("a", "no-such-program", wd=run_dir), launch("b", "true", wd=run_dir))
    assert first.ended("a").reason == "unstartable"
    assert first.ended("b").exit_code == 0


def test_an_id_runs_once_however_often_it_is_sent(first: Manager, agent: AgentProcess, run_dir: Path) -> None:
    first.meet()
    job = launch("a", "sh", "-c", "echo x >> runs", wd=run_dir)
    first.start(job, job)
    first.start(job)
    first.ended("a")
    first.start(job, launch("b", "true", wd=run_dir))
    first.ended("b")
    assert (run_dir / "runs").read_text() == "x\n"


def test_jobs_get_no_descriptor_of_the_agent_and_no_signal_setting(
    first: Manager, agent: AgentProcess, run_dir: Path
) -> None:
    first.meet()
    first.start(launch("fds", "ls", "/proc/self/fd", wd=run_dir), launch("st", "cat", "/proc/self/status", wd=run_dir))
    first.ended("fds")
    first.ended("st")
    assert (run_dir / "fds.out").read_text().split() == ["0", "1", "2", "3"]  # 3 is what ls reads
    status = dict(line.split(":", 1) for line in (run_dir / "st.out").read_text().splitlines())
    assert int(status["SigIgn"], 16) & ~(3 << 31) == 0  # the C library keeps 32 and 33 for itself
    assert int(status["SigBlk"], 16) == 0


def test_an_unreadable_message_from_the_manager_is_ignored(first: Manager, agent: AgentProcess, run_dir: Path) -> None:
    first.meet()
    first._socket.send_multipart([first._peer, b"\xc1 garbage"])
    first.start(launch("a", "true", wd=run_dir))
    assert first.ended("a").exit_code == 0
    assert "could not be read" in agent.log


def test_records_are_sent_again_until_they_are_acknowledged(first: Manager, agent: AgentProcess, run_dir: Path) -> None:
    first.meet()
    for id in ("a", "b"):
        first.start(launch(id, "true", wd=run_dir))
        first.ended(id)
    assert [record.number for record in _again(first, 0).records] == [1, 2, 3, 4]
    first.send(protocol.Ack(3))
    assert [record.number for record in _again(first, 3).records] == [4]
    assert _again(first, 4).records == []


def _again(known: Manager, ack: int) -> protocol.Report:
    known.ack = ack
    known.send(protocol.Identify())
    return known.meet()


def test_a_new_manager_is_found_at_once_and_gets_a_full_report(run_dir: Path) -> None:
    with manager(run_dir) as old:
        agent = AgentProcess(run_dir, settings={"connection.AGENT_SILENCE": 1000.0})
        old.meet()
        old.start(
            launch("long", "sh", "-c", "until test -e go; do sleep 0.01; done; exit 5", wd=run_dir),
            launch("short", "true", wd=run_dir),
            launch("away", "sh", "-c", "touch away; until test -e gone; do sleep 0.01; done", wd=run_dir),
        )
        old.ended("short")
        wait_for((run_dir / "away").exists)
    (run_dir / "gone").touch()
    with manager(run_dir) as new:
        report = new.meet()  # long before the agent would miss the old manager
        assert [running.id for running in report.live if running.id != "away"] == ["long"]
        assert report.live[0].grant == [(NAME, (0,), ())]
        assert new.ended("short").exit_code == 0
        assert new.ended("away").exit_code == 0
        (run_dir / "go").touch()
        assert new.ended("long").exit_code == 5
        new.send(protocol.Exit(5.0))
        new.next(protocol.Bye)
    assert agent.wait() == 0


def test_jobs_that_were_received_are_started_without_the_manager(run_dir: Path) -> None:
    with manager(run_dir) as old:
        agent = AgentProcess(run_dir)
        old.meet()
        old.start(*(launch(str(number), "true", wd=run_dir) for number in range(200)))
        old.next(protocol.News)
    with manager(run_dir) as new:
        new.meet()
        for number in range(200):
            assert new.ended(str(number)).exit_code == 0
        new.send(protocol.Exit(5.0))
        new.next(protocol.Bye)
    assert agent.wait() == 0


def test_a_job_waiting_for_its_start_is_reported_as_live(run_dir: Path) -> None:
    with manager(run_dir) as old:
        agent = AgentProcess(run_dir)
        old.meet()
        # In one burst, so that the agent reports before it has started all jobs.
        ids = {str(number) for number in range(200)}
        old.send(protocol.Identify())
        old.start(*(launch(id, "sleep", "1000", wd=run_dir) for id in ids))
        report = old.meet()
        reported = {record.body.id for record in report.records} | {job.id for job in report.live}
        assert reported == ids
        assert len(report.live) == 200
        old.send(protocol.Exit(5.0))
        old.next(protocol.Bye)
    assert agent.wait() == 0


def test_a_killed_agents_jobs_are_lost_and_ended_by_the_next_one(
    first: Manager, agent: AgentProcess, run_dir: Path
) -> None:
    first.meet()
    first.start(launch("done", "true", wd=run_dir), launch("a", "sh", "-c", "sleep 1000 & wait", wd=run_dir))
    first.ended("done")
    pid = first.started("a").pid
    agent.kill()
    assert process_is_alive(pid)
    successor = AgentProcess(run_dir)
    first.records.clear()
    first.meet()
    lost = first.ended("a")
    assert (lost.reason, lost.pid) == ("lost", pid)
    assert "was killed" in lost.message
    assert not process_is_alive(pid)
    assert first.ended("done").exit_code == 0
    assert sorted(first.records) == [1, 2, 3, 4]
    first.start(launch("next", "true", wd=run_dir))
    assert first.ended("next").exit_code == 0
    successor.close()


def test_an_agent_ends_its_jobs_and_exits_at_the_request_of_the_manager(
    first: Manager, agent: AgentProcess, run_dir: Path
) -> None:
    first.meet()
    daemon = "(setsid sh -c 'echo $$ > daemon; exec sleep 1000' &); until test -s daemon; do :; done"
    first.start(launch("daemon", "sh", "-c", daemon, wd=run_dir), launch("a", "sleep", "1000", wd=run_dir))
    first.ended("daemon")
    first.started("a")
    first.send(protocol.Exit(5.0))
    assert first.ended("a").reason == "cancel"
    first.next(protocol.Bye)
    assert agent.wait() == 0
    assert not process_is_alive(int((run_dir / "daemon").read_text()))
    assert read_agent_pid(run_dir, NAME) is None


def test_sigterm_ends_all_jobs_and_the_records_have_the_reason(
    first: Manager, agent: AgentProcess, run_dir: Path
) -> None:
    first.meet()
    first.start(launch("a", "sleep", "1000", wd=run_dir))
    first.started("a")
    agent.signal(signal.SIGTERM)
    ended = first.ended("a")
    assert (ended.reason, ended.exit_code) == ("lost", -signal.SIGTERM)
    assert "told to end" in ended.message
    first.next(protocol.Bye)
    assert agent.wait() == 0


def test_a_second_signal_ends_an_agent_at_once(first: Manager, run_dir: Path) -> None:
    agent = AgentProcess(run_dir, settings={"agent.END_GRACE": 1000.0})
    first.meet()
    first.start(launch("a", "sh", "-c", "trap '' TERM; touch ready; while :; do sleep 0.01; done", wd=run_dir))
    wait_for((run_dir / "ready").exists)
    agent.signal(signal.SIGTERM)
    wait_for(lambda: "told to end" in agent.log)
    agent.signal(signal.SIGINT)
    assert first.ended("a").exit_code == -signal.SIGKILL
    assert agent.wait() == 0


def test_an_agent_without_a_manager_exits_after_its_jobs_and_keeps_their_records(run_dir: Path) -> None:
    with manager(run_dir) as old:
        agent = AgentProcess(run_dir, linger=0.5)
        old.meet()
        daemon = "(setsid sh -c 'echo $$ > daemon; exec sleep 1000' &); until test -s daemon; do :; done"
        old.start(
            launch("daemon", "sh", "-c", daemon, wd=run_dir),
            launch("a", "sh", "-c", "touch ready; until test -e go; do sleep 0.01; done; exit 7", wd=run_dir),
        )
        wait_for((run_dir / "ready").exists)
        old.ended("daemon")
    wait_for(lambda: "no manager" not in agent.log and is_alive_agent(run_dir))
    (run_dir / "go").touch()
    assert agent.wait() == 0
    assert "no manager for 0.5 s" in agent.log
    assert not process_is_alive(int((run_dir / "daemon").read_text()))
    assert read_agent_pid(run_dir, NAME) is None
    with manager(run_dir) as new:
        successor = AgentProcess(run_dir)
        new.meet()
        assert new.ended("a").exit_code == 7
        successor.close()


def test_an_agent_on_another_node_that_starts_after_the_run_exits_soon(run_dir: Path) -> None:
    agent = AgentProcess(run_dir, linger=1000.0, settings={"agent.FIRST_CONTACT_TIMEOUT": 0.2})
    assert agent.wait() == 0
    assert "no manager for 0.2 s" in agent.log
    assert read_agent_pid(run_dir, NAME) is None


def is_alive_agent(run_dir: Path) -> bool:
    info = read_agent_pid(run_dir, NAME)
    return info is not None and is_alive(info)


def test_a_second_agent_of_the_same_name_is_refused(first: Manager, agent: AgentProcess, run_dir: Path) -> None:
    first.meet()
    info = read_agent_pid(run_dir, NAME)
    assert info is not None
    assert (info.pid, is_alive(info)) == (agent.pid, True)
    second = AgentProcess(run_dir)
    assert second.wait() == 2
    assert f"the agent {NAME} of {run_dir} runs already (pid {agent.pid})" in agent.log
    assert is_alive_agent(run_dir)


def test_an_agent_is_refused_while_another_has_no_pid_file_yet(run_dir: Path) -> None:
    with (run_dir / f"agent-{NAME}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = AgentProcess(run_dir)
        assert second.wait() == 2
    assert f"the agent {NAME} of {run_dir} runs already\n" in second.log
    assert not (run_dir / f"agent-{NAME}.ledger").exists()


def test_an_agent_that_fails_before_its_claim_keeps_the_pid_file_of_another(
    first: Manager, agent: AgentProcess, run_dir: Path
) -> None:
    first.meet()
    (run_dir / f"agent-{NAME}.log").mkdir()
    second = AgentProcess(run_dir, "--own-log")
    assert second.wait() == 2
    assert "cannot work in" in second.log
    info = read_agent_pid(run_dir, NAME)
    assert info is not None
    assert info.pid == agent.pid


def test_a_missing_run_directory_is_reported_in_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "qcg.pilotjob.agent", "--run-dir", str(tmp_path / "no"), "--name", NAME]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert "cannot work in" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_contact_file_that_others_can_read_is_not_used(run_dir: Path) -> None:
    with manager(run_dir) as first:
        (run_dir / "contact.json").chmod(0o644)
        agent = AgentProcess(run_dir)
        wait_for(lambda: "can be read by others" in agent.log)
        (run_dir / "contact.json").chmod(0o600)
        first.meet()
        agent.close()


def test_an_idle_agent_wakes_up_for_little_more_than_heartbeats(first: Manager, agent: AgentProcess) -> None:
    first.meet()
    first.next(protocol.Beat)
    before = _pauses(agent.pid)
    first.next(protocol.Beat)
    assert _pauses(agent.pid) - before <= 30  # in five seconds it is three or four, however busy the machine is


def _pauses(pid: int) -> int:
    """How often the threads of the agent have blocked so far."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for text in texts)


def test_agents_pass_on_the_records_of_the_job_host_unchanged(
    first: Manager, agent: AgentProcess, run_dir: Path
) -> None:
    first.meet()
    first.start(launch("a", "true", wd=run_dir))
    ended = first.ended("a")
    started = first.started("a")
    assert started == Started("a", ended.pid, ended.started, [(NAME, (0,), ())])
    assert ended == Ended("a", ended.at, 0, "exit", "", started.pid, started.at, started.grant, ended.usage)
    assert ended.usage is not None
    assert ended.usage.memory > 0


def test_an_agent_forwards_signals_and_records_why_it_ended_a_job(
    first: Manager, agent: AgentProcess, run_dir: Path
) -> None:
    first.meet()
    catching = "trap 'echo reported' USR1; echo up; while :; do sleep 0.01; done"
    first.start(launch("a", "bash", "-c", catching, wd=run_dir))
    wait_for(lambda: (run_dir / "a.out").exists() and "up" in (run_dir / "a.out").read_text())
    first.send(protocol.Signal(["a"], signal.SIGUSR1))
    wait_for(lambda: "reported" in (run_dir / "a.out").read_text())
    first.send(protocol.Kill(["a"], "closed", "It is over."))
    ended = first.ended("a")
    assert (ended.reason, ended.message) == ("closed", "It is over.")


def test_an_agent_sweeps_processes_that_other_agents_started(
    first: Manager, agent: AgentProcess, run_dir: Path
) -> None:
    first.meet()
    environment = {**os.environ, "QCG_PM_STEP_ID": f"{run_dir}.5.1"}
    with subprocess.Popen(["sleep", "1000"], env=environment) as rank:
        # The kernel shows no environment for a moment after it has closed the descriptors of exec.
        wait_for(Path(f"/proc/{rank.pid}/environ").read_bytes, what="the environment of the rank")
        first.send(protocol.Sweep(["5.1"], str(run_dir)))
        assert first.next(protocol.Swept) == protocol.Swept(["5.1"])
        assert rank.wait(60) == -signal.SIGKILL


def test_sigterm_inside_an_allocation_gives_jobs_back(first: Manager, run_dir: Path) -> None:
    agent = AgentProcess(run_dir, "--allocation", "7", settings={"agent.VERDICT_DELAY": 1000.0})
    try:
        first.meet()
        first.start(launch("a", "sleep", "1000", wd=run_dir), launch("b", "sleep", "1000", wd=run_dir))
        pids = [first.started(id).pid for id in ("a", "b")]
        # The batch system ends all processes, in no order.
        os.kill(pids[0], signal.SIGTERM)
        wait_for(lambda: not process_is_alive(pids[0]))
        agent.signal(signal.SIGTERM)
        assert {first.ended(id).reason for id in ("a", "b")} == {"closed"}
        first.next(protocol.Bye)
        assert agent.wait() == 0
    finally:
        agent.close()


def test_an_agent_that_hangs_is_replaced_and_its_jobs_are_ended(
    first: Manager, agent: AgentProcess, run_dir: Path
) -> None:
    first.meet()
    first.start(launch("a", "sleep", "1000", wd=run_dir))
    pid = first.started("a").pid
    agent.signal(signal.SIGSTOP)
    other = AgentProcess(run_dir, "--replace-after", "0")
    try:
        assert agent.wait() == -signal.SIGKILL
        first.meet()
        assert first.ended("a").reason == "lost"
        assert not process_is_alive(pid)
    finally:
        other.close()


def test_an_inactive_agent_is_replaced(first: Manager, agent: AgentProcess, run_dir: Path) -> None:
    first.meet()
    agent.signal(signal.SIGSTOP)
    # Each thread may execute one more step when it gets the processor, which a late thread would do while the other
    # agent watches.
    wait_for(lambda: _states(agent.pid) == {"T"}, what="all its threads to stand still")
    other = AgentProcess(run_dir, "--replace-after", "0.5")
    try:
        assert agent.wait() == -signal.SIGKILL
        first.meet()
    finally:
        other.close()


def _states(pid: int) -> set[str]:
    """The states of the threads of an agent."""
    return {path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")}


def test_an_active_agent_is_not_replaced(first: Manager, agent: AgentProcess, run_dir: Path) -> None:
    first.meet()
    other = AgentProcess(run_dir, "--replace-after", "3600")
    try:
        first.start(launch("a", "true", wd=run_dir))
        assert other.wait() == 2
        assert "runs already" in other.log
        assert first.ended("a").exit_code == 0
    finally:
        other.close()


def test_an_agent_without_a_frozen_predecessor_runs(first: Manager, run_dir: Path) -> None:
    other = AgentProcess(run_dir, "--replace-after", "0")
    try:
        first.meet()
    finally:
        other.close()
