"""Output that goes to a stream: one file for all jobs of a host."""

import glob
import os
import signal
import stat
from unittest import mock

from qcg.pilotjob.host import output_streams
from qcg.pilotjob.host.process_tree import read_process
from tests.host.driver import SHELL, HostTest, alive, python, wait_for
from tests.host.streams import read_streams


class Streams(HostTest):
    def run_shell(self, script, **other):
        return self.run_job(SHELL, "-c", script, stream=True, **other)

    def start(self, id, *argv, **other):
        self.host.start([self.launch(id, *argv, stream=True, **other)])

    def stored(self):
        """The stored output of each attempt: name, id, stdout, stderr and the number of END frames."""
        return read_streams(self.path("streams"))

    def of(self, name):
        return next(found for found in self.stored() if found.name == name)

    def files(self):
        return sorted(glob.glob(self.path("streams/*.stream")))

    def writer(self):
        return next(iter(self.host._streams.writers))

    def test_the_output_of_a_job_is_stored_when_its_end_is_recorded(self):
        assert self.run_shell("echo said; echo wrong >&2; exit 3", output="sim.7").exit_code == 3
        (found,) = self.stored()
        assert (found.name, found.id, found.stdout, found.stderr, found.ends) == (
            "sim.7",
            "job",
            b"said\n",
            b"wrong\n",
            1,
        )

    def test_all_bytes_are_stored_as_they_are(self):
        everything = "bytes(range(256)) * 5000"
        self.run_job(*python(f"import sys; sys.stdout.buffer.write({everything})"), stream=True, output="job")
        assert self.of("job").stdout == bytes(range(256)) * 5000

    def test_a_job_without_output_has_an_empty_stream(self):
        self.run_shell(":", output="job")
        assert (self.of("job").stdout, self.of("job").stderr, self.of("job").ends) == (b"", b"", 1)

    def test_many_jobs_share_one_file_that_only_the_owner_can_read(self):
        for number in range(50):
            self.start(str(number), SHELL, "-c", f"printf {number}", output=f"job.{number}")
        for number in range(50):
            self.ended(str(number))
        assert {found.name: found.stdout for found in self.stored()} == {
            f"job.{number}": b"%d" % number for number in range(50)
        }
        (path,) = self.files()
        index = path[: -len(".stream")] + ".index"
        modes = [stat.S_IMODE(os.stat(name).st_mode) for name in (self.path("streams"), path, index)]
        assert modes == [0o700, 0o600, 0o600]
        assert sorted(os.listdir(self.path("streams"))) == sorted([os.path.basename(path), os.path.basename(index)])

    def test_jobs_without_a_stream_start_no_writer(self):
        self.run_job(SHELL, "-c", "echo", output="job")
        assert not self.host._streams.writers
        assert not os.path.exists(self.path("streams"))

    def test_output_can_be_read_while_the_job_runs(self):
        os.mkfifo(self.path("go"))
        self.start("job", SHELL, "-c", "echo first; read line < go; echo second", output="job")
        self.until(lambda: self.files() and self.stored() and self.of("job").stdout == b"first\n", "the first line")
        assert self.of("job").ends == 0
        with open(self.path("go"), "w") as go:
            go.write("on\n")
        self.ended("job")
        assert self.of("job").stdout == b"first\nsecond\n"

    def test_a_job_that_truncates_its_stdout_harms_no_other(self):
        self.run_shell("echo one", id="a", output="a")
        self.run_shell("echo two > /dev/stdout", id="b", output="b")
        assert (self.of("a").stdout, self.of("b").stdout) == (b"one\n", b"two\n")

    def test_a_process_that_outlives_its_job_still_writes_to_the_stream_of_that_job(self):
        os.mkfifo(self.path("go"))
        left = "(setsid sh -c 'touch left; read line < go; echo left' & )"
        self.run_shell(f"echo job; {left}; until [ -e left ]; do sleep 0.01; done", id="a", output="a")
        self.run_shell("echo other", id="b", output="b")
        with open(self.path("go"), "w") as go:
            go.write("on\n")
        self.until(lambda: self.of("a").ends == 2, "the end of the process")
        assert (self.of("a").stdout, self.of("b").stdout) == (b"job\nleft\n", b"other\n")

    def test_a_job_waits_while_the_writer_does_not_read(self):
        self.run_shell("echo first", id="a", output="a")
        os.kill(self.writer(), signal.SIGSTOP)
        script = "import os\nfor n in range(64): os.write(1, b'x' * 65536); os.write(2, b'.')\nopen('done', 'w')"
        self.start("b", *python(script), output="b")
        self.until(lambda: self.host._jobs.get("b"), "the start")
        pid = self.host._jobs["b"].start.pid
        wait_for(lambda: _waits_for_pipe(pid), "the job to wait for its pipe")
        assert not os.path.exists(self.path("done"))
        os.kill(self.writer(), signal.SIGCONT)
        self.ended("b")
        assert self.of("b").stdout == b"x" * 65536 * 64

    def test_a_killed_job_keeps_what_it_wrote(self):
        self.start("job", SHELL, "-c", "echo here; echo x > ready; exec sleep 60", output="job")
        self.until(lambda: os.path.exists(self.path("ready")), "the job being ready")
        self.host.kill(["job"])
        assert self.ended("job").reason == "cancel"
        assert (self.of("job").stdout, self.of("job").ends) == (b"here\n", 1)

    def test_another_writer_continues_when_the_writer_is_killed(self):
        os.mkfifo(self.path("go"))
        self.start("job", SHELL, "-c", "echo first; read line < go; echo second", output="job")
        self.until(lambda: self.files() and self.stored() and self.of("job").stdout, "the first line")
        first = self.writer()
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: not alive(first), "the end of the writer")
        with open(self.path("go"), "w") as go:
            go.write("on\n")
        assert self.ended("job").exit_code == 0
        parts = [(found.part, found.stdout) for found in self.stored()]
        assert sorted(parts) == [(1, b"first\n"), (2, b"second\n")]
        assert len(self.files()) == 2

    def test_output_of_a_job_without_a_writer_is_not_lost(self):
        self.run_shell("echo", id="a", output="a")
        os.kill(self.writer(), signal.SIGSTOP)
        self.start("b", SHELL, "-c", "echo kept; echo x > ready", output="b")
        self.until(lambda: os.path.exists(self.path("ready")), "the job being ready")
        os.kill(self.writer(), signal.SIGKILL)
        assert self.ended("b").exit_code == 0
        assert self.of("b").stdout == b"kept\n"

    def test_the_writer_ends_with_its_host(self):
        self.run_shell("echo", output="job")
        writer = self.writer()
        self.close_host()
        wait_for(lambda: not alive(writer) or _reaped(writer), "the end of the writer")
        self.open_host()

    def test_an_end_is_recorded_although_its_output_cannot_be_stored(self):
        self.run_shell("echo", id="a", output="a")
        os.kill(self.writer(), signal.SIGSTOP)
        output_streams.STORE_TIMEOUT, before = 0.2, output_streams.STORE_TIMEOUT
        self.addCleanup(setattr, output_streams, "STORE_TIMEOUT", before)
        assert self.run_shell("echo late", id="b", output="b").exit_code == 0
        assert any("b is not stored yet" in line for line in self.log)
        os.kill(self.writer(), signal.SIGCONT)
        wait_for(lambda: any(found.name == "b" and found.ends for found in self.stored()), "the output of b")
        assert self.of("b").stdout == b"late\n"

    def test_a_directory_that_cannot_be_made_is_reported_and_tried_again(self):
        with open(self.path("streams"), "w"):
            pass
        self.start("a", SHELL, "-c", "echo one", output="a")
        self.until(lambda: any("cannot be collected" in line for line in self.log), "the problem")
        os.unlink(self.path("streams"))
        self.ended("a")
        self.until(lambda: self.files() and self.stored(), "the output")
        self.until(lambda: self.of("a").ends, "the end of the output")
        assert self.of("a").stdout == b"one\n"

    def test_a_job_continues_to_write_when_its_host_is_killed_right_after_the_start(self):
        script = f"until [ -e {self.path('go')} ]; do sleep 0.01; done; echo alone; touch {self.path('ended')}"
        self.close_host()
        child = os.fork()
        if not child:
            try:
                self.open_host()
                start = self.host._setup._spawner.start
                with mock.patch.object(
                    self.host._setup._spawner, "start", lambda *given: os._exit(bool(start(*given)) + 8)
                ):
                    self.start("a", SHELL, "-c", script, output="a")
                    self.ended("a")
            finally:
                os._exit(1)
        assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 9
        with open(self.path("go"), "w"):
            pass
        wait_for(lambda: os.path.exists(self.path("ended")), "the job without a host")
        wait_for(lambda: self.files() and any(found.ends for found in self.stored()), "the end of its output")
        assert self.of("a").stdout == b"alone\n"
        self.open_host()

    def test_no_descriptor_stays_open(self):
        self.run_shell("echo", id="a", output="a")
        before = set(os.listdir("/proc/self/fd"))
        for number in range(20):
            self.run_shell("echo", id=f"b{number}", output="b")
        assert set(os.listdir("/proc/self/fd")) == before

    def test_a_program_that_does_not_exist_leaves_no_pipes(self):
        self.run_shell("echo", id="a", output="a")
        before = set(os.listdir("/proc/self/fd"))
        assert self.run_job("/no/such/program", id="b", stream=True, output="b").reason == "unstartable"
        assert set(os.listdir("/proc/self/fd")) == before
        self.run_shell("echo", id="c", output="c")
        assert [found.name for found in self.stored()] == ["a", "c"]


def _waits_for_pipe(pid):
    try:
        with open(f"/proc/{pid}/wchan") as file:
            return "pipe" in file.read()
    except OSError:
        return False


def _reaped(pid):
    return read_process(pid) is None
