"""Files that come with a launch: they exist while the job runs, and are removed afterwards. Python 3.6 reads this
file."""

import os
import signal
import stat

from qcg.pilotjob.host.jobhost import JobHost
from qcg.pilotjob.host.ledger import Ledger
from qcg.pilotjob.host.records import file_path
from tests.host.driver import SHELL, HostTest, wait_for


class FilesOfALaunch(HostTest):
    def file(self, id, name):
        return file_path(self.path("files"), id, name)

    def test_a_job_finds_its_files_and_only_its_owner_can_read_them(self):
        path = self.file("7:3.1", "ranks")
        show = 'cat "$1"; stat -c %a "$1" "${1%/*}"'
        ended = self.run_job(SHELL, "-c", show, "sh", path, id="7:3.1", stdout="out", files={"ranks": "żółw\nb\n"})
        assert ended.exit_code == 0
        assert self.text("out") == "żółw\nb\n600\n700\n"

    def test_files_are_removed_when_the_job_has_ended(self):
        self.run_job("true", id="a", files={"x": "1", "y": "2"})
        assert os.listdir(self.path("files")) == []
        self.host.start([self.launch("b", "sleep", "1000", files={"x": "1"})])
        self.until(lambda: os.path.exists(self.file("b", "x")), "its file")
        self.host.kill(["b"])
        self.ended("b")
        assert os.listdir(self.path("files")) == []

    def test_a_job_that_cannot_be_started_leaves_no_files(self):
        assert self.run_job("no-such-program", files={"x": "1"}).reason == "unstartable"
        assert os.listdir(self.path("files")) == []

    def test_shared_files_are_written_once_and_stay(self):
        name = "shared/machines"
        self.run_job("cp", self.file("a", name), "copy", id="a", files={name: "n1\n"})
        assert self.text("copy") == "n1\n"
        path = self.path("files/shared/machines")
        before = os.stat(path)
        assert stat.S_IMODE(before.st_mode) == 0o600
        self.run_job("true", id="b", files={name: "n1\n"})
        assert os.stat(path).st_ino == before.st_ino
        assert os.listdir(self.path("files/shared")) == ["machines"], "no half-written ones"

    def test_a_file_that_cannot_be_written_is_reported(self):
        with open(self.path("files"), "w"):
            pass
        ended = self.run_job("touch", "ran", files={"x": "1"})
        assert ended.reason == "unstartable"
        expected = f"The file {self.file('job', 'x')}, which the job needs, cannot be written: Not a directory."
        assert ended.message == expected
        assert not os.path.exists(self.path("ran"))

    def test_temporary_files_of_a_killed_agent_are_removed_by_the_next_agent(self):
        child = os.fork()
        if child == 0:
            try:
                host = JobHost(Ledger(self.path("crashed")), "n1", self.path("files"))
                host.start([self.launch("a", SHELL, "-c", "touch ready; exec sleep 1000", files={"x": "1"})])
                host.advance()
                host.take_records()
            finally:
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        wait_for(lambda: os.path.exists(self.path("ready")), "the job")
        assert os.path.exists(self.file("a", "x"))
        self.close_host()
        self.ledger_path = self.path("crashed")
        self.open_host()
        assert self.ended("a").reason == "lost"
        assert os.listdir(self.path("files")) == []
