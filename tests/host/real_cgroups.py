"""Memory limits of jobs with real cgroups. `test_real_cgroups.py` runs these tests as root of a virtual machine.

The machine is slow: jobs do as little as they can."""

import os
import unittest
from unittest import mock

from qcg.pilotjob.host import memory_groups, memory_limits
from tests.host.driver import HostTest, python
from tests.support.guest_init import CGROUPS

MIB = 1 << 20
LIMIT = 32
"""MiB of a job; Python itself uses 8."""
USER = 1000
AGENT = "qcg-pm-agent"
LARGE = "block = bytearray(48 << 20)\n"
GROWING = "import time\nblocks = []\nwhile True:\n    blocks.append(bytearray(1 << 20))\n    time.sleep(0.01)\n"
FAMILY = """
import os, time
for number in range({count}):
    if os.fork() == 0:
        if number % 2:
            os.setsid()
        with open("pids", "a") as file:
            file.write("%d\\n" % os.getpid())
        block = bytearray({mib} << 20)
        time.sleep({seconds})
        os._exit(0)
for number in range({count}):
    os.wait()
"""
LEAVING = """
import os, time
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.write(write, b".")
    time.sleep(60)
os.read(read, 1)
"""


class CgroupTest(HostTest):
    """The job host is in a cgroup of its own, and has removed the cgroups of all jobs at the end of each test."""

    user = 0
    """User id of the job host, which may change its cgroup."""

    def setUp(self):
        self.own = os.path.join(CGROUPS, "test")
        self.write(CGROUPS, "cgroup.subtree_control", "+memory")
        os.mkdir(self.own)
        self.addCleanup(os.rmdir, self.own)
        if self.user:
            for name in ("", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
                os.chown(os.path.join(self.own, name), self.user, self.user)
        self.addCleanup(self.leave)
        self.enter(os.getpid())
        if self.user:
            os.setresuid(self.user, self.user, 0)
        self.addCleanup(os.setresuid, 0, 0, 0)
        HostTest.setUp(self)

    def enter(self, pid):
        self.write(self.own, "cgroup.procs", str(pid))

    def leave(self):
        left = self.groups_of_jobs()
        for name in ["", *os.listdir(self.own)]:
            group = os.path.join(self.own, name)
            if os.path.isdir(group):
                for pid in self.read(group, "cgroup.procs").split():
                    self.write(CGROUPS, "cgroup.procs", pid)
                if name:
                    os.rmdir(group)
        assert not left, f"cgroups of jobs are left: {left}"

    def groups_of_jobs(self):
        return [name for name in os.listdir(self.own) if name.startswith("qcg-pm-") and name != AGENT]

    def read(self, group, name):
        with open(os.path.join(group, name), encoding="ascii") as file:
            return file.read()

    def write(self, group, name, text):
        with open(os.path.join(group, name), "w", encoding="ascii") as file:
            file.write(text)

    def assert_at_limit(self, ended):
        assert (ended.reason, ended.exit_code) == ("memory", -9), (ended, self.log)
        assert ended.message.startswith(
            f"The job used all of the {LIMIT}.0 MiB of memory of its limit, and the kernel ended it; ask for more with"
        ), ended.message
        assert (LIMIT - 1) * MIB <= ended.usage.memory << 10 <= LIMIT * MIB, ended.usage

    def assert_enforced(self):
        self.assert_at_limit(self.run_job(*python(LARGE), id="enforced", memory=LIMIT))

    def assert_watched(self):
        ended = self.run_job(*python(GROWING), memory=LIMIT)
        assert ended.reason == "memory", ended
        assert f"more than the {LIMIT}.0 MiB of its limit" in ended.message, ended.message


class LimitTest(CgroupTest):
    def test_the_kernel_ends_a_job_at_its_limit(self):
        self.assert_at_limit(self.run_job(*python(GROWING), memory=LIMIT))
        assert self.host._limits.memory.next_measurement is None, "it was watched as well"

    def test_a_job_with_fifty_children_is_ended_whole(self):
        self.assert_at_limit(self.run_job(*python(FAMILY.format(count=50, mib=1, seconds=60)), memory=LIMIT))
        self.assert_gone([int(line) for line in self.text("pids").split()])

    def test_a_job_below_its_limit_succeeds_with_the_peak_of_all_its_processes(self):
        ended = self.run_job(*python(FAMILY.format(count=4, mib=10, seconds=0.5)), memory=100)
        assert (ended.reason, ended.exit_code, ended.message) == ("exit", 0, ""), ended
        assert 40 * MIB <= ended.usage.memory << 10 <= 80 * MIB, ended.usage
        assert ended.usage.user + ended.usage.system > 0

    def test_a_job_gets_no_swap_space_beyond_its_limit(self):
        self.assert_at_limit(self.run_job(*python(LARGE), memory=LIMIT))

    def test_a_job_whose_swap_space_is_not_limited_would_succeed(self):
        write = memory_groups._write

        def write_other(group, name, text):
            if name != "memory.swap.max":
                write(group, name, text)

        with mock.patch.object(memory_groups, "_write", write_other):
            ended = self.run_job(*python(LARGE), memory=LIMIT)
        assert (ended.reason, ended.exit_code) == ("exit", 0), ended

    def test_a_cancelled_job_leaves_no_cgroup(self):
        self.host.start([self.launch("job", *python(FAMILY.format(count=3, mib=1, seconds=60)), memory=LIMIT)])
        self.until(lambda: os.path.exists(self.path("pids")), "the first child")
        self.host.kill(["job"], grace=0.0)
        assert self.ended("job").reason == "cancel"

    def test_a_process_that_a_job_has_left_keeps_its_cgroup_until_it_ends(self):
        ended = self.run_job(*python(LEAVING), memory=LIMIT)
        assert (ended.reason, ended.exit_code) == ("exit", 0), ended
        assert self.groups_of_jobs()

    def test_jobs_beside_a_job_above_its_limit_continue(self):
        self.host.start([self.launch("small", *python("import time\ntime.sleep(1)\n"), memory=LIMIT)])
        self.assert_at_limit(self.run_job(*python(LARGE), id="large", memory=LIMIT))
        ended = self.ended("small")
        assert (ended.reason, ended.exit_code) == ("exit", 0), ended


class CauseTest(CgroupTest):
    """Jobs whose processes get SIGKILL for other reasons than their own limit."""

    def kill_by_hand(self, id, **other):
        ended = self.run_job("/bin/sh", "-c", "kill -9 $$", id=id, **other)
        assert (ended.reason, ended.exit_code, ended.message) == ("exit", -9, ""), ended

    def limit_own_cgroup(self):
        self.write(self.own, "memory.max", str(LIMIT * MIB))
        self.write(self.own, "memory.swap.max", "0")

    def assert_out_of_memory(self, ended):
        assert (ended.reason, ended.exit_code) == ("memory", -9), ended
        assert ended.message == memory_limits.OUT_OF_MEMORY, ended

    def test_a_job_killed_by_hand_has_the_cause_exit_also_after_jobs_above_their_limits(self):
        self.kill_by_hand("first")
        self.kill_by_hand("second", memory=LIMIT)
        large = self.run_job(*python(FAMILY.format(count=4, mib=10, seconds=60)), id="large", memory=LIMIT)
        self.assert_at_limit(large)
        self.kill_by_hand("third")
        self.kill_by_hand("fourth", memory=LIMIT)

    def test_a_job_without_a_limit_has_the_cause_memory_where_the_cgroup_of_the_agent_is_full(self):
        self.limit_own_cgroup()
        self.assert_out_of_memory(self.run_job(*python(LARGE), id="first"))
        self.kill_by_hand("second")

    def test_it_has_also_after_jobs_with_limits(self):
        self.limit_own_cgroup()
        self.run_job("/bin/sh", "-c", ":", id="limited", memory=LIMIT)
        assert AGENT in os.listdir(self.own)
        self.assert_out_of_memory(self.run_job(*python(LARGE), id="first"))
        self.kill_by_hand("second")

    def test_the_message_of_a_job_below_its_limit_names_the_full_cgroup_of_the_agent(self):
        self.limit_own_cgroup()
        self.assert_out_of_memory(self.run_job(*python(LARGE), memory=2 * LIMIT))


class OwnCgroupTest(CgroupTest):
    """Cgroups in which the agent may make cgroups, and others."""

    def test_the_limit_is_enforced_below_a_cgroup_that_gives_its_children_the_controller(self):
        self.write(CGROUPS, "cgroup.procs", str(os.getpid()))
        self.assert_enforced()
        assert not [name for name in os.listdir(CGROUPS) if name.startswith("qcg-pm-")]

    def test_a_cgroup_with_other_processes_is_left_alone(self):
        self.enter(1)
        self.assert_watched()
        assert self.read(self.own, "cgroup.subtree_control").split() == []
        assert "1" in self.read(self.own, "cgroup.procs").split()

    def test_a_delegated_cgroup_with_other_processes_is_divided(self):
        self.enter(1)
        os.setxattr(self.own, "user.delegate", b"1")
        self.assert_enforced()
        assert "1" in self.read(os.path.join(self.own, AGENT), "cgroup.procs").split()

    def test_a_later_agent_in_a_divided_cgroup_enforces_limits_too(self):
        self.enter(1)
        os.setxattr(self.own, "user.delegate", b"1")
        self.run_job("/bin/sh", "-c", ":", id="first", memory=LIMIT)
        self.host._limits.memory = memory_limits.MemoryLimits(self.log.append)
        self.assert_enforced()

    def test_memory_is_watched_where_the_cgroup_has_no_memory_controller(self):
        self.write(CGROUPS, "cgroup.subtree_control", "-memory")
        self.assert_watched()


class UserTest(CgroupTest):
    user = USER

    def test_an_ordinary_user_can_enforce_limits_in_a_delegated_cgroup(self):
        self.assert_enforced()


class OtherUserTest(CgroupTest):
    def test_memory_is_watched_where_the_agent_may_not_change_its_cgroup(self):
        os.chown(self.folder, USER, USER)
        self.addCleanup(os.setresuid, 0, 0, 0)
        os.setresuid(USER, USER, 0)
        self.assert_watched()


if __name__ == "__main__":
    unittest.main()
