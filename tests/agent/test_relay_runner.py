"""The relay in C: the tests of hosts without a relay, and tests of its own features."""

from __future__ import annotations

import itertools
import math
import os
import random
import resource
import select
import shutil
import signal
import sysconfig
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from qcg.pilotjob.host.captured_output import LIMIT
from qcg.pilotjob.host.job import ActiveJob
from qcg.pilotjob.host.jobhost import JobHost
from qcg.pilotjob.host.lane_runner import Handover
from qcg.pilotjob.host.ledger import Ledger
from qcg.pilotjob.host.process_tree import read_process
from qcg.pilotjob.host.records import SHARED, Ended, Launch
from tests.host import (
    test_host_files,
    test_host_finish,
    test_host_jobs,
    test_host_lanes,
    test_host_output,
    test_host_signals,
    test_host_spawn,
)
from tests.host.driver import SHELL, HostTest, wait_for

try:
    from qcg.pilotjob.agent import _relay
    from qcg.pilotjob.agent.relay_runner import RelayLaneRunner
except ImportError:
    if shutil.which("cc") and Path(sysconfig.get_paths()["include"], "Python.h").exists():
        raise
    pytest.skip("the relay cannot be compiled on this machine", allow_module_level=True)

_WAITS = "until test -e %s; do sleep 0.01; done"


class CountingRunner(RelayLaneRunner):
    started = 0
    """The number of jobs started by the relay."""
    takes = 0
    """The number of times that handovers were taken."""

    def take(self) -> list[Handover]:
        handovers = super().take()
        self.started += sum(1 for handover in handovers if handover[2])
        self.takes += 1
        return handovers


class WithARelay(HostTest):
    runner: CountingRunner

    def open_host(self) -> None:
        self.ledger = Ledger(self.ledger_path)
        self.runner = CountingRunner(self.ledger, wakeup=self.wakeup, pause=0.02, open_files=self.open_files)
        self.host = JobHost(
            self.ledger,
            "n1",
            self.path("files"),
            self.grace,
            self.log.append,
            self.verdict_delay,
            self.path("out"),
            self.open_files,
            self.runner,
        )


class BehindAnother(WithARelay):
    """Each job is started by the relay where possible."""

    def setUp(self) -> None:
        super().setUp()
        self._numbers = itertools.count()

    def run_job(self, *argv: str, **other: Any) -> Ended:
        id = other.pop("id", "job")
        number = next(self._numbers)
        lead, go = f"lead{number}", f"go{number}"
        waits = ("-c", _WAITS % self.path(go))
        self.host.start([self.launch(lead, SHELL, *waits), self.launch(id, *argv, lane=lead, **other)])
        self.until(lambda: lead in self.host._jobs and id in self.host._queued, "the first of the lane")
        self.turn(0.0)
        with open(self.path(go), "w"):
            pass
        return self.ended(id)


class Ends(WithARelay, test_host_jobs.Ends): ...


class Identity(WithARelay, test_host_jobs.Identity): ...


class Kills(WithARelay, test_host_jobs.Kills): ...


class Stubborn(WithARelay, test_host_jobs.Stubborn): ...


class ShortGrace(WithARelay, test_host_jobs.ShortGrace): ...


class Finish(WithARelay, test_host_finish.Finish): ...


class AfterACrash(WithARelay, test_host_jobs.AfterACrash): ...


class Lanes(WithARelay, test_host_lanes.Lanes): ...


class Files(WithARelay, test_host_files.FilesOfALaunch): ...


class Signals(WithARelay, test_host_signals.Signals): ...


class Reasons(WithARelay, test_host_signals.Reasons): ...


class Sweeps(WithARelay, test_host_signals.Sweeps): ...


class VerdictDelay(WithARelay, test_host_signals.VerdictDelay): ...


class ProcessSetup(BehindAnother, test_host_spawn.ProcessSetup): ...


class Streams(BehindAnother, test_host_spawn.Streams): ...


class Output(BehindAnother, test_host_output.Output): ...


class Reports(BehindAnother, test_host_spawn.Reports): ...


class Unstartable(BehindAnother, test_host_spawn.Unstartable): ...


class Relayed(WithARelay):
    def lane(self, *launches: Launch) -> None:
        """Queue these jobs behind a job that runs until it is released."""
        self.host.start([self.launch("first", SHELL, "-c", _WAITS % self.path("go"))])
        self.host.start([launch._replace(lane="first") for launch in launches])
        self.until(lambda: "first" in self.runner.lanes(), "the lane being given to the relay")

    def let_go(self) -> None:
        with open(self.path("go"), "w"):
            pass

    def script(self, id: str, text: str, **other: Any) -> Launch:
        return self.launch(id, SHELL, "-c", text, **other)

    def test_the_relay_starts_jobs_in_order_and_reports_many_at_once(self) -> None:
        ids = [str(number) for number in range(50)]
        self.lane(*(self.script(id, f"echo {id} >> order") for id in ids))
        self.runner.pause = 1000.0  # on a busy machine a job may take longer than the usual one
        before = self.runner.takes
        self.let_go()
        self.ended("49")
        assert self.text("order").split() == ids
        assert self.runner.started == 50
        assert self.runner.takes - before < 40
        assert all(self.ended(id).exit_code == 0 and self.ended(id).started > 0 for id in ids)

    def test_a_job_that_fails_gives_the_lane_back_and_the_next_job_starts(self) -> None:
        self.lane(*(self.script(str(number), f"echo {number} >> order; exit {number % 2}") for number in range(6)))
        self.let_go()
        assert [self.ended(str(number)).exit_code for number in range(6)] == [0, 1] * 3
        assert self.text("order").split() == list("012345")

    def test_output_is_captured_for_each_job_and_dropped_when_it_succeeds(self) -> None:
        before = set(os.listdir("/proc/self/fd"))
        script = "echo from {0}; exit {1}"
        jobs = [
            self.script(str(number), script.format(number, int(number == 49)), output=f"j.{number}")
            for number in range(50)
        ]
        self.lane(*jobs)
        self.let_go()
        assert self.ended("49").exit_code == 1
        assert self.runner.started == 50
        assert os.listdir(self.path("out")) == ["j.49.out"]
        assert self.text("out/j.49.out") == "from 49\n"
        wait_for(lambda: set(os.listdir("/proc/self/fd")) <= before, "the end of the lane")

    def test_checks_of_captured_output_follow_handovers(self) -> None:
        """The relay closes descriptors of a successful job, and the kernel reuses their numbers."""
        jobs = [self.script(str(number), f"echo {number}", output=str(number)) for number in range(200)]
        jobs.append(
            self.script("last", f"head -c {4 * LIMIT} /dev/zero; {_WAITS % self.path('stop')}; exit 1", output="last")
        )
        with mock.patch.multiple("qcg.pilotjob.host.captured_output", _FIRST_PAUSE=0.0, _SHORTEST_PAUSE=0.0):
            self.lane(*jobs)
            self.let_go()
            self.until(lambda: "last" in self.host._jobs, "the start of the last one")
            captured = self.host._jobs["last"].output
            assert captured is not None
            self.until(lambda: os.fstat(captured.stdout).st_size == 4 * LIMIT, "its output")
            self.until(lambda: os.fstat(captured.stdout).st_blocks * 512 <= LIMIT, "a look at it")
        with open(self.path("stop"), "w"):
            pass
        assert self.ended("last").exit_code == 1
        assert os.listdir(self.path("out")) == ["last.out"]

    def test_output_is_captured_while_the_process_has_the_limit_of_jobs(self) -> None:
        """As while Python starts a job of another lane."""
        self.close_host()
        self.open_files = 64
        self.open_host()
        self.lane(self.script("a", "echo said; exit 1", output="a"))
        with open(self.path("ready"), "w"):
            pass
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        os.rename(self.path("ready"), self.path("go"))
        assert self.ended("a").exit_code == 1
        assert self.runner.started == 1
        assert self.text("out/a.out") == "said\n"

    def test_a_check_of_captured_output_does_not_wait_for_a_blocked_start(self) -> None:
        self.host.start([self.script("a", _WAITS % self.path("go"), output="a")])
        self.until(lambda: "a" in self.host._jobs, "its start")
        with mock.patch.object(_relay, "enter_within", return_value=False) as enter:
            self.until(lambda: enter.called, "a look")
            next_trim = self.host._setup.outputs.next_trim
            assert next_trim is not None
            assert next_trim > time.monotonic()
        self.let_go()
        assert self.ended("a").exit_code == 0

    def test_the_relay_kills_the_process_group_of_an_ended_job(self) -> None:
        self.lane(self.script("a", "sleep 1000 & echo $! > pid"), self.launch("b", "true"))
        self.let_go()
        self.ended("b")
        self.assert_gone([int(self.text("pid"))])

    def test_a_job_started_by_the_relay_has_its_wall_time(self) -> None:
        self.lane(self.launch("a", "true"), self.launch("b", "sleep", "1000", wall_time=0.1))
        self.let_go()
        assert self.ended("b").reason == "timeout"
        assert self.runner.started == 2

    def test_a_clock_set_forward_does_not_shorten_a_wall_time(self) -> None:
        self.lane(self.launch("a", "sleep", "1000", wall_time=1000.0))
        self.let_go()
        with mock.patch("time.time", return_value=time.time() + 3600):
            wait_for(lambda: any(one.id == "a" and one.pid for one in self.host.running()), "the start of the last one")
        deadline = self.host.next_deadline()
        assert deadline is not None
        assert 900 < deadline - time.monotonic() < 1000

    def test_no_job_is_started_and_none_succeeds_once_the_host_is_cut_off(self) -> None:
        self.lane(self.launch("a", "touch", "started"))
        self.host.cut_off.begin("it is cut off")
        self.let_go()
        wait_for(lambda: _ended(self.host._jobs["first"].start.pid), "the end of the first")
        self.host.lose_all()
        assert self.ended("first").reason == "lost"
        assert not os.path.exists(self.path("started"))

    def test_no_job_is_started_while_the_ledger_cannot_be_written(self) -> None:
        self.lane(self.script("a", "echo a >> order"), self.script("b", "echo b >> order"))
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(self.ledger_path) + 5, hard))
        try:
            self.let_go()
            self.until(lambda: self.host.start_problem, "the trouble")
            assert not os.path.exists(self.path("order"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        assert self.ended("b").exit_code == 0
        assert self.text("order").split() == ["a", "b"]

    def test_handovers_before_a_crash_are_found_in_the_ledger(self) -> None:
        self.lane(self.launch("a", "true"), self.launch("b", "touch", "done"), self.script("c", "exec sleep 1000"))
        self.let_go()
        wait_for(lambda: os.path.exists(self.path("done")) and b'"c"' in self.ledger_lines()[-1], "the last one")
        self.host.close()
        self.ledger.close()
        self.records = []
        self.open_host()
        ends = {body.id: body for _, body in self.host.report()[0] if isinstance(body, Ended)}
        assert {id: (body.exit_code, body.reason) for id, body in ends.items()} == dict.fromkeys(
            ["first", "a", "b"], (0, "exit")
        )
        assert self.ended("c").reason == "lost"

    def ledger_lines(self) -> list[bytes]:
        with open(self.ledger_path, "rb") as file:
            return file.read().splitlines()

    def test_a_new_file_of_the_ledger_is_written_from_then_on(self) -> None:
        self.lane(self.launch("a", "true"), self.launch("b", "true"))
        with mock.patch.multiple(self.ledger, _compacted_size=lambda: 0, sync_due=lambda: 0.0, _compact_above=0):
            self.host.sync_ledger()
        self.turn(0.0)
        self.let_go()
        self.ended("b")
        assert self.runner.started == 2
        assert any(line.startswith(b'["x","a"') for line in self.ledger_lines())

    def test_directories_and_shared_files_are_made_without_leaving_the_lane(self) -> None:
        shared = {SHARED + "hosts": "n1\n"}
        self.lane(
            self.launch("a", "true", wd=self.path("new/folder")),
            self.script("b", f"cat {self.path('files')}/{SHARED}hosts", stdout="new/b/out", files=shared),
            self.launch("c", "true", stdout="new/c/out", stderr="new/c/out"),
        )
        self.let_go()
        assert [self.ended(id).exit_code for id in "abc"] == [0, 0, 0]
        assert self.runner.started == 3
        assert os.path.isdir(self.path("new/folder"))
        assert self.text("new/b/out") == "n1\n"
        assert self.text("new/c/out") == ""

    def test_the_job_host_is_notified_at_once_of_a_job_that_cannot_be_started(self) -> None:
        self.lane(self.launch("a", "true"), self.launch("b", "/no/such/program"), self.launch("c", "true"))
        self.runner.pause = 1000.0
        self.host._handovers_taken_at = time.monotonic()
        self.let_go()
        assert self.ended("c").exit_code == 0
        assert self.ended("b").reason == "unstartable"

    def test_no_job_is_started_after_the_start_deadline(self) -> None:
        self.lane(self.script("a", "echo a >> order"))
        self.host.set_start_deadline(time.monotonic())
        self.let_go()
        self.ended("first")
        self.turn(0.0)
        assert not os.path.exists(self.path("order"))
        assert [running.id for running in self.host.running()] == ["a"]
        self.host.set_start_deadline(math.inf)
        assert self.ended("a").exit_code == 0

    def test_a_pid_may_be_used_again_before_its_handover_is_taken(self) -> None:
        self.lane(self.launch("a", "true"), self.launch("b", "sleep", "1000"))
        first = self.host._jobs["first"]
        self.let_go()
        wait_for(lambda: self.ledger_lines()[-1].startswith(b'["b","b"'), "the start of the last one")
        _relay.enter()
        impostor = ActiveJob("impostor", first.start, -1, has_files=False)
        self.host._jobs["impostor"] = self.host._by_pid[first.start.pid] = impostor
        self.host._record_handovers()
        _relay.leave()
        assert sorted(self.host._jobs) == ["b", "impostor"]
        assert self.host._by_pid[first.start.pid] is impostor
        del self.host._jobs["impostor"], self.host._by_pid[first.start.pid]

    def test_a_lane_that_is_taken_back_and_offered_again_has_one_thread(self) -> None:
        self.lane(self.launch("a", "true"))
        threads = len(os.listdir("/proc/self/task"))
        for number in range(20):
            self.host.start([self.launch(str(number), "true", lane="first")])
            self.host.retract([str(number)])
            self.turn(0.0)
            assert "first" in self.runner.lanes()
        # A thread that has ended may be visible for a moment longer.
        wait_for(lambda: len(os.listdir("/proc/self/task")) <= threads, "no more threads than before")
        self.let_go()
        assert self.ended("a").exit_code == 0
        assert self.runner.started == 1

    def test_a_lane_is_not_lost_when_others_end_at_the_same_time(self) -> None:
        self.lane(self.launch("a", "true"), self.launch("b", "true"))
        _relay.enter()
        self.let_go()
        self.host.start([self.launch("other", "true")])
        self.host.advance()
        for id in ("first", "other"):
            wait_for(lambda id=id: _ended(self.host._jobs[id].start.pid), f"the end of {id}")
        self.host.children_ended()
        assert "first" in self.host._jobs
        _relay.leave()
        assert [self.ended(id).exit_code for id in ("first", "a", "b", "other")] == [0, 0, 0, 0]
        assert self.runner.started == 2

    def test_the_job_host_starts_the_jobs_of_a_lane_without_a_thread(self) -> None:
        with mock.patch.object(_relay, "watch", return_value=False):
            self.host.start([self.launch("first", "true"), self.launch("a", "true", lane="first")])
            assert self.ended("a").exit_code == 0
        assert self.runner.started == 0

    def test_a_low_process_limit_leaves_most_processes_to_jobs(self) -> None:
        self.runner._most_lanes = 1
        names = ["one", "two", "three"]
        self.host.start([self.script(name, _WAITS % self.path("go")) for name in names])
        self.host.start([self.launch(f"{name}-{n}", "true", lane=name) for name in names for n in range(2)])
        self.until(lambda: len(self.host._jobs) == 3, "the first of all lanes")
        assert self.runner.lanes() == ["one"]
        self.let_go()
        assert [self.ended(f"{name}-1").exit_code for name in names] == [0, 0, 0]

    def test_jobs_are_bound_to_the_cores_of_their_lanes(self) -> None:
        cores = sorted(os.sched_getaffinity(0))[:2]
        for core in cores:
            lane = f"first{core}"
            self.host.start([self.script(lane, _WAITS % self.path("go"), cores=(core,))])
            command = f"taskset -cp $$ > {core}.$N"
            for number in range(3):
                line = self.script(f"{core}-{number}", command, cores=(core,), lane=lane)
                self.host.start([line._replace(env={**line.env, "N": str(number)})])
            self.until(lambda lane=lane: lane in self.runner.lanes(), "the lane being given to the relay")
        self.let_go()
        for core in cores:
            for number in range(3):
                assert self.ended(f"{core}-{number}").exit_code == 0
                assert self.text(f"{core}.{number}").split()[-1] == str(core)
        assert self.runner.started == 3 * len(cores)

    def test_sigchld_for_other_children_is_written_once(self) -> None:
        for _ in range(20):
            os.waitid(os.P_PID, os.posix_spawn("/bin/true", ["true"], {}), os.WEXITED | os.WNOWAIT)
        wait_for(lambda: select.select([self._wake], [], [], 0)[0], "the word of it")
        # The signal is written a second time where another thread of the tests, which does not block it, got the first
        # one.
        assert os.read(self._wake, 4096).count(signal.SIGCHLD) <= 2
        self.host.reap()
        os.waitid(os.P_PID, os.posix_spawn("/bin/true", ["true"], {}), os.WEXITED | os.WNOWAIT)
        wait_for(lambda: select.select([self._wake], [], [], 0)[0], "the word of it")

    def test_jobs_that_are_killed_and_retracted_all_the_time_run_at_most_once(self) -> None:
        chance = random.Random(4711)
        names = [f"lane{number}" for number in range(4)]
        ids = [f"{name}-{number}" for name in names for number in range(60)]
        self.host.start([self.script(name, "exit 0") for name in names])
        for id in ids:
            script = f"echo {id} >> order; echo {id}"
            self.host.start([self.script(id, script, lane=id.split("-")[0], output=id)])
            if chance.random() < 0.1:
                self.turn(0.0)
            if chance.random() < 0.1:
                self.host.retract(chance.sample(ids, 3))
            if chance.random() < 0.1:
                self.host.kill(chance.sample(ids, 2))
        ends = {id: self.ended(id) for id in ids}
        ran = self.text("order").split()
        assert len(ran) == len(set(ran))
        assert set(ran) >= {id for id in ids if ends[id].reason == "exit"}
        assert set(ran) <= {id for id in ids if ends[id].pid}
        assert self.runner.started


def _ended(pid: int) -> bool:
    process = read_process(pid)
    return process is not None and process.dead


del HostTest
