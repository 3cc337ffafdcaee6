"""Output that goes to a stream: the job writes to pipes, and a process beside the agent writes the stream file.

That process, the writer (`stream_writer.py`), is started with the first such job and outlives the agent. The agent
makes the pipes and passes their reading ends to the writer before the job starts: a job whose agent is killed continues
writing. The agent keeps a copy of the reading ends until the writer reports that everything is stored. When the writer
is killed, another one continues with these copies, in a file of its own.

The end of a job is recorded when its output is stored: a reader of the output of an ended job finds all of it.
"""

import os
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from typing import Callable, Deque, Dict, List, Optional, Set, Tuple

from qcg.pilotjob.host import stream_writer
from qcg.pilotjob.host.captured_output import highest_descriptor
from qcg.pilotjob.host.job import ActiveJob
from qcg.pilotjob.host.records import Launch
from qcg.pilotjob.host.start_errors import NoCapacity
from qcg.pilotjob.host.stream_format import Opening
from qcg.pilotjob.host.stream_writer import NUMBER
from qcg.pilotjob.host.streamed_output import StreamedOutput

STORE_TIMEOUT = 5.0
"""Seconds after the end of a job in which its output has to be stored; then the end is recorded in any case."""
RETRY = 0.5
"""Seconds after which messages are sent again to a writer that is busy, and between two starts of a writer."""

_ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
"""The directory from which this package is imported. Computed now: the agent changes its working directory."""


class OutputStreams:
    """The streams of the jobs of one host, and the process that writes them."""

    def __init__(self, directory: str, node: str, wakeup: int, log: Callable[[str], None]) -> None:
        """`wakeup`: a descriptor that wakes the driver of the host when a byte is written to it; -1 for none."""
        self._directory = directory
        self._node = node
        self._wakeup = wakeup
        self._log = log
        self._most = highest_descriptor()
        self._count = 0
        self._open: Dict[int, StreamedOutput] = {}
        """By number: attempts whose output is not known to be stored."""
        self._jobs: Dict[int, ActiveJob] = {}
        """Jobs that are over except for their output."""
        self._stored: List[ActiveJob] = []
        self._outgoing: Deque[Tuple[bytes, List[int]]] = deque()
        self._control: Optional[socket.socket] = None
        self._next_start = 0.0
        """When a writer may be started, in monotonic seconds."""
        self._problem = ""
        self.writers: Set[int] = set()
        """Pids of writers, which end by themselves."""
        self.next_check: Optional[float] = None
        """When to call `take_stored`, in monotonic seconds; None while nothing has to be sent or received."""

    def open(self, launch: Launch) -> StreamedOutput:
        """Pipes for an attempt, which the writer reads from now on. Raises NoCapacity when the attempt has to wait."""
        if self._outgoing or self._problem:
            self._send()
        if self._outgoing or self._problem:
            raise self._no_writer()
        self._count += 1
        output = StreamedOutput(self._count, Opening(launch.output or launch.id, launch.id, 1, time.time()))
        if max(output.stdout, output.stderr) >= self._most:
            output.close()
            raise NoCapacity(
                "The output of the job cannot be collected: too many files are open; raise the hard limit (ulimit -Hn)."
            )
        self._hand_over(output)
        self._send()
        if self._outgoing:
            self._outgoing.clear()
            output.close()
            raise self._no_writer()
        self._open[output.number] = output
        return output

    def discard(self, output: StreamedOutput) -> None:
        """The job could not be started: store no output."""
        del self._open[output.number]
        output.close()
        self._outgoing.append((stream_writer.DISCARD + NUMBER.pack(output.number), []))
        self._send()

    def is_stored(self, job: ActiveJob) -> bool:
        """Whether the output of a job without processes is stored. If not, `take_stored` returns the job later."""
        output = job.stream
        if output is None or output.number not in self._open:
            return True
        if not output.is_over:
            output.is_over = True
            output.store_by = time.monotonic() + STORE_TIMEOUT
            self._jobs[output.number] = job
            self._queue_end(output)
            self._send()
        return False

    def take_stored(self, now: float) -> List[ActiveJob]:
        """Jobs whose output was stored since the last call, or is not waited for any longer."""
        self._receive()
        self._send()
        while self._jobs:
            number = next(iter(self._jobs))
            if self._open[number].store_by > now:
                break
            job = self._jobs.pop(number)
            self._log("The output of job %s is not stored yet; it will be when the file system allows." % job.id)
            # Its pipes stay open: the writer has them, or the next one gets them.
            job.stream = None
            self._stored.append(job)
        stored, self._stored = self._stored, []
        self._plan(now)
        return stored

    def reaped(self, pid: int) -> None:
        """A child has ended that is no job. If it is the writer, another one continues."""
        if pid not in self.writers:
            return
        self._receive()
        self.writers.discard(pid)
        if not self.writers:
            self._restart()

    def close(self) -> None:
        """Leave everything to the writer, which ends when all pipes are closed."""
        if self._control is not None:
            self._control.close()
            self._control = None
        for output in self._open.values():
            output.close()
        self._open.clear()

    # The writer

    def _no_writer(self) -> NoCapacity:
        why = self._problem or "the process that writes it is busy"
        return NoCapacity("The output of the job cannot be collected in %s: %s." % (self._directory, why))

    def _start_writer(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        environment = dict(os.environ, PYTHONPATH=_ROOT)
        command = [sys.executable, "-S", "-m", stream_writer.__name__, str(theirs.fileno()), str(self._wakeup)]
        try:
            process = subprocess.Popen(
                command + [self._directory, self._node],
                cwd="/",  # its modules must not be looked for in the working directory of a job
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()] + ([self._wakeup] if self._wakeup >= 0 else []),
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            self._failed("the process that writes it cannot be started: %s" % error.strerror)
            return
        finally:
            theirs.close()
        # The job host reaps the process, not the subprocess module.
        process.returncode = 0
        self.writers.add(process.pid)
        self._control = ours

    def _failed(self, problem: str) -> None:
        if problem != self._problem:
            self._log("The output of jobs cannot be collected in %s: %s." % (self._directory, problem))
        self._problem = problem
        self._next_start = time.monotonic() + RETRY

    def _restart(self) -> None:
        """Give all pipes to another writer."""
        if self._control is not None:
            self._control.close()
            self._control = None
        self._outgoing.clear()
        self._next_start = max(self._next_start, time.monotonic() + RETRY)
        for output in self._open.values():
            output.opening = output.opening._replace(part=output.opening.part + 1, at=time.time())
            self._hand_over(output)
            if output.is_over:
                self._queue_end(output)
        self._plan(time.monotonic())

    # Messages

    def _hand_over(self, output: StreamedOutput) -> None:
        message = stream_writer.OPENING + NUMBER.pack(output.number) + output.opening.encoded()
        self._outgoing.append((message, output.readers))

    def _queue_end(self, output: StreamedOutput) -> None:
        self._outgoing.append((stream_writer.ENDING + NUMBER.pack(output.number), []))

    def _send(self) -> None:
        """Send messages as far as the writer has room for them."""
        if self._control is None and (self._outgoing or self._problem) and time.monotonic() >= self._next_start:
            self._start_writer()
        while self._outgoing and self._control is not None:
            message, descriptors = self._outgoing[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("%di" % len(descriptors), *descriptors))]
            try:
                self._control.sendmsg([message], rights if descriptors else [])
            except OSError:
                break  # it is busy, or gone: then SIGCHLD follows
            self._outgoing.popleft()
        self._plan(time.monotonic())

    def _receive(self) -> None:
        while self._control is not None:
            try:
                message = self._control.recv(stream_writer.LONGEST_MESSAGE)
            except OSError:
                return
            kind, content = message[:1], message[1:]
            if kind == stream_writer.STORED:
                self._problem = ""
                for (number,) in NUMBER.iter_unpack(content):
                    self._output_stored(number)
            elif kind == stream_writer.AGAIN:
                output = self._open.get(NUMBER.unpack(content)[0])
                if output is not None:
                    self._hand_over(output)
                    if output.is_over:
                        self._queue_end(output)
            elif kind == stream_writer.PROBLEM and content:
                self._failed(content.decode("utf-8", "replace"))
            elif kind == stream_writer.PROBLEM:
                if self._problem:
                    self._log("Output can be collected in %s again." % self._directory)
                self._problem = ""
            else:
                return  # the writer is gone: SIGCHLD follows

    def _output_stored(self, number: int) -> None:
        output = self._open.pop(number, None)
        if output is not None:
            output.close()
        job = self._jobs.pop(number, None)
        if job is not None:
            self._stored.append(job)

    def _plan(self, now: float) -> None:
        times = [self._open[next(iter(self._jobs))].store_by] if self._jobs else []
        if self._outgoing or self._problem:
            times.append(now + RETRY)
        self.next_check = min(times) if times else None
