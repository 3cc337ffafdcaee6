"""Signals for jobs, and ends of jobs that another process causes. Python 3.6 reads this file."""

import os
import signal
import subprocess

from tests.host.driver import HostTest, alive, wait_for

CATCHES = "trap 'echo told >> %s' USR1; touch %s.is_up; while ! test -e go; do sleep 0.01; done"


class Signals(HostTest):
    def start_catchers(self, id, script, *names):
        self.host.start([self.launch(id, "/bin/bash", "-c", script)])
        for name in names:
            self.until(lambda name=name: os.path.exists(self.path(name + ".is_up")), name + " being up")

    def let_go(self, id):
        with open(self.path("go"), "w"):
            pass
        return self.ended(id)

    def test_every_process_that_catches_a_signal_gets_it_once(self):
        child = CATCHES % ("child", "child")
        # The first shell does not catch the signal, which would end it and with it the whole job.
        script = f'sleep 1000 & /bin/bash -c "{child}" & wait %2'
        self.start_catchers("a", script, "child")
        self.host.signal(["a"], signal.SIGUSR1)
        self.until(lambda: os.path.exists(self.path("child")), "the signal")
        assert self.let_go("a").exit_code == 0
        assert self.text("child") == "told\n"

    def test_a_signal_is_not_sent_to_other_jobs_and_unknown_ids_are_ignored(self):
        self.start_catchers("a", CATCHES % ("a", "a"), "a")
        self.start_catchers("b", CATCHES % ("b", "b"), "b")
        self.host.signal(["b", "nobody"], signal.SIGUSR1)
        self.until(lambda: os.path.exists(self.path("b")), "the signal")
        assert self.let_go("a").exit_code == 0
        assert not os.path.exists(self.path("a"))

    def test_a_signal_that_a_launcher_forwards_is_not_sent_again(self):
        child = CATCHES % ("rank", "rank")
        with open(self.path("mpirun"), "w") as file:
            file.write(f'#!/bin/bash\ntrap "echo told >> launcher" USR1\n/bin/bash -c "{child}" &\nwait; wait\n')
        os.chmod(self.path("mpirun"), 0o700)
        self.start_catchers("a", "exec ./mpirun", "rank")
        self.host.signal(["a"], signal.SIGUSR1)
        self.until(lambda: os.path.exists(self.path("launcher")), "the signal")
        self.let_go("a")
        assert not os.path.exists(self.path("rank"))


class Reasons(HostTest):
    def test_the_record_has_the_reason_why_a_job_was_ended(self):
        self.host.start([self.launch("a", "sleep", "1000"), self.launch("b", "true")])
        self.host.advance(1)
        self.host.kill(["a", "b"], "closed", "The allocation ends.")
        for id in ("a", "b"):
            ended = self.ended(id)
            assert (ended.reason, ended.message) == ("closed", "The allocation ends.")


class Sweeps(HostTest):
    def start_stranger(self, mark):
        """A process that this host has not started."""
        process = subprocess.Popen(["sleep", "1000"], env=dict(os.environ, QCG_PM_STEP_ID=mark))
        self.addCleanup(process.wait)
        self.addCleanup(self.end_stranger, process)
        return process

    def end_stranger(self, process):
        # The host may have reaped the process already, as if it were a job.
        if process.poll() is None:
            process.kill()

    def swept(self):
        return self.until(self.host.take_swept, "the sweep")

    def test_a_sweep_ends_only_processes_with_the_step_id(self):
        mark = f"test{os.getpid()}.7.1"
        marked, other = self.start_stranger(mark), self.start_stranger(mark + "1")
        self.host.sweep({"7.1": mark})
        assert self.host.busy
        assert self.swept() == ["7.1"]
        wait_for(lambda: not alive(marked.pid), "the end of what is marked")
        assert alive(other.pid)
        assert self.host.take_records() == []

    def test_a_sweep_without_processes_is_reported_at_once(self):
        self.host.sweep({"7.1": "nobody.7.1", "8.1": "nobody.8.1"})
        assert sorted(self.swept()) == ["7.1", "8.1"]


class VerdictDelay(HostTest):
    """Jobs that another process kills, on a host that may be killed too."""

    verdict_delay = 0.3

    def end_from_outside(self, id):
        self.host.start([self.launch(id, "sleep", "1000")])
        self.until(lambda: [job for job in self.host.running() if job.id == id and job.pid], "the start")
        pid = next(job.pid for job in self.host.running() if job.id == id)
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not alive(pid), "the end of the job")
        self.host.reap()

    def test_an_end_without_a_signal_to_the_host_is_recorded_unchanged(self):
        self.end_from_outside("a")
        assert [job.id for job in self.host.running()] == ["a"]
        ended = self.ended("a")
        assert (ended.reason, ended.exit_code) == ("exit", -signal.SIGTERM)

    def test_a_job_that_ends_just_before_its_host_has_not_failed(self):
        self.end_from_outside("a")
        self.host.finish(0.0, "closed", "The allocation ends.")
        ended = self.ended("a")
        assert (ended.reason, ended.message) == ("closed", "The allocation ends.")

    def test_a_job_can_be_cancelled_during_the_verdict_delay(self):
        self.end_from_outside("a")
        self.host.kill(["a"])
        assert self.ended("a").reason == "exit"
        assert not self.host.busy


class NoVerdictDelay(HostTest):
    verdict_delay = 1000.0

    def test_other_ends_are_recorded_at_once(self):
        assert self.run_job("true", id="b").exit_code == 0
        assert self.run_job("/bin/sh", "-c", "exit 3", id="c").exit_code == 3
