"""The end of all jobs of a host. Python 3.6 reads this file."""

import os
import signal
import time
from unittest import mock

from qcg.pilotjob.host import process_tree
from tests.host.driver import TREE, HostTest, alive, wait_for


class Finish(HostTest):
    def test_finish_ends_all_jobs_and_records_each_end(self):
        pids = self.start_shell("a", TREE)
        self.host.start([self.launch("queued", "true")])
        self.host.finish(10.0, "lost", "The agent was told to end.")
        self.until(lambda: not self.host.busy, "the end of everything")
        self.records.extend(self.host.take_records())
        self.assert_gone(pids)
        assert {self.find_ended(id).reason for id in ("a", "queued")} == {"lost"}
        assert self.find_ended("a").message == "The agent was told to end."
        assert self.find_ended("queued").pid == 0

    def test_a_job_that_succeeds_before_the_first_signal_has_not_been_closed(self):
        self.start_waiting_job()
        self.host.finish(10.0, "closed", "The manager ends.")
        self.let_job_end()
        ended = self.ended("a")
        assert (ended.reason, ended.exit_code, ended.message) == ("exit", 0, "")

    def test_a_job_that_succeeds_while_its_processes_are_read_has_not_been_closed(self):
        self.start_waiting_job()
        self.host.finish(10.0, "closed")
        snapshot = process_tree.Snapshot()
        self.let_job_end()
        with mock.patch.object(process_tree, "Snapshot", side_effect=[snapshot]):
            self.host.due(time.monotonic())
        assert self.ended("a").reason == "exit"

    def test_a_job_that_fails_before_the_first_signal_is_closed(self):
        # The signal may have come from the batch system, which tells the host and its jobs to end.
        self.start_waiting_job("exit 3")
        self.host.finish(10.0, "closed")
        self.let_job_end()
        assert (self.ended("a").reason, self.ended("a").exit_code) == ("closed", 3)

    def test_a_job_that_succeeds_after_its_cancel_and_before_the_signal_is_cancelled(self):
        self.start_waiting_job()
        self.host.kill(["a"])
        self.let_job_end()
        assert self.ended("a").reason == "cancel"

    def test_a_job_that_answers_the_signal_with_success_is_closed(self):
        self.start_shell("a", "trap 'exit 0' TERM; echo $$ > pids; touch ready; while :; do sleep 0.01; done")
        self.host.finish(10.0, "closed")
        assert (self.ended("a").reason, self.ended("a").exit_code) == ("closed", 0)

    def start_waiting_job(self, last="exit 0"):
        """Start a job that ends when `let_job_end` is called."""
        os.mkfifo(self.path("go"))
        (self.waiting,) = self.start_shell("a", f"echo $$ > pids; touch ready; read line < go; {last}")

    def let_job_end(self):
        with open(self.path("go"), "w") as file:
            file.write("go\n")
        wait_for(lambda: not alive(self.waiting), "the end of the job")

    def test_finish_starts_no_queued_job(self):
        self.host.finish(1.0)
        assert self.run_job("touch", "ran").reason == "cancel"
        assert not os.path.exists(self.path("ran"))

    def test_a_second_finish_can_be_faster(self):
        pids = self.start_shell("a", "trap '' TERM; echo $$ > pids; touch ready; while :; do sleep 0.01; done")
        self.host.finish(1000.0)
        self.turn(0.0)
        assert alive(pids[0])
        self.host.finish(0.0)
        assert self.ended("a").exit_code == -signal.SIGKILL
