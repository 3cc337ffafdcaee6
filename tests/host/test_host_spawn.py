"""The process of a job at its start, and errors that prevent a start. Python 3.6 reads this file."""

import errno
import json
import os
import re
import resource
import signal
import stat
from unittest import mock

from qcg.pilotjob.host import spawn, start_errors
from qcg.pilotjob.host.records import Started
from tests.host.driver import SHELL, HostTest, python

TELL_ENVIRONMENT = (
    "import json, os; json.dump({k.decode(): v.decode() for k, v in os.environb.items()}, open('e', 'w'))"
)
TELL_ARGUMENTS = "import json, os, sys; json.dump([os.fsencode(a).decode() for a in sys.argv[1:]], open('a', 'w'))"


class ProcessSetup(HostTest):
    def test_arguments_reach_the_program_exactly(self):
        arguments = ["", "a b", "'single' \"double\"", "new\nline", "$HOME `id` \\", "żółw 🐢", "*", "-x", "\t"]
        with mock.patch.dict(os.environ, {"PYTHONUTF8": "1"}):
            assert self.run_job(*python(TELL_ARGUMENTS), *arguments).exit_code == 0
        assert json.loads(self.text("a")) == arguments

    def test_the_environment_is_that_of_the_host_with_variables_unset_and_added(self):
        base = {name.decode(): value.decode() for name, value in os.environb.items()}
        gone = next(name for name in base if name not in ("PATH", "PWD", "HOME"))
        added = {"NEW": "quotes ' \" and\nlines", "ŻÓŁW": "🐢", "EMPTY": "", "HOME": "/elsewhere"}
        self.run_job(*python(TELL_ENVIRONMENT), env=added, unset=[gone, "NOT_THERE"])
        found = json.loads(self.text("e"))
        expected = {**base, **added, "QCG_PM_STEP_ID": f"test{os.getpid()}.job"}
        del expected[gone]
        if "PWD" in base:
            expected["PWD"] = self.folder
        for name in ("LC_CTYPE", "_", "SHLVL"):
            expected.pop(name, None)
            found.pop(name, None)
        assert found == expected

    def test_a_name_with_a_star_unsets_all_variables_with_the_prefix(self):
        self.close_host()
        with mock.patch.dict(os.environ, {"STEP_ID": "1", "STEPS": "2", "STE": "3", "OTHER": "4"}):
            self.open_host()
        self.run_job(*python(TELL_ENVIRONMENT), env={"STEP_NEW": "5"}, unset=["STEP*", "OTHER"])
        found = json.loads(self.text("e"))
        assert {name: found.get(name) for name in ("STEP_ID", "STEPS", "STE", "OTHER", "STEP_NEW")} == {
            "STEP_ID": None,
            "STEPS": None,
            "STE": "3",
            "OTHER": None,
            "STEP_NEW": "5",
        }

    def test_the_limit_of_open_files_for_jobs_up_to_the_hard_limit(self):
        self.close_host()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        for wanted, soft in ((99, 99), (10**9 + limits[1], limits[1])):
            self.open_files = wanted
            self.open_host()
            self.run_job(SHELL, "-c", "ulimit -Sn > limits; ulimit -Hn >> limits", id=f"job{wanted}")
            assert self.text("limits").split() == [str(soft), str(limits[1])]
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits
            self.close_host()
        self.open_host()

    def test_streams_whose_descriptors_are_above_the_limit_for_jobs(self):
        self.close_host()
        self.open_files = max(map(int, os.listdir("/proc/self/fd"))) + 20
        self.open_host()
        for descriptor in iter(lambda: os.dup(1), self.open_files):
            self.addCleanup(os.close, descriptor)
        self.addCleanup(os.close, self.open_files)
        with open(self.path("in"), "w") as file:
            file.write("read")
        assert self.run_job(SHELL, "-c", "cat; echo wrong >&2", stdin="in", stdout="o", stderr="e").exit_code == 0
        assert (self.text("o"), self.text("e")) == ("read", "wrong\n")

    def test_no_descriptor_but_the_standard_streams(self):
        inherited = os.dup(1)
        os.set_inheritable(inherited, True)
        self.addCleanup(os.close, inherited)
        self.close_host()
        self.open_host()
        self.run_job("ls", "-l", "/proc/self/fd", stdout="fds")
        numbers = [line.split(" -> ")[0].split()[-1] for line in self.text("fds").splitlines() if " -> " in line]
        # 3 is the directory that ls itself reads.
        assert numbers == ["0", "1", "2", "3"]

    def test_signals_are_as_in_a_fresh_shell(self):
        previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGHUP, previous)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        self.addCleanup(signal.pthread_sigmask, signal.SIG_UNBLOCK, [signal.SIGUSR1])
        self.close_host()
        self.open_host()
        self.run_job("cat", "/proc/self/status", stdout="status")
        status = dict(line.split(":", 1) for line in self.text("status").splitlines())
        # The C library keeps signals 32 and 33 for itself.
        assert int(status["SigIgn"], 16) & ~(3 << 31) == 0
        assert int(status["SigBlk"], 16) == 0

    def test_a_job_leads_its_own_session(self):
        ended = self.run_job("cat", "/proc/self/stat", stdout="stat")
        fields = self.text("stat").split()
        assert [int(fields[4]), int(fields[5])] == [ended.pid, ended.pid]

    def test_a_job_is_bound_to_its_cores_and_the_host_is_not(self):
        own = os.sched_getaffinity(0)
        for core in sorted(own):
            self.run_job("grep", "Cpus_allowed_list", "/proc/self/status", id=f"c{core}", stdout="c", cores=(core,))
            assert self.text("c").split() == ["Cpus_allowed_list:", str(core)]
        assert os.sched_getaffinity(0) == own

    def test_missing_cores_are_logged_once_and_the_job_runs(self):
        for id in ("a", "b"):
            assert self.run_job("true", id=id, cores=(1000, 1001)).exit_code == 0
        assert len(self.log) == 1
        assert "Cannot bind to cores 1000,1001" in self.log[0]

    def test_the_working_directory_is_made_and_entered(self):
        wd = self.path("new/deep/wd")
        self.run_job("pwd", wd=wd, stdout="out")
        assert self.text("new/deep/wd/out").strip() == wd

    def test_a_working_directory_that_was_replaced_is_entered_anew(self):
        os.mkdir(self.path("wd"))
        self.run_job("true", id="a", wd=self.path("wd"))
        os.rename(self.path("wd"), self.path("old"))
        os.mkdir(self.path("wd"))
        self.run_job("touch", "here", id="b", wd=self.path("wd"))
        assert os.listdir(self.path("wd")) == ["here"]

    def test_a_relative_program_is_relative_to_the_working_directory(self):
        os.mkdir(self.path("wd"))
        os.symlink("/bin/echo", self.path("wd/prog"))
        self.run_job("./prog", "hi", wd=self.path("wd"), stdout="out")
        assert self.text("wd/out") == "hi\n"

    def test_the_program_is_found_on_the_jobs_own_path(self):
        for folder, word in (("one", "1"), ("two", "2")):
            os.mkdir(self.path(folder))
            self.script(os.path.join(folder, "prog"), f"#!/bin/sh\necho {word}\n")
            self.run_job("prog", id=folder, env={"PATH": f"/nowhere:{self.path(folder)}"}, stdout=word)
        assert [self.text("1"), self.text("2")] == ["1\n", "2\n"]

    def test_a_program_that_moved_along_the_path_is_found_again(self):
        os.mkdir(self.path("one"))
        os.mkdir(self.path("two"))
        self.script("one/prog", "#!/bin/sh\nexit 0\n")
        env = {"PATH": f"{self.path('one')}:{self.path('two')}"}
        assert self.run_job("prog", id="a", env=env).exit_code == 0
        os.rename(self.path("one/prog"), self.path("two/prog"))
        assert self.run_job("prog", id="b", env=env).exit_code == 0

    def script(self, name, text, mode=0o755):
        with open(self.path(name), "w") as file:
            file.write(text)
        os.chmod(self.path(name), mode)


class Streams(HostTest):
    def test_streams_without_paths_are_dev_null(self):
        code = "import os; print(*(os.readlink(f'/proc/self/fd/{n}') for n in range(3)), file=open('links', 'w'))"
        self.run_job(*python(code))
        assert self.text("links") == "/dev/null /dev/null /dev/null\n"

    def test_streams_go_to_their_files_and_directories_are_made(self):
        with open(self.path("in"), "w") as file:
            file.write("input\n")
        self.run_job("sh", "-c", "cat; echo err >&2", stdin="in", stdout="o/p/out", stderr="e/err")
        assert [self.text("o/p/out"), self.text("e/err")] == ["input\n", "err\n"]

    def test_one_path_for_stdout_and_stderr_is_one_file_in_order(self):
        self.run_job("sh", "-c", "echo 1; echo 2 >&2; echo 3", stdout="both", stderr="both")
        assert self.text("both") == "1\n2\n3\n"

    def test_an_old_file_is_truncated_and_a_new_one_follows_the_umask(self):
        with open(self.path("out"), "w") as file:
            file.write("much older text\n")
        self.addCleanup(os.umask, os.umask(0o027))
        self.run_job("sh", "-c", "echo new; echo e >&2", stdout="out", stderr="err")
        assert self.text("out") == "new\n"
        assert stat.S_IMODE(os.stat(self.path("err")).st_mode) == 416

    def test_streams_are_blocking(self):
        with open(self.path("in"), "w") as file:
            file.write("x")
        code = "import os; print(*map(os.get_blocking, (0, 1, 2)))"
        self.run_job(*python(code), stdin="in", stdout="out", stderr="err")
        assert self.text("out") == "True True True\n"


class Reports(HostTest):
    def test_the_report_of_the_setup_wrapper_is_the_message(self):
        ended = self.run_job(SHELL, "-c", "echo 'module x is not there' >&3; exit 1", setup=True)
        assert (ended.reason, ended.exit_code, ended.message) == ("exit", 1, "module x is not there")

    def test_without_a_report_there_is_no_message(self):
        assert self.run_job(SHELL, "-c", "exit 2", setup=True).message == ""

    def test_a_long_report_is_cut(self):
        ended = self.run_job(SHELL, "-c", "yes | head -c 50000 | tr -d '\\n' >&3", setup=True)
        assert ended.message == "y" * 1000

    def test_a_daemon_that_keeps_the_report_descriptor_delays_nothing(self):
        daemon = "(setsid sh -c 'touch ready; exec sleep 1000' &)"
        ended = self.run_job(SHELL, "-c", f"{daemon}; until test -e ready; do :; done; exit 3", setup=True)
        assert (ended.exit_code, ended.message) == (3, "")

    def test_other_jobs_do_not_inherit_the_report_descriptor(self):
        waiting = self.launch("wrapped", SHELL, "-c", "exec sleep 1000", setup=True)
        self.host.start([waiting, self.launch("other", "ls", "/proc/self/fd", stdout="fds")])
        self.ended("other")
        assert self.text("fds").split() == ["0", "1", "2", "3"]


class Refusals(HostTest):
    def refused(self, *argv, **other):
        ended = self.run_job(*argv, **other)
        assert (ended.reason, ended.exit_code, ended.pid, ended.started) == ("unstartable", -1, 0, 0.0)
        assert not [body for _, body in self.records if isinstance(body, Started) and body.id == ended.id]
        return ended.message

    def file(self, name, content, mode):
        with open(self.path(name), "wb") as file:
            file.write(content)
        os.chmod(self.path(name), mode)
        return self.path(name)


class Unstartable(Refusals):
    def test_no_program(self):
        assert self.refused() == "The job names no program to start."

    def test_a_program_that_is_not_on_the_path(self):
        message = self.refused("no-such-program", env={"PATH": "/bin:/usr/bin"})
        assert message == "The program no-such-program is not found on PATH (/bin:/usr/bin)."

    def test_a_line_for_a_shell_is_no_program(self):
        for program in ("ls -l", "ls | wc -l"):
            message = self.refused(program, env={"PATH": "/bin"}, id=program[:4] + str(len(program)))
            assert message.startswith(f'The program "{program}" is not found on PATH; put a shell command')
        assert "into script, or the program into exec and its arguments into args" in self.refused("/bin/ls -l", id="c")

    def test_a_program_that_is_not_there(self):
        assert self.refused("/no/such") == "The program /no/such does not exist."
        assert self.refused("./such", id="b") == f"The program ./such (in {self.folder}) does not exist."

    def test_a_program_that_is_not_executable(self):
        program = self.file("prog", b"#!/bin/sh\n", 0o644)
        assert f"{program} is not executable (chmod +x" in self.refused(program)
        assert f"{program} is not executable" in self.refused("prog", id="b", env={"PATH": self.folder})

    def test_a_directory(self):
        assert self.refused("/tmp") == "/tmp is a directory, not a program."

    def test_a_file_of_another_format(self):
        program = self.file("prog", b"neither this nor that", 0o755)
        assert f"{program} is neither a program for this machine nor a script" in self.refused(program)

    def test_a_script_whose_interpreter_is_not_there(self):
        program = self.file("prog", b"#!/no/such/interpreter -x\n", 0o755)
        message = self.refused(program)
        assert "the interpreter /no/such/interpreter that its first line names does not" in message

    def test_a_working_directory_that_cannot_be_made(self):
        wd = os.path.join(self.file("file", b"", 0o644), "wd")
        assert self.refused("true", wd=wd) == f"The working directory {wd} cannot be entered: Not a directory."
        wd = "/proc/no/such"
        message = self.refused("true", id="b", wd=wd)
        assert message == f"The working directory {wd} cannot be made: No such file or directory."

    def test_stdin_that_is_not_there(self):
        message = self.refused("cat", stdin="sub/in")
        assert message == f"The stdin file sub/in does not exist ({self.path('sub/in')})."

    def test_stdin_that_is_a_directory(self):
        assert self.refused("cat", stdin=".") == "The stdin file . is a directory."

    def test_output_that_cannot_be_opened(self):
        os.mkdir(self.path("folder"))
        self.file("file", b"", 0o644)
        assert self.refused("true", stdout="folder") == "The stdout file folder is a directory."
        message = self.refused("true", id="b", stderr="file/err")
        assert message == "The stderr file file/err cannot be opened: Not a directory."

    def test_named_pipes_never_block_the_host(self):
        os.mkfifo(self.path("fifo"))
        assert self.refused("true", stdout="fifo") == "The stdout file fifo is a named pipe that nobody reads."
        assert "fifo is a named pipe" in self.refused("true", id="b", stdin="fifo")

    def test_an_argument_that_is_too_long(self):
        message = self.refused("sh", "-c", "x" * 200000)
        assert "An argument of 200000 bytes is longer than the 131071" in message

    def test_arguments_that_are_too_long_together(self):
        message = self.refused("true", *["x" * 100000] * 100)
        assert re.search(r"together have 10\d{6} bytes, more than a program can be given \(at most \d+ in all", message)

    def test_values_that_no_program_can_be_given(self):
        assert "zero character" in self.refused("true", "a\x00b")
        assert "zero character" in self.refused("true", id="b", env={"A": "a\x00b"})
        assert "not a name for an environment variable" in self.refused("true", id="c", env={"A=B": "x"})
        assert "cannot be passed to a program" in self.refused("true", chr(0xD800), id="d")
        assert "zero character" in self.refused("true", id="e", wd="/tmp/\x00")

    def test_no_descriptor_stays_open_after_a_failed_start(self):
        before = os.listdir("/proc/self/fd")
        self.refused("no-such-program", stdout="out", stderr="err", setup=True)
        assert os.listdir("/proc/self/fd") == before


class SimulatedErrors(Refusals):
    """Simulated errors: other functions replace functions of the standard library."""

    def test_a_job_runs_also_when_the_host_stays_bound_to_its_cores(self):
        own = os.sched_getaffinity(0)
        bind = os.sched_setaffinity
        more = frozenset({*own, 1000})  # works on machines with one core, too

        def once(pid, cores):
            if set(cores) == more:
                raise OSError(errno.EINVAL, "Invalid argument")
            bind(pid, cores)

        self.host._setup._spawner._cores = more
        with mock.patch.object(os, "sched_setaffinity", once):
            assert self.run_job("true", cores=(min(own),)).exit_code == 0
        bind(0, own)
        assert self.log == ["The agent itself stays bound to the cores of a job: Invalid argument."]

    def test_output_without_permission_or_space(self):
        for number, words in ((errno.EACCES, "Permission denied"), (errno.ENOSPC, "No space left on device")):
            with mock.patch.object(os, "open", side_effect=OSError(number, words)):
                message = self.refused("true", id=words, stdout="out")
            assert message == f"The stdout file out cannot be opened: {words}."

    def test_a_host_without_capacity_for_another_process(self):
        self.host._setup._spawner._spawn = mock.Mock(
            side_effect=BlockingIOError(11, "Resource temporarily unavailable")
        )
        with mock.patch.object(start_errors, "CAPACITY_TIMEOUT", 0.0):
            assert "no room for another process" in self.refused("true")


class ProcessCapacity(HostTest):
    def test_a_job_waits_for_process_capacity_also_when_no_other_job_runs(self):
        spawn = self.host._setup._spawner._spawn
        full = BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        self.host._setup._spawner._spawn = mock.Mock(side_effect=[full, full])
        with mock.patch.object(start_errors, "RETRY", 0.01):
            self.host.start([self.launch("a", "true"), self.launch("b", "true")])
            self.until(lambda: self.host._setup._spawner._spawn.call_count == 2, "another attempt")
            self.host._setup._spawner._spawn = spawn
            assert [self.ended(id).exit_code for id in ("a", "b")] == [0, 0]
        assert self.host.next_deadline() is None

    def test_jobs_that_wait_for_process_capacity_fail_after_a_timeout_while_no_other_job_runs(self):
        capacity = start_errors.ProcessCapacity()

        def may_return(at, others_run=False):
            with mock.patch("time.monotonic", return_value=1000.0 + at):
                return capacity.may_return(others_run)

        timeout = start_errors.CAPACITY_TIMEOUT
        assert [may_return(at) for at in (0.0, timeout / 2, timeout, timeout + 0.1)] == [True, True, False, False]
        assert may_return(timeout + 0.2, others_run=True)
        assert may_return(3 * timeout)
        assert not may_return(4 * timeout)
        capacity.process_started()
        assert may_return(4 * timeout + 0.1)

    def test_a_job_waits_for_process_capacity_as_long_as_other_jobs_run(self):
        self.start_shell("long", "echo $$ > pids; touch ready; until test -e go; do sleep 0.01; done")
        spawn = self.host._setup._spawner._spawn
        full = BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        self.host._setup._spawner._spawn = mock.Mock(side_effect=full)
        self.host.start([self.launch("a", "touch", "ran"), self.launch("b", "true")])
        assert not self.host.advance()
        assert not self.host.advance()
        assert {running.id for running in self.host.running()} == {"long", "a", "b"}
        self.host.kill(["b"])
        self.host._setup._spawner._spawn = spawn
        with open(self.path("go"), "w"):
            pass
        assert self.ended("a").exit_code == 0
        assert self.ended("b").reason == "cancel"
        assert os.path.exists(self.path("ran"))


class WithoutPosixSpawn(ProcessSetup, Streams, Reports, Unstartable, SimulatedErrors):
    """The same tests through the subprocess module, as with Python 3.6 or an old C library."""

    def open_host(self):
        with mock.patch.object(spawn, "_posix_spawn", return_value=None):
            super().open_host()
