"""Starting, watching and ending whole process trees. Python 3.6 reads this file."""

import math
import os
import resource
import signal
import time
import unittest
from unittest import mock

from qcg.pilotjob.host import process_tree, spawn
from qcg.pilotjob.host.jobhost import JobHost
from qcg.pilotjob.host.ledger import Ledger
from qcg.pilotjob.host.records import Started
from tests.host.driver import SHELL, TREE, HostTest, alive, python, wait_for

# 64 processes, each in a session of its own, most with dead parents, none listening to SIGTERM.
FORKING = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open("ready", "w").close()
for _ in range(6):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
    else:
        os.wait()
    time.sleep(0.01)
time.sleep(1000)
"""


class Ends(HostTest):
    def test_a_start_and_an_end_are_recorded_with_times_and_numbers(self):
        before = time.time()
        ended = self.run_job("true")
        (first, started), (second, last) = self.records
        assert (first, second) == (1, 2)
        assert started == Started("job", ended.pid, ended.started, [("n1", (0,), ())])
        assert last == ended
        assert before <= ended.started <= ended.at <= time.time()

    def test_the_recorded_start_is_before_the_start_of_the_program(self):
        began = []
        start = self.host._setup._spawner.start

        def held_up(launch, captured):
            began.append(time.time())
            return start(launch, captured)

        with mock.patch.object(self.host._setup._spawner, "start", held_up):
            ended = self.run_job("true")
        assert ended.started <= began[0]

    def test_exit_codes_are_the_programs_own(self):
        for code in (0, 1, 127, 255):
            ended = self.run_job(SHELL, "-c", f"exit {code}", id=str(code))
            assert (ended.exit_code, ended.reason, ended.message) == (code, "exit", "")

    def test_a_signal_is_a_negative_exit_code(self):
        assert self.run_job(SHELL, "-c", "kill -SEGV $$").exit_code == -signal.SIGSEGV

    def test_the_end_of_a_job_kills_its_process_group(self):
        self.run_job(SHELL, "-c", "sleep 1000 & echo $! > pids")
        self.assert_gone([int(self.text("pids"))])

    def test_a_daemon_outlives_its_job_until_the_host_finishes(self):
        self.run_job(SHELL, "-c", "(setsid sh -c 'echo $$ > pids; exec sleep 1000' &); until test -s pids; do :; done")
        daemon = int(self.text("pids"))
        assert alive(daemon)
        self.host.finish(10.0)
        self.until(lambda: not self.host.busy, "the end of the daemon")
        assert not alive(daemon)

    def test_many_jobs_are_started_a_few_at_a_time(self):
        self.host.start([self.launch(str(number), "true") for number in range(40)])
        assert self.host.advance(16)
        assert len(self.host.take_records()) == 16
        assert len(self.host.running()) == 40
        assert self.host.advance(16)
        assert not self.host.advance(16)
        self.until(lambda: not self.host.busy, "all jobs")


class Identity(HostTest):
    def test_an_id_is_refused_while_queued_while_live_and_until_its_end_is_acknowledged(self):
        job = self.launch("a", "true")
        assert self.host.start([job, job]) == ["a"]
        self.host.advance()
        assert self.host.start([job]) == ["a"]
        self.ended("a")
        assert self.host.start([job]) == ["a"]
        self.ledger.acknowledge(self.ledger.last)
        assert self.host.start([job]) == []

    def test_running_jobs_are_reported_with_grants_and_queued_jobs_with_pid_0(self):
        self.host.start([self.launch("a", "sleep", "1000"), self.launch("b", "true", grant=[("n2", (3,), ())])])
        self.host.advance(1)
        first, second = self.host.running()
        assert (first.id, first.grant, alive(first.pid)) == ("a", [("n1", (0,), ())], True)
        assert (second.id, second.pid, second.started, second.grant) == ("b", 0, 0.0, [("n2", (3,), ())])

    def test_jobs_wait_while_the_ledger_cannot_be_written(self):
        self.host.start([self.launch("a", "touch", "ran"), self.launch("b", "true")])
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(self.ledger_path), hard))
        try:
            assert not self.host.advance()
            assert "No job is started until it can" in self.host.start_problem
            self.host.kill(["b"])
            self.records.extend(self.host.take_records())
            assert self.records == []
            assert {job.id for job in self.host.running()} == {"a", "b"}
            assert not self.host.advance()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        assert not os.path.exists(self.path("ran"))
        assert self.ended("a").exit_code == 0
        assert self.ended("b").reason == "cancel"
        assert self.host.start_problem == ""

    def test_a_job_whose_ledger_line_was_written_after_the_start_deadline_is_not_started(self):
        self.host.start([self.launch("a", "touch", "ran"), self.launch("b", "true")])
        self.be_too_late()
        assert {(job.id, job.pid) for job in self.host.running()} == {("a", 0), ("b", 0)}
        assert not self.host.advance()
        self.host.set_start_deadline(math.inf)
        assert self.ended("a").exit_code == self.ended("b").exit_code == 0
        assert os.path.exists(self.path("ran"))

    def be_too_late(self):
        """Delay the first of the waiting jobs: its ledger line is written after the start deadline."""
        write_down = self.ledger.starting

        def slowly(*line):
            written = write_down(*line)
            self.host.set_start_deadline(time.monotonic())
            return written

        with mock.patch.object(self.ledger, "starting", slowly):
            assert not self.host.advance()

    def test_a_job_whose_files_were_opened_after_the_start_deadline_is_not_started(self):
        def slowly(path, stream):
            self.host.set_start_deadline(time.monotonic())
            return os.open(path, os.O_WRONLY | os.O_CREAT)

        self.host.start([self.launch("a", "touch", "ran", stdout=self.path("out"))])
        with mock.patch.object(spawn, "_open_for_writing", slowly):
            assert not self.host.advance()
        assert [(job.id, job.pid) for job in self.host.running()] == [("a", 0)]
        self.host.set_start_deadline(math.inf)
        assert self.ended("a").exit_code == 0

    def test_a_job_whose_program_was_found_after_the_start_deadline_is_not_started(self):
        for folder in ("a", "b"):
            os.mkdir(self.path(folder))
        os.symlink("/usr/bin/touch", self.path("a/program"))
        search = {"PATH": f"{self.path('a')}:{self.path('b')}"}
        self.run_job("program", "first", env=search)
        os.rename(self.path("a/program"), self.path("b/program"))
        look_up = spawn._look_up

        def slowly(*arguments):
            self.host.set_start_deadline(time.monotonic())
            return look_up(*arguments)

        self.host.start([self.launch("b", "program", "second", env=search)])
        with mock.patch.object(spawn, "_look_up", slowly):
            assert not self.host.advance()
        assert [(job.id, job.pid) for job in self.host.running()] == [("b", 0)]
        assert os.path.exists(self.path("first"))
        assert not os.path.exists(self.path("second"))
        self.host.set_start_deadline(math.inf)
        assert self.ended("b").exit_code == 0

    def test_a_job_past_the_start_deadline_on_a_cut_off_node_is_recorded_as_closed(self):
        self.host.start([self.launch("a", "touch", "ran"), self.launch("b", "true")])
        self.be_too_late()
        self.host.lose_all()
        assert self.ended("a").reason == "closed"
        assert not self.ledger.open
        assert not self.ledger.knows("b")
        assert not os.path.exists(self.path("ran"))


class Kills(HostTest):
    def test_cancel_kills_grandchildren_and_children_that_left_the_session(self):
        pids = self.start_shell("a", TREE)
        assert len(pids) == 4
        self.host.kill(["a"])
        ended = self.ended("a")
        assert (ended.reason, ended.exit_code) == ("cancel", -signal.SIGTERM)
        self.assert_gone(pids)

    def test_a_daemon_without_living_ancestors_is_found_by_its_environment(self):
        script = "(setsid sh -c '(setsid sh -c \"echo \\$\\$ > pids; touch ready; exec sleep 1000\" &)' &); sleep 1000"
        pids = self.start_shell("a", script)
        self.host.kill(["a"])
        self.ended("a")
        self.assert_gone(pids)

    def test_cancel_does_not_touch_other_jobs(self):
        pids = self.start_shell("a", "echo $$ > pids; touch ready; exec sleep 1000")
        self.host.start([self.launch("b", "sleep", "1000")])
        self.host.advance()
        self.host.kill(["b"])
        self.ended("b")
        assert alive(pids[0])
        assert [job.id for job in self.host.running()] == ["a"]

    def test_a_stopped_job_can_be_cancelled(self):
        pids = self.start_shell("a", "echo $$ > pids; touch ready; kill -STOP $$")
        self.host.kill(["a"])
        assert self.ended("a").exit_code == -signal.SIGTERM
        self.assert_gone(pids)

    def test_all_processes_of_a_job_get_the_grace_period(self):
        # The first process exits at once; its child takes longer, and gets the whole grace period.
        script = (
            "echo $$ > pids; sh -c 'trap \"touch saved; exit\" TERM; touch ready; while :; do sleep 0.01; done' & wait"
        )
        self.start_shell("a", script)
        self.host.kill(["a"])
        self.ended("a")
        assert os.path.exists(self.path("saved"))

    def test_a_process_started_in_the_grace_period_may_end_by_itself(self):
        script = """
            trap 'sleep 0.5 && touch saved; exit' TERM
            echo $$ > pids; touch ready
            while :; do sleep 0.01; done
        """
        self.start_shell("a", script)
        self.host.kill(["a"])
        self.ended("a")
        assert os.path.exists(self.path("saved"))

    def test_a_second_kill_can_shorten_the_grace_period(self):
        self.start_shell("a", "trap '' TERM; echo $$ > pids; touch ready; while :; do sleep 0.01; done")
        self.host.kill(["a"], grace=1000.0)
        self.turn(0.0)
        self.host.kill(["a"], grace=0.0)
        assert self.ended("a").exit_code == -signal.SIGKILL

    def test_cancelling_twice_signals_once(self):
        script = "trap 'echo x >> terms' TERM; echo $$ > pids; touch ready; while ! test -e go; do sleep 0.01; done"
        self.start_shell("a", script)
        self.host.kill(["a"])
        self.until(lambda: os.path.exists(self.path("terms")), "the first signal")
        self.host.kill(["a"])
        self.host.finish(10.0)
        self.turn(0.0)
        with open(self.path("go"), "w"):
            pass
        self.ended("a")
        assert self.text("terms") == "x\n"

    def test_a_job_that_ended_before_its_cancel_keeps_its_result(self):
        self.host.start([self.launch("a", "true")])
        self.host.advance()
        pid = self.host.running()[0].pid
        wait_for(lambda: not alive(pid), "the end of the job")
        self.host.kill(["a"])
        assert self.ended("a").reason == "exit"

    def test_a_cancelled_job_that_was_queued_is_never_started(self):
        self.host.start([self.launch("a", "touch", "ran")])
        self.host.kill(["a"])
        ended = self.ended("a")
        assert (ended.reason, ended.exit_code, ended.pid, ended.started) == ("cancel", -1, 0, 0.0)
        assert not self.host.advance()
        assert not os.path.exists(self.path("ran"))

    def test_cancel_of_an_unknown_id_is_ignored(self):
        self.host.kill(["nobody"])
        assert self.host.take_records() == []

    def test_killing_never_blocks(self):
        self.start_shell("a", "trap '' TERM; echo $$ > pids; touch ready; while :; do sleep 0.01; done")
        before = time.monotonic()
        self.host.kill(["a"])
        self.host.due(time.monotonic())
        assert [job.id for job in self.host.running()] == ["a"]
        assert before < (self.host.next_deadline() or 0.0) < before + self.grace


class Stubborn(HostTest):
    grace = 0.0

    def test_a_process_that_survives_sigkill_is_given_up_and_reported(self):
        # Without `touch`, a second process that may not have ended yet.
        pids = self.start_shell("a", "echo $$ > pids; : > ready; exec sleep 1000")
        with mock.patch.object(process_tree, "send"):
            before = time.monotonic()
            self.host.kill(["a"])
            self.host.due(before + 29.0)
            assert self.host.take_records() == []
            self.host.due(time.monotonic() + 60.0)
        ended = self.ended("a")
        assert (ended.reason, ended.exit_code) == ("cancel", -1)
        assert ended.message == f"Processes {pids[0]} do not end, even after SIGKILL."
        assert self.log == [ended.message]

    def test_wall_times_of_ended_jobs_are_dropped(self):
        ended = {f"old{number}": None for number in range(1200)}
        for id in ended:
            self.host._limits.wall_times.begin(id, time.monotonic(), 1000.0, ended)
        assert len(self.host._limits.wall_times) == 1200
        self.run_job("true", wall_time=2000.0)
        assert len(self.host._limits.wall_times) <= 1


class ShortGrace(HostTest):
    grace = 0.2

    def test_processes_that_ignore_sigterm_are_killed_after_the_grace_period(self):
        script = "trap '' TERM; echo $$ > pids; setsid sh -c 'echo $$ >> pids; touch ready; sleep 1000' & wait; wait"
        pids = self.start_shell("a", script)
        before = time.monotonic()
        self.host.kill(["a"])
        ended = self.ended("a")
        assert (ended.reason, ended.exit_code) == ("cancel", -signal.SIGKILL)
        assert time.monotonic() - before >= 0.2
        self.assert_gone(pids)

    def test_a_process_tree_that_keeps_forking_is_killed(self):
        self.host.start([self.launch("a", *python(FORKING))])
        self.until(lambda: os.path.exists(self.path("ready")), "the first process")
        self.host.kill(["a"])
        self.ended("a")
        marker = f"QCG_PM_STEP_ID=test{os.getpid()}.a".encode()
        assert [pid for pid in os.listdir("/proc") if pid.isdigit() and marker in environment(pid)] == []

    def test_a_job_past_its_wall_time_is_ended_with_a_message(self):
        before = time.monotonic()
        ended = self.run_job("sleep", "1000", wall_time=0.3)
        assert (ended.reason, ended.message) == ("timeout", "The job exceeded its wall time of 0.3 s.")
        assert time.monotonic() - before >= 0.3
        pids = self.start_shell("a", "sleep 1000 & echo $! > pids; touch ready; wait", wall_time=20.0)
        self.host.due(time.monotonic() + 20.0)
        assert self.ended("a").reason == "timeout"
        self.assert_gone(pids)

    def test_a_job_within_its_wall_time_ends_normally_and_its_deadline_is_dropped(self):
        ended = self.run_job("true", wall_time=20.0)
        assert (ended.reason, ended.exit_code) == ("exit", 0)
        assert self.host.next_deadline() is None

    def test_a_timeout_is_kept_when_a_cancel_follows(self):
        script = "trap '' TERM; echo $$ > pids; touch ready; sleep 1000; sleep 1000"
        self.start_shell("a", script, wall_time=20.0)
        self.host.due(time.monotonic() + 20.0)
        self.host.kill(["a"])
        assert self.ended("a").reason == "timeout"


class AfterACrash(HostTest):
    def crash(self, *launches):
        """Start these jobs from a process that is killed when all of them are ready."""
        child = os.fork()
        if child == 0:
            try:
                host = JobHost(Ledger(self.path("crashed")), "n1", self.path("files"))
                host.start(list(launches))
                host.advance()
                host.take_records()
            finally:
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)

    def reopen(self):
        # Not `close_host`, which ends the processes left by the crash: the next host has to do that.
        self.host.close()
        self.ledger.close()
        self.ledger_path = self.path("crashed")
        self.open_host()

    def test_running_jobs_of_a_killed_host_are_ended_and_lost(self):
        self.crash(self.launch("a", SHELL, "-c", TREE))
        wait_for(lambda: os.path.exists(self.path("ready")), "the tree")
        pids = [int(line) for line in self.text("pids").split()]
        self.reopen()
        assert [(job.id, job.grant) for job in self.host.running()] == [("a", [("n1", (0,), ())])]
        ended = self.ended("a")
        assert (ended.reason, ended.pid in pids) == ("lost", True)
        assert "The agent n1 that ran this job was killed" in ended.message
        assert "captured output is lost" in ended.message
        self.assert_gone(pids)

    def test_a_lost_id_is_not_started_again(self):
        self.crash(self.launch("a", "true"))
        self.reopen()
        assert self.host.start([self.launch("a", "true")]) == ["a"]
        self.ended("a")
        assert self.host.start([self.launch("a", "true")]) == ["a"]

    def test_a_recorded_start_without_a_pid_is_lost_and_its_processes_are_found(self):
        job = self.launch("a", "sleep", "1000")
        self.crash()
        ledger = Ledger(self.path("crashed"))
        ledger.starting("a", job.env["QCG_PM_STEP_ID"], [])
        ledger.close()
        running = os.spawnvpe(os.P_NOWAIT, "sleep", job.argv, job.env)
        # The child has the environment of the test until it has called exec: a child of an agent would have died with
        # the agent.
        wait_for(lambda: job.env["QCG_PM_STEP_ID"].encode() in environment(running), "the marker of the process")
        self.reopen()
        ended = self.ended("a")
        assert (ended.reason, ended.pid) == ("lost", 0)
        assert "may or may not have run" in ended.message
        self.assert_gone([running])

    def test_a_later_process_with_the_same_pid_is_not_killed(self):
        self.close_host()
        bystander = os.spawnvp(os.P_NOWAIT, "sleep", ["sleep", "1000"])
        ledger = Ledger(self.ledger_path)
        ledger.starting("a", "marker of nobody", [])
        ledger.started("a", ledger.open["a"]._replace(pid=bystander, since=5, until=6))
        ledger.close()
        self.open_host()
        assert self.ended("a").reason == "lost"
        assert alive(bystander)


def environment(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


if __name__ == "__main__":
    unittest.main()
