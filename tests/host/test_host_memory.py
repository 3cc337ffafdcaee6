"""Memory limits of jobs, enforced by a job host with real processes. Python 3.6 reads this file."""

import errno
import os
import signal
import subprocess
import time
import unittest
from unittest import mock

from qcg.pilotjob.host import memory_limits, process_tree
from qcg.pilotjob.host.memory_groups import MemoryGroups
from qcg.pilotjob.host.termination import Termination
from tests.host.driver import HostTest, own_peak, python

MIB = 1 << 20
MKDIR = os.mkdir
EAT = "import time\nblocks = []\nwhile True:\n    blocks.append(bytearray(4 << 20))\n    time.sleep(0.01)\n"
WAIT = "import time\ntime.sleep(60)\n"


class MemoryLimitTest(HostTest):
    def test_a_job_that_uses_too_much_is_ended_with_a_message_that_names_limit_and_peak(self):
        ended = self.run_job(*python(EAT), memory=100)
        assert ended.reason == "memory"
        assert ended.exit_code == -9
        assert "MiB of memory, more than the 100.0 MiB of its limit; ask for more with" in ended.message
        assert ended.usage.memory << 10 > 100 * MIB

    def test_a_job_over_its_limit_gets_no_signal_before_it_is_killed(self):
        handler = "import os, signal\ndef end(*_):\n    open('sig', 'w').close()\n    os._exit(0)\n"
        ended = self.run_job(*python(handler + "signal.signal(signal.SIGTERM, end)\n" + EAT), memory=100)
        assert (ended.reason, ended.exit_code) == ("memory", -9)
        assert not os.path.exists(self.path("sig"))

    def test_a_job_that_has_succeeded_before_it_is_killed_succeeds(self):
        code = "import time\nblock = bytearray(200 << 20)\ntime.sleep(0.5)\n"
        self.host.start([self.launch("job", *python(code), memory=100)])
        measure = self.host._limits.memory.measure

        def measure_slowly(now, jobs):
            over = measure(now, jobs)
            if over:
                os.waitid(os.P_PID, over[0][0].start.pid, os.WEXITED | os.WNOWAIT)
            return over

        with mock.patch.object(self.host._limits.memory, "measure", measure_slowly):
            ended = self.ended("job")
        assert (ended.reason, ended.exit_code, ended.message) == ("exit", 0, "")

    def test_a_job_that_stays_below_its_limit_succeeds(self):
        code = "import time\nblock = bytearray(60 << 20)\ntime.sleep(0.3)\n"
        ended = self.run_job(*python(code), memory=200)
        assert (ended.reason, ended.exit_code, ended.message) == ("exit", 0, "")
        assert 60 * MIB <= ended.usage.memory << 10 <= max(200 * MIB, own_peak())

    def test_a_thousand_children_are_counted_together(self):
        # Each child writes 1 MiB of its own; memory shared with the parent counts once.
        code = (
            "import os, time\nfor number in range(1000):\n    if os.fork() == 0:\n"
            "        block = bytearray(os.urandom(1 << 20))\n        time.sleep(60)\n        os._exit(0)\n" + WAIT
        )
        ended = self.run_job(*python(code), memory=600)
        assert ended.reason == "memory"
        assert ended.usage.memory << 10 > 600 * MIB

    def test_memory_that_processes_share_counts_once(self):
        code = (
            "import os, time\nblock = bytearray(os.urandom(50 << 20))\nchildren = []\nfor number in range(10):\n"
            "    pid = os.fork()\n    if pid == 0:\n        time.sleep(0.5)\n        os._exit(0)\n"
            "for number in range(10):\n    os.wait()\n"
        )
        ended = self.run_job(*python(code), memory=200)
        assert (ended.reason, ended.exit_code) == ("exit", 0), ended.message

    def test_processes_that_end_while_memory_is_measured_count_nothing(self):
        processes = [subprocess.Popen(["/bin/sleep", "60"]) for _ in range(3)]
        content = memory_limits._content

        def end_before_details(path):
            if path.endswith("/smaps_rollup"):
                for process in processes:
                    os.kill(process.pid, signal.SIGKILL)
                    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            return content(path)

        try:
            with mock.patch.object(memory_limits, "_content", end_before_details):
                used = memory_limits._memory_of([process.pid for process in processes], 0)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        assert used == 0

    def test_a_child_that_left_the_session_of_its_job_is_counted(self):
        child = (
            "import os, subprocess, sys\nsubprocess.Popen([sys.executable, '-S', '-c', %r], start_new_session=True)\n"
        )
        ended = self.run_job(*python(child % EAT + WAIT), memory=100)
        assert ended.reason == "memory"

    def test_all_processes_of_the_job_are_gone_afterwards(self):
        eat = self.path("eat.py")
        with open(eat, "w", encoding="utf-8") as file:
            file.write(EAT)
        script = '"$0" -S -c "import time; time.sleep(60)" & echo $! > pids; touch ready; exec "$0" -S "$1"'
        pids = self.start_shell("job", script.replace("$1", eat).replace("$0", python("")[0]), memory=100)
        assert self.ended("job").reason == "memory"
        self.assert_gone(pids)

    def test_jobs_without_a_limit_are_not_watched(self):
        with mock.patch.object(process_tree, "Snapshot") as snapshot:
            self.run_job(*python("import time; time.sleep(0.2)"))
        assert self.host._limits.memory.next_measurement is None
        snapshot.assert_not_called()

    def test_watching_ends_with_the_last_job_that_has_a_limit(self):
        self.run_job("/bin/true", memory=100)
        assert self.host._limits.memory.next_measurement is None

    def test_memory_checks_take_a_small_part_of_the_time(self):
        limits = memory_limits.MemoryLimits(self.log.append)
        limits._groups = MemoryGroups(self.log.append, own="")
        self.host.start([self.launch("job", *python(WAIT), memory=1000)])
        self.until(lambda: "job" in self.host._jobs, "the start")
        limits.begin(self.host._jobs["job"])

        def slow_snapshot():
            end = time.process_time() + 0.04
            while time.process_time() < end:
                pass
            return mock.Mock()

        no_processes = mock.patch.object(Termination, "members", return_value={})
        with no_processes, mock.patch.object(process_tree, "Snapshot", slow_snapshot):
            began = time.monotonic()
            limits.measure(began, self.host._jobs)
        assert limits.next_measurement
        assert limits.next_measurement - began >= 0.03 / memory_limits.MOST_WORK


class KernelKillTest(HostTest):
    def test_a_job_that_the_kernel_killed_for_its_memory_fails_with_that_cause(self):
        events = self.path("memory.events")
        self._write_kills(events, 3)
        with mock.patch.object(memory_limits, "_events_path", return_value=events):
            self.host._limits.memory = memory_limits.MemoryLimits(self.log.append)
        killed = self.run_job("/bin/sh", "-c", "kill -9 $$", id="by hand")
        assert (killed.reason, killed.exit_code, killed.message) == ("exit", -9, "")
        self._write_kills(events, 4)
        killed = self.run_job("/bin/sh", "-c", "kill -9 $$", id="by the kernel")
        assert (killed.reason, killed.exit_code) == ("memory", -9)
        assert killed.message == memory_limits.OUT_OF_MEMORY
        killed = self.run_job("/bin/sh", "-c", "kill -9 $$", id="by hand again")
        assert killed.reason == "exit"

    def _write_kills(self, path, count):
        with open(path, "w", encoding="ascii") as file:
            file.write(f"low 0\nmax 17\noom 2\noom_kill {count}\n")


class MemoryGroupTest(HostTest):
    """Directories stand in for cgroups: the kernel of the machine may have none of version 2 with memory.
    `real_cgroups.py` tests with real ones."""

    def setUp(self):
        HostTest.setUp(self)
        self.own = self.path("cgroup")
        self._make_group(self.own, controllers="cpu memory", subtree_control="memory")
        self.made = []

    def _make_group(self, path, **files):
        os.mkdir(path)
        for name, text in files.items():
            self._fill(path, "cgroup." + name, text)

    def _fill(self, group, name, text):
        with open(os.path.join(group, name), "w", encoding="ascii") as file:
            file.write(text)

    def _content(self, group, name):
        with open(os.path.join(group, name), encoding="ascii") as file:
            return file.read()

    def _mkdir(self, path):
        """The kernel fills a new cgroup with files."""
        MKDIR(path)
        self.made.append(path)
        for name in ("memory.max", "memory.swap.max", "memory.oom.group", "cgroup.procs"):
            self._fill(path, name, "")

    def _groups(self):
        return MemoryGroups(self.log.append, own=self.own)

    def _host_with_groups(self):
        self.host._limits.memory._groups = self._groups()

    def test_a_job_with_a_limit_gets_a_cgroup_of_its_own(self):
        self._host_with_groups()
        with mock.patch.object(os, "mkdir", self._mkdir):
            self.host.start([self.launch("7:3.1", *python(WAIT), memory=100)])
            self.until(lambda: self.made, "the cgroup")
        (group,) = self.made
        pid = self.until(lambda: self.host._jobs.get("7:3.1"), "the job").start.pid
        assert os.path.basename(group) == f"qcg-pm-{os.getpid()}-7-3.1"
        assert self._content(group, "memory.max") == str(100 * MIB)
        assert (self._content(group, "memory.swap.max"), self._content(group, "memory.oom.group")) == ("0", "1")
        assert self._content(group, "cgroup.procs") == str(pid)
        assert self.host._limits.memory.next_measurement is None, "it need not be watched"

    def test_a_job_that_the_kernel_ended_at_its_limit_fails_with_limit_and_peak(self):
        self._host_with_groups()
        with mock.patch.object(os, "mkdir", self._mkdir):
            self.host.start([self.launch("job", *python(WAIT), memory=100)])
            self.until(lambda: self.made, "the cgroup")
        (group,) = self.made
        self._fill(group, "memory.events", "oom 1\noom_kill 1\noom_group_kill 1\n")
        self._fill(group, "memory.peak", str(100 * MIB))
        self._fill(group, "cpu.stat", "usage_usec 9000000\nuser_usec 8000000\nsystem_usec 1000000\n")
        os.kill(self.host._jobs["job"].start.pid, 9)
        ended = self.ended("job")
        assert (ended.reason, ended.exit_code) == ("memory", -9)
        assert ended.message.startswith(
            "The job used all of the 100.0 MiB of memory of its limit, and the kernel ended"
        )
        assert (ended.usage.memory, ended.usage.user, ended.usage.system) == (100 << 10, 8_000_000, 1_000_000)

    def test_a_job_below_its_limit_that_the_kernel_ended_is_not_said_to_have_used_all_of_it(self):
        self._host_with_groups()
        with mock.patch.object(os, "mkdir", self._mkdir):
            self.host.start([self.launch("job", *python(WAIT), memory=100)])
            self.until(lambda: self.made, "the cgroup")
        self._fill(self.made[0], "memory.events", "oom 0\noom_kill 1\n")
        os.kill(self.host._jobs["job"].start.pid, 9)
        ended = self.ended("job")
        assert (ended.reason, ended.message) == ("memory", memory_limits.OUT_OF_MEMORY)

    def test_a_job_that_succeeds_in_its_cgroup_has_its_peak(self):
        self._host_with_groups()
        with mock.patch.object(os, "mkdir", self._mkdir):
            self.host.start([self.launch("job", "/bin/sleep", "0.2", memory=100)])
            self.until(lambda: self.made, "the cgroup")
        self._fill(self.made[0], "memory.events", "oom 0\noom_kill 0\n")
        self._fill(self.made[0], "memory.peak", str(3 * MIB))
        ended = self.ended("job")
        assert (ended.reason, ended.exit_code, ended.usage.memory) == ("exit", 0, 3 << 10)

    def test_a_job_is_watched_where_no_cgroup_can_be_made(self):
        self._host_with_groups()
        with mock.patch.object(os, "mkdir", side_effect=PermissionError(13, "Permission denied")):
            ended = self.run_job(*python(EAT), memory=100)
        assert ended.reason == "memory"
        assert [line for line in self.log if "memory is watched instead" in line]

    def test_a_cgroup_with_other_processes_is_left_alone(self):
        self._fill(self.own, "cgroup.subtree_control", "")
        self._fill(self.own, "cgroup.procs", f"1\n{os.getpid()}\n")
        assert self._groups().limit("job", os.getpid(), 1024) == ""
        assert self._content(self.own, "cgroup.subtree_control") == ""

    def test_a_cgroup_without_other_processes_is_divided(self):
        self._fill(self.own, "cgroup.subtree_control", "")
        self._fill(self.own, "cgroup.procs", f"{os.getpid()}\n")
        with mock.patch.object(os, "mkdir", self._mkdir):
            self._groups()
        assert self._content(self.own, "cgroup.subtree_control") == "+memory"
        assert [os.path.basename(path) for path in self.made] == ["qcg-pm-agent"]
        assert self._content(self.made[0], "cgroup.procs") == str(os.getpid())

    def test_a_later_agent_in_a_divided_cgroup_makes_cgroups_beside_its_own(self):
        agent = os.path.join(self.own, "qcg-pm-agent")
        self._make_group(agent, controllers="cpu memory", subtree_control="")
        with mock.patch.object(os, "mkdir", self._mkdir):
            group = MemoryGroups(self.log.append, own=agent).limit("job", os.getpid(), 1024)
        assert os.path.dirname(group) == self.own

    def test_cgroups_that_were_busy_are_removed_at_the_end(self):
        groups = self._groups()
        group = os.path.join(self.own, "job")
        os.makedirs(group)
        with mock.patch.object(os, "rmdir", side_effect=OSError(errno.EBUSY, "Device or resource busy")):
            groups.ended(group)
        assert os.path.exists(group)
        groups.remove_left()
        assert not os.path.exists(group)

    def test_without_a_memory_controller_there_are_no_cgroups(self):
        self._fill(self.own, "cgroup.controllers", "cpu pids")
        assert self._groups().limit("job", os.getpid(), 1024) == ""


if __name__ == "__main__":
    unittest.main()
