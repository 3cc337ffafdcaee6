"""Output of jobs without output files: captured while a job runs, saved when it fails. Python 3.6 reads this file."""

import errno
import os
import signal
import stat
from unittest import mock

from qcg.pilotjob.host.captured_output import LIMIT
from tests.host.driver import SHELL, HostTest, python

BOTH = "echo said; echo wrong >&2; "


def open_descriptors():
    return set(os.listdir("/proc/self/fd"))


class Output(HostTest):
    def run_shell(self, script, **other):
        other.setdefault("output", other.get("id", "job"))
        return self.run_job(SHELL, "-c", script, **other)

    def saved(self):
        """The contents of all saved files, by name."""
        folder = self.path("out")
        return (
            {name: self.text(os.path.join("out", name)) for name in os.listdir(folder)} if os.path.isdir(folder) else {}
        )

    def captured(self, id):
        captured = self.host._jobs[id].output
        assert captured is not None
        return captured

    def test_both_streams_of_a_job_that_fails_are_saved(self):
        assert self.run_shell(BOTH + "exit 3", output="sim.7").exit_code == 3
        assert self.saved() == {"sim.7.out": "said\n", "sim.7.err": "wrong\n"}

    def test_only_the_owner_can_read_saved_output(self):
        self.run_shell(BOTH + "exit 3")
        modes = [stat.S_IMODE(os.stat(self.path(name)).st_mode) for name in ("out", "out/job.out", "out/job.err")]
        assert modes == [0o700, 0o600, 0o600]

    def test_output_of_a_job_that_succeeds_is_not_saved(self):
        assert self.run_shell(BOTH).exit_code == 0
        assert self.saved() == {}

    def test_output_of_a_job_that_succeeds_is_saved_on_demand(self):
        assert self.run_shell(BOTH, keep_output=True).exit_code == 0
        assert self.saved() == {"job.out": "said\n", "job.err": "wrong\n"}

    def test_a_stream_with_a_file_is_not_captured(self):
        self.run_shell(BOTH + "exit 1", id="a", stdout="mine")
        self.run_shell(BOTH + "exit 1", id="b", stderr="mine too")
        assert self.saved() == {"a.err": "wrong\n", "b.out": "said\n"}
        assert (self.text("mine"), self.text("mine too")) == ("said\n", "wrong\n")

    def test_output_without_a_file_name_is_dropped(self):
        self.run_shell(BOTH + "exit 1", output="")
        assert self.saved() == {}

    def test_a_stream_without_output_has_no_file(self):
        self.run_shell("echo wrong >&2; exit 1")
        assert self.saved() == {"job.err": "wrong\n"}

    def test_a_later_attempt_replaces_the_output_of_an_earlier_one(self):
        self.run_shell("echo one; echo one >&2; exit 1", id="1.1", output="job")
        self.run_shell("echo two; exit 1", id="1.2", output="job")
        assert self.saved() == {"job.out": "two\n"}

    def test_output_before_a_signal_is_saved(self):
        assert self.run_shell(BOTH + "kill -SEGV $$").exit_code == -signal.SIGSEGV
        assert self.saved() == {"job.out": "said\n", "job.err": "wrong\n"}

    def test_output_before_the_end_of_the_wall_time_is_saved(self):
        assert self.run_shell(BOTH + "sleep 60", wall_time=0.5).reason == "timeout"
        assert self.saved() == {"job.out": "said\n", "job.err": "wrong\n"}

    def test_output_before_a_cancellation_is_saved(self):
        self.start_shell("job", BOTH + "echo $$ > pids; touch ready; sleep 60", output="job")
        self.host.kill(["job"])
        assert self.ended("job").reason == "cancel"
        assert self.saved() == {"job.out": "said\n", "job.err": "wrong\n"}

    def test_the_output_of_a_job_that_runs_again_elsewhere_is_not_saved(self):
        self.start_shell("job", BOTH + "echo $$ > pids; touch ready; sleep 60", output="job")
        self.host.kill(["job"], "closed")
        assert self.ended("job").reason == "closed"
        assert self.saved() == {}

    def test_the_beginning_and_the_end_of_long_output_are_saved(self):
        code = "import sys; sys.stdout.write('a' * {0} + 'b' * 1000 + 'c' * {0}); sys.exit(1)".format(LIMIT // 2)
        self.run_job(*python(code), output="long")
        text = self.saved()["long.out"]
        assert text == "a" * (LIMIT // 2) + "\n[1000 bytes of output left out here]\n" + "c" * (LIMIT // 2)

    def test_output_up_to_the_limit_is_saved_whole(self):
        self.run_job(*python(f"import sys; sys.stdout.write('a' * {LIMIT}); sys.exit(1)"), output="long")
        assert self.saved()["long.out"] == "a" * LIMIT

    def test_a_job_that_prints_without_end_does_not_fill_the_memory(self):
        size = 64 << 20
        code = (
            "import os, sys, time\n"
            "os.write(1, b'first\\n')\n"
            "for _ in range(64): os.write(1, b'-' * (1 << 20))\n"
            "os.write(1, b'last\\n')\n"
            "while not os.path.exists('stop'): time.sleep(0.01)\n"
            "sys.exit(1)\n"
        )
        self.host.start([self.launch("long", *python(code), output="long")])
        self.until(lambda: "long" in self.host._jobs, "the start")
        captured = self.captured("long").stdout
        self.until(lambda: os.fstat(captured).st_size > size, "all of its output")
        self.until(lambda: os.fstat(captured).st_blocks * 512 <= 2 * LIMIT, "memory given back")
        open(self.path("stop"), "w").close()
        self.ended("long")
        text = self.saved()["long.out"]
        left_out = size + len("first\nlast\n") - LIMIT
        assert text.startswith("first\n---")
        assert text.endswith("---last\n")
        assert f"-\n[{left_out} bytes of output left out here]\n-" in text
        assert "\0" not in text

    def test_a_process_that_outlives_its_job_does_not_write_into_the_output_of_another(self):
        late = "touch away; until test -e go; do sleep 0.01; done; echo late; touch done"
        waits = "until test -e away; do sleep 0.01; done"
        self.run_shell(f"setsid {SHELL} -c '{late}' & {waits}; echo early", id="before")
        open(self.path("go"), "w").close()
        self.run_shell("until test -e done; do sleep 0.01; done; echo mine; exit 1", id="after")
        assert self.saved() == {"after.out": "mine\n"}

    def test_a_job_that_opens_its_stdout_again_leaves_no_gap(self):
        self.run_shell("echo one; echo two > /dev/stdout; echo three; exit 1")
        assert self.saved() == {"job.out": "two\nthree\n"}

    def test_a_script_truncates_its_stderr_by_name_and_not_by_number(self):
        self.run_shell("echo one >&2; echo two > /dev/stderr; echo three >&2; echo four >> /dev/stderr; exit 1")
        assert self.saved() == {"job.err": "two\nthree\nfour\n"}

    def test_a_failure_to_save_output_does_not_change_the_result_of_the_job(self):
        open(self.path("out"), "w").close()
        ended = self.run_shell(BOTH + "exit 3")
        assert (ended.exit_code, ended.reason, ended.message) == (3, "exit", "")
        assert any("The stdout of job job cannot be saved in" in line for line in self.log), self.log

    def test_no_partial_output_is_left_on_a_full_disk(self):
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with mock.patch("qcg.pilotjob.host.captured_output._write", side_effect=full):
            assert self.run_shell(BOTH + "exit 3").exit_code == 3
        assert self.saved() == {}
        assert any("job.err: No space left on device." in line for line in self.log), self.log

    def test_a_link_under_the_name_of_the_file_is_not_followed(self):
        os.mkdir(self.path("out"))
        os.symlink(self.path("precious"), self.path("out/job.out"))
        self.run_shell(BOTH + "exit 3")
        assert not os.path.exists(self.path("precious"))

    def test_no_descriptor_stays_open(self):
        self.run_shell("true", id="first")  # descriptors that are opened only once
        before = open_descriptors()
        for number in range(5):
            self.run_shell(BOTH + f"exit {number % 2}", id=f"job{number}")
            self.run_job("/no/such/program", id=f"no{number}", output="no")
        assert open_descriptors() == before

    def test_without_free_descriptors_jobs_run_and_a_file_says_that_output_is_missing(self):
        self.close_host()
        with mock.patch("resource.getrlimit", return_value=(0, 0)):
            self.open_host()
        for id in ("a", "b"):
            assert self.run_shell("test /dev/stdout -ef /dev/null && exit 7", id=id).exit_code == 7
        note = "[The output was not captured: too many files were open on the node, or memory was short.]\n"
        assert self.saved() == {"a.out": note, "a.err": note, "b.out": note, "b.err": note}
        assert self.run_shell("exit 7", id="c", stdout="mine").exit_code == 7
        assert self.run_shell("exit 0", id="d").exit_code == 0
        assert {name for name in self.saved() if name[0] in "cd"} == {"c.err"}
        assert len([line for line in self.log if "is not captured" in line]) == 1, self.log

    def test_temporary_files_are_used_without_memory_files(self):
        self.host._setup.outputs.memory_flags = -1
        self.run_shell(BOTH + "exit 3")
        assert self.saved() == {"job.out": "said\n", "job.err": "wrong\n"}
        assert self.run_shell("sleep 0.2; test -s /dev/stdout || exit 4", id="quiet").exit_code == 4

    def test_checking_captured_output_does_not_disturb_the_job(self):
        self.host.start(
            [self.launch("job", SHELL, "-c", BOTH + "until test -e go; do sleep 0.01; done; exit 1", output="j")]
        )
        self.until(lambda: "job" in self.host._jobs and self.captured("job").size > 0, "a look at its output")
        open(self.path("go"), "w").close()
        self.ended("job")
        assert self.saved() == {"j.out": "said\n", "j.err": "wrong\n"}


del HostTest
