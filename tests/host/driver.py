"""Drives a JobHost as an agent does, for tests. Python 3.6 reads this file, and unittest alone runs what uses it."""

import os
import resource
import select
import signal
import sys
import tempfile
import time
import unittest

from qcg.pilotjob.host.jobhost import JobHost
from qcg.pilotjob.host.ledger import Ledger
from qcg.pilotjob.host.output_streams import OutputStreams
from qcg.pilotjob.host.process_tree import read_process
from qcg.pilotjob.host.records import Ended, Launch

TIMEOUT = 60.0
SHELL = "/bin/sh"

# A shell, its child, and a grandchild that left the session with its parent dead: one job's tree.
TREE = """
echo $$ >> pids
sleep 1000 & echo $! >> pids
sh -c 'sleep 1000 & echo $! >> pids; wait' &
(setsid sh -c 'echo $$ >> pids; exec sleep 1000' &)
until test "$(wc -l < pids)" = 4; do :; done
touch ready
wait
"""


def wait_for(predicate, what):
    """The first true value of `predicate`: for changes made by another process."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"Timed out while waiting for {what}.")
        select.select([], [], [], 0.005)


def alive(pid):
    process = read_process(pid)
    return process is not None and not process.dead


class HostTest(unittest.TestCase):
    grace = 10.0
    verdict_delay = 0.0
    open_files = 0

    def setUp(self):
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)
        self.ledger_path = self.path("ledger")
        self.log = []
        self.records = []
        self._wake, self.wakeup = os.pipe()
        self.addCleanup(os.close, self._wake)
        self.addCleanup(os.close, self.wakeup)
        os.set_blocking(self._wake, False)
        os.set_blocking(self.wakeup, False)
        handler = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self.addCleanup(signal.signal, signal.SIGCHLD, handler)
        previous = signal.set_wakeup_fd(self.wakeup)
        self.addCleanup(signal.set_wakeup_fd, previous)
        self.open_host()
        self.addCleanup(self.close_host)

    def open_host(self):
        self.ledger = Ledger(self.ledger_path)
        self.host = JobHost(
            self.ledger,
            "n1",
            self.path("files"),
            self.grace,
            self.log.append,
            self.verdict_delay,
            self.path("out"),
            self.open_files,
            streams=OutputStreams(self.path("streams"), "n1", self.wakeup, self.log.append),
        )

    def close_host(self):
        self.host.finish(0.0)
        self.until(lambda: not self.host.busy, "the end of all jobs")
        self.host.close()
        self.ledger.close()

    def path(self, name):
        return os.path.join(self.folder, name)

    def text(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def launch(self, id, *argv, **other):
        env = {"QCG_PM_STEP_ID": f"test{os.getpid()}.{id}"}
        env.update(other.pop("env", {}))
        fields: dict = {
            "unset": [],
            "wd": self.folder,
            "stdin": None,
            "stdout": None,
            "stderr": None,
            "cores": None,
            "wall_time": None,
            "setup": False,
            "grant": [("n1", (0,), ())],
        }
        fields.update(other)
        return Launch(id=id, argv=list(argv), env=env, **fields)

    def turn(self, timeout):
        self.host.sync_ledger()
        more = self.host.turn(time.monotonic())
        self.records.extend(self.host.take_records())
        now = time.monotonic()
        times = [at - now for at in (self.host.next_deadline(), self.ledger.sync_due()) if at is not None]
        pause = 0.0 if more else max(0.0, min([timeout, *times]))
        if select.select([self._wake], [], [], pause)[0] and signal.SIGCHLD in os.read(self._wake, 4096):
            self.host.children_ended()

    def until(self, predicate, what):
        deadline = time.monotonic() + TIMEOUT
        while True:
            value = predicate()
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(f"Timed out while waiting for {what}; records: {self.records}")
            self.turn(0.01)

    def find_ended(self, id):
        return next((body for _, body in self.records if isinstance(body, Ended) and body.id == id), None)

    def ended(self, id):
        return self.until(lambda: self.find_ended(id), f"the end of {id}")

    def run_job(self, *argv, **other):
        """Run a job to its end, and return its end record."""
        id = other.pop("id", "job")
        self.host.start([self.launch(id, *argv, **other)])
        return self.ended(id)

    def start_shell(self, id, script, **other):
        """Start a script that writes pids to the file `pids`, a line each, and then creates `ready`; returns the
        pids."""
        self.host.start([self.launch(id, SHELL, "-c", script, **other)])
        self.until(lambda: os.path.exists(self.path("ready")), f"{id} being ready")
        return [int(line) for line in self.text("pids").split()]

    def assert_gone(self, pids):
        for pid in pids:
            wait_for(lambda pid=pid: not alive(pid), f"the end of process {pid}")


def own_peak():
    """Peak memory of this process in bytes. Linux counts at least that for each child that it starts."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def python(code):
    """Arguments that run this code with the Python of the tests."""
    return [sys.executable, "-S", "-c", code]
