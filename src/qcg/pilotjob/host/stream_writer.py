"""`python -m qcg.pilotjob.host.stream_writer`: the process that writes the output streams of one node.

It reads the pipes to which jobs write, and appends what it reads to one file; see `stream_format.py`. It is a process
of its own, because jobs outlive an agent that is killed: with the agent as the reader, they would get SIGPIPE, and what
is in their pipes would be lost. This process continues until every pipe is closed.

A pipe is read only when the data before it is written. So memory does not grow, and a job that writes faster than the
file system waits in its `write`. While the disk is full, all jobs wait.
"""

import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time
from collections import OrderedDict
from typing import Dict, List, Optional, Tuple

from qcg.pilotjob.host.stream_format import (
    END,
    FILE_HEADER,
    INDEX_SUFFIX,
    OPEN,
    STDERR,
    STDOUT,
    SUFFIX,
    file_name,
    frame_header,
    index_record,
    key_of,
    parse_opening,
)

OPENING, ENDING, DISCARD = b"O", b"E", b"D"
"""First byte of the messages of an agent: an attempt is about to start (number, payload of its OPEN frame; with two
descriptors), it is over (number), and it could not be started (number)."""
STORED, AGAIN, PROBLEM = b"S", b"A", b"P"
"""First byte of the messages to an agent: the output of these attempts is stored (numbers), the descriptors of an
attempt could not be received and have to be sent again (number), and a problem (text; empty when it is over)."""
NUMBER = struct.Struct("<I")
LONGEST_MESSAGE = 1 << 16
NUMBERS_IN_MESSAGE = 4096

PIPE_READ = 1 << 16
READS_IN_TURN = 64
"""Pipes that are read before the data is written: at most 4 MiB are held in memory."""
MESSAGES_IN_TURN = 64
MOST_LEFT_OPEN = 128
"""Attempts that are over whose pipes some process still has open. The oldest are closed when there are more."""
SYNC_INTERVAL = 1.0
RETRY = 0.5
"""Seconds between two attempts to write to a full disk."""
ORPHAN_PATIENCE = 60.0
"""Seconds for which a process without an agent tries to write to a full disk."""


class Attempt:
    """An attempt whose output is being read."""

    __slots__ = ("ended", "key", "last", "number", "opened", "opening", "pipes")

    def __init__(self, number: int, key: bytes, opening: bytes, pipes: Dict[int, int]) -> None:
        self.number = number
        self.key = key
        self.opening = opening
        """The payload of its OPEN frame."""
        self.opened = 0
        """Offset of its OPEN frame; 0 while it has none: a job that cannot be started leaves nothing in the file."""
        self.last = 0
        """Offset of its last frame."""
        self.pipes = pipes
        """Kinds of frames by descriptor."""
        self.ended = 0
        """Offset of its last END frame; 0 for none. Processes that outlive the job may still write."""


class StreamFile:
    """A stream file and its index. Data is collected, and written by `flush`."""

    def __init__(self, directory: str, node: str) -> None:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        path = os.path.join(directory, file_name(node, os.getpid(), int(time.time() * 1e6)))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self.data = os.open(path + SUFFIX, flags, 0o600)
        self.index = os.open(path + INDEX_SUFFIX, flags, 0o600)
        self._frames: List[bytes] = [FILE_HEADER]
        self._records: List[bytes] = []
        self.size = len(FILE_HEADER)
        """Size of the file with the collected data."""
        self._unsynced = threading.Event()
        threading.Thread(target=self._sync, daemon=True).start()

    def append(self, kind: int, number: int, payload: bytes, previous: int) -> int:
        """Collect a frame. Returns its offset."""
        offset = self.size
        header = frame_header(kind, number, payload, previous)
        self._frames += (header, payload)
        self.size += len(header) + len(payload)
        return offset

    def append_record(self, record: bytes) -> None:
        self._records.append(record)

    def take(self) -> Tuple[bytes, bytes]:
        """Take out the collected data for the file and for the index."""
        data, records = b"".join(self._frames), b"".join(self._records)
        self._frames, self._records = [], []
        return data, records

    def sync_soon(self) -> None:
        """Bring the files to the disk soon, in the thread."""
        self._unsynced.set()

    def _sync(self) -> None:
        """The thread that brings the files to the disk, so that a slow disk does not hold up the jobs."""
        while True:
            self._unsynced.wait()
            self._unsynced.clear()
            for descriptor in (self.data, self.index):
                with contextlib.suppress(OSError):  # the next write reports it
                    os.fdatasync(descriptor)
            time.sleep(SYNC_INTERVAL)


class StreamWriter:
    """Reads pipes and messages, and writes the stream file of this process."""

    def __init__(self, control: socket.socket, wakeup: int, file: StreamFile) -> None:
        """`control`: the socket of the agent. `wakeup`: a descriptor that wakes the agent when a byte is written."""
        self._control = control
        self._wakeup = wakeup
        self._file = file
        self._attempts: Dict[int, Attempt] = {}
        self._by_pipe: Dict[int, Attempt] = {}
        self._left_open: "OrderedDict[int, Attempt]" = OrderedDict()
        """Attempts that are over, and whose pipes are open."""
        self._stored: List[int] = []
        """Attempts whose end is collected, and is to be reported when it is written."""
        self._replies: List[bytes] = []
        self._is_connected = True
        self._agent_gone_at: Optional[float] = None
        """In monotonic seconds; messages of the agent may still have to be read."""
        self._has_problem = False
        self._poll = select.epoll()
        self._poll.register(control.fileno(), select.EPOLLIN)

    def run(self) -> None:
        while self._is_connected or self._attempts:
            self._turn()
        self._flush()

    def report_ready(self) -> None:
        """Tell an agent whose last writer had a problem that this one has none."""
        self._replies.append(PROBLEM)
        self._reply()

    def _turn(self) -> None:
        timeout = 0.01 if self._replies else -1
        for descriptor, _ in self._poll.poll(timeout, READS_IN_TURN):
            if descriptor == self._control.fileno():
                self._receive()
            elif descriptor in self._by_pipe:
                self._read(descriptor, PIPE_READ)
        self._flush()

    # Messages of the agent

    def _receive(self) -> None:
        for _ in range(MESSAGES_IN_TURN):
            try:
                message, ancillary, flags, _ = self._control.recvmsg(
                    LONGEST_MESSAGE, socket.CMSG_SPACE(2 * struct.calcsize("i")), socket.MSG_DONTWAIT
                )
            except BlockingIOError:
                return
            except ConnectionError:
                message, ancillary = b"", []
            if not message:
                self._agent_ended()
                return
            number = NUMBER.unpack_from(message, 1)[0]
            if message[:1] == OPENING:
                self._open(number, message[1 + NUMBER.size :], _descriptors(ancillary))
            elif number not in self._attempts:
                continue
            elif message[:1] == DISCARD:
                self._discard(self._attempts.pop(number))
            else:
                self._drain(self._attempts[number])

    def _open(self, number: int, payload: bytes, descriptors: List[int]) -> None:
        if len(descriptors) < 2:  # too many open files
            for descriptor in descriptors:
                os.close(descriptor)
            self._replies.append(AGAIN + NUMBER.pack(number))
            return
        opening = parse_opening(payload)
        name = "" if opening is None else opening.name
        attempt = Attempt(number, key_of(name), payload, dict(zip(descriptors, (STDOUT, STDERR))))
        self._attempts[number] = attempt
        for descriptor in descriptors:
            os.set_blocking(descriptor, False)
            self._by_pipe[descriptor] = attempt
            self._poll.register(descriptor, select.EPOLLIN)

    def _discard(self, attempt: Attempt) -> None:
        for descriptor in list(attempt.pipes):
            self._close(attempt, descriptor)

    def _drain(self, attempt: Attempt) -> None:
        """The job is over: store the data in its pipes. Later output of other processes is stored as well."""
        for descriptor in list(attempt.pipes):
            left = _readable_bytes(descriptor)
            while left > 0 and descriptor in attempt.pipes:
                left -= self._read(descriptor, min(left, PIPE_READ))
            if descriptor in attempt.pipes:
                self._read(descriptor, PIPE_READ)  # mostly the end
        if not attempt.ended:
            self._end(attempt)
            self._stored.append(attempt.number)

    def _end(self, attempt: Attempt) -> None:
        if not attempt.ended or attempt.last != attempt.ended:
            self._append(attempt, END, b"")
            attempt.ended = attempt.last
            self._file.append_record(index_record(attempt.key, attempt.opened, attempt.last, attempt.number))
        if not attempt.pipes:
            self._attempts.pop(attempt.number, None)
            return
        self._left_open[attempt.number] = attempt
        if len(self._left_open) > MOST_LEFT_OPEN:
            self._abandon(self._left_open.popitem(last=False)[1])

    def _agent_ended(self) -> None:
        """Read on until the pipes of running jobs are closed. Processes that outlived their jobs are not waited for."""
        self._is_connected = False
        self._poll.unregister(self._control.fileno())
        for attempt in list(self._attempts.values()):
            if attempt.ended:
                self._abandon(attempt)
            elif not attempt.pipes:
                self._end(attempt)
        self._left_open.clear()

    def _abandon(self, attempt: Attempt) -> None:
        for descriptor in list(attempt.pipes):
            self._close(attempt, descriptor)
        self._end(attempt)

    # Pipes

    def _read(self, descriptor: int, most: int) -> int:
        """Collect the data in a pipe. Returns the number of bytes."""
        attempt = self._by_pipe[descriptor]
        try:
            data = os.read(descriptor, most)
        except BlockingIOError:
            return most
        if data:
            self._append(attempt, attempt.pipes[descriptor], data)
            return len(data)
        self._close(attempt, descriptor)
        if not attempt.pipes and (attempt.ended or not self._is_connected):
            self._left_open.pop(attempt.number, None)
            self._end(attempt)
        return 0

    def _close(self, attempt: Attempt, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        os.close(descriptor)
        del self._by_pipe[descriptor], attempt.pipes[descriptor]

    # The file

    def _append(self, attempt: Attempt, kind: int, payload: bytes) -> None:
        if not attempt.opened:
            attempt.opened = attempt.last = self._file.append(OPEN, attempt.number, attempt.opening, 0)
            self._file.append_record(index_record(attempt.key, attempt.opened, 0, attempt.number))
        attempt.last = self._file.append(kind, attempt.number, payload, attempt.last)

    def _flush(self) -> None:
        data, records = self._file.take()
        self._write(self._file.data, data)
        self._write(self._file.index, records)
        if data:
            self._file.sync_soon()
        if self._stored:
            stored, self._stored = self._stored, []
            for first in range(0, len(stored), NUMBERS_IN_MESSAGE):
                numbers = stored[first : first + NUMBERS_IN_MESSAGE]
                self._replies.append(STORED + b"".join([NUMBER.pack(number) for number in numbers]))
        if self._replies:
            self._reply()

    def _write(self, descriptor: int, data: bytes) -> None:
        """Write all of it, however long the disk is full."""
        while data:
            try:
                data = data[os.write(descriptor, data) :]
            except OSError as error:
                if not self._has_problem:
                    self._has_problem = True
                    self._replies.append(PROBLEM + (error.strerror or "").encode("utf-8", "replace"))
                    self._reply()
                if error.errno != errno.EINTR:
                    time.sleep(RETRY)
                if self._is_agent_gone() and time.monotonic() - (self._agent_gone_at or 0.0) > ORPHAN_PATIENCE:
                    sys.exit(1)
            else:
                if self._has_problem:
                    self._has_problem = False
                    self._replies.append(PROBLEM)

    def _is_agent_gone(self) -> bool:
        if self._agent_gone_at is None:
            poll = select.poll()
            poll.register(self._control, select.POLLHUP)
            if any(event & select.POLLHUP for _, event in poll.poll(0)):
                self._agent_gone_at = time.monotonic()
        return self._agent_gone_at is not None

    def _reply(self) -> None:
        """Send the replies, as far as the agent has room for them."""
        sent = 0
        try:
            for reply in self._replies:
                self._control.send(reply, socket.MSG_DONTWAIT)
                sent += 1
        except BlockingIOError:
            pass
        except OSError:
            sent = len(self._replies)  # nobody is there
        del self._replies[:sent]
        with contextlib.suppress(OSError):
            os.write(self._wakeup, b"\0")


def _descriptors(ancillary: List[Tuple[int, int, bytes]]) -> List[int]:
    found: List[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found += struct.unpack("%di" % (len(data) // 4), data[: len(data) // 4 * 4])
    return found


def _readable_bytes(descriptor: int) -> int:
    room = bytearray(4)
    fcntl.ioctl(descriptor, termios.FIONREAD, room)
    return int(struct.unpack("i", room)[0])


def main() -> int:
    """Arguments: the descriptors of the socket of the agent and of its wakeup, the directory, the name of the node."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)  # it ends with the jobs whose output it reads
    control = socket.socket(fileno=int(sys.argv[1]))
    try:
        file = StreamFile(sys.argv[3], sys.argv[4])
    except OSError as error:
        with contextlib.suppress(OSError):
            control.send(PROBLEM + (error.strerror or "").encode("utf-8", "replace"), socket.MSG_DONTWAIT)
        return 1
    writer = StreamWriter(control, int(sys.argv[2]), file)
    writer.report_ready()
    writer.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
