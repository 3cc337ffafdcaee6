"""Jobs that use the same cores one after another. Python 3.6 reads this file."""

import os
import time
import unittest

from qcg.pilotjob.host.records import Ended, Started
from tests.host.driver import SHELL, HostTest

WAITS = "until test -e go; do sleep 0.01; done"


class Lanes(HostTest):
    def lane(self, *ids, **other):
        """Queue these jobs behind a job that runs until it is released."""
        self.host.start([self.launch("first", SHELL, "-c", WAITS)])
        self.until(lambda: self.started("first"), "the start of the first")
        self.host.start([self.launch(id, "true", lane="first", **other) for id in ids])

    def let_go(self):
        with open(self.path("go"), "w"):
            pass

    def started(self, id):
        return any(isinstance(body, Started) and body.id == id for _, body in self.records)

    def ran(self):
        """The jobs that ran and have ended, in the order of their ends."""
        return [body.id for _, body in self.records if isinstance(body, Ended) and body.pid]

    def reported(self):
        return [(type(body).__name__, body.id) for _, body in self.records]

    def test_each_job_of_a_lane_starts_when_the_job_before_has_ended(self):
        self.lane("a", "b", "c")
        self.turn(0.05)
        assert self.reported() == [("Started", "first")]
        assert [(running.id, running.pid > 0) for running in self.host.running()] == [
            ("first", True),
            ("a", False),
            ("b", False),
            ("c", False),
        ]
        self.let_go()
        self.ended("c")
        assert self.ran() == ["first", "a", "b", "c"]
        ends = [self.ended(id) for id in self.ran()]
        assert all(ends[number].at <= ends[number + 1].started for number in range(3))
        assert not self.host.busy

    def test_a_job_for_an_empty_lane_starts_at_once(self):
        self.run_job("true", id="first")
        self.host.start([self.launch("a", "true", lane="first"), self.launch("b", "true", lane="first")])
        self.ended("b")
        assert self.ran() == ["first", "a", "b"]

    def test_a_job_that_cannot_be_started_is_followed_by_the_next_job(self):
        self.lane("a")
        self.host.start([self.launch("b", "/no/such/program", lane="first"), self.launch("c", "true", lane="first")])
        self.let_go()
        assert self.ended("c").exit_code == 0
        assert self.ended("b").reason == "unstartable"

    def test_a_job_past_its_wall_time_is_followed_by_the_next_job_in_the_same_turn(self):
        self.host.start([self.launch("first", "sleep", "1000", wall_time=0.0)])
        self.host.start([self.launch("a", "sleep", "1000", lane="first")])
        self.until(lambda: any(running.id == "a" and running.pid for running in self.host.running()), "the start of a")
        assert self.find_ended("first").reason == "timeout"

    def test_a_job_cancelled_in_its_lane_is_skipped(self):
        self.lane("a", "b", "c")
        self.host.kill(["b"])
        assert self.ended("b") == Ended("b", self.ended("b").at, -1, "cancel", "", 0, 0.0)
        assert not self.started("c")
        self.let_go()
        self.ended("c")
        assert self.ran() == ["first", "a", "c"]

    def test_a_job_cancelled_before_its_start_is_followed_by_the_next_job(self):
        self.host.start([self.launch("first", "true"), self.launch("a", "true", lane="first")])
        self.host.kill(["first"])
        assert self.ended("a").exit_code == 0
        assert not self.started("first")

    def test_waiting_jobs_are_retracted_and_running_jobs_stay(self):
        self.lane("a", "b")
        self.host.retract(["first", "a", "b", "unknown"])
        assert (self.ended("a").reason, self.ended("b").reason) == ("closed", "closed")
        assert [running.id for running in self.host.running()] == ["first"]
        self.host.start([self.launch("c", "true", lane="first")])
        self.let_go()
        self.ended("c")
        assert self.ran() == ["first", "c"]
        assert self.host.start([self.launch("a", "true")]) == ["a"]

    def test_finish_starts_no_waiting_job_of_a_lane(self):
        self.lane("a", "b")
        self.host.finish(0.0)
        self.until(lambda: not self.host.busy, "the end")
        self.turn(0.0)
        assert self.ran() == ["first"]
        assert sorted(id for kind, id in self.reported() if kind == "Ended") == ["a", "b", "first"]

    def test_a_cut_off_host_starts_no_waiting_job_and_accepts_jobs_later(self):
        self.lane("a", "b")
        self.host.cut_off.begin("it is cut off")
        self.host.lose_all()
        self.ended("first")
        assert not self.host.busy
        self.host.cut_off.end(1)
        self.host.start([self.launch("c", "true"), self.launch("d", "true", lane="c")])
        self.ended("d")
        assert self.ran() == ["first", "c", "d"]
        assert not self.host.records_can_wait

    def test_a_killed_agent_leaves_no_trace_of_waiting_jobs(self):
        self.lane("a")
        self.host.close()
        self.ledger.close()
        self.records = []
        self.open_host()
        assert self.ended("first").reason == "lost"
        assert not self.ledger.knows("a")
        assert not os.path.exists(self.path("go"))

    def test_records_can_wait_while_every_lane_is_busy(self):
        self.lane("a", "b")
        assert self.host.records_can_wait
        self.let_go()
        self.until(lambda: self.find_ended("first"), "the end of the first")
        self.ended("b")
        assert not self.host.records_can_wait


class OneTurn(HostTest):
    verdict_delay = 1000.0

    def test_a_lane_that_becomes_free_in_a_turn_gets_its_next_job_in_the_same_turn(self):
        self.host.start([self.launch("first", SHELL, "-c", "kill -9 $$")])
        self.host.advance()
        self.host.start([self.launch("next", "true", lane="first")])
        self.until(self.host.next_deadline, "the exit code of the first")
        self.host.turn(time.monotonic() + 2 * self.verdict_delay)
        assert [(job.id, job.pid > 0) for job in self.host.running()] == [("next", True)]


if __name__ == "__main__":
    unittest.main()
