"""Captures the output of jobs whose description names no file for it: kept in memory, saved when the job fails.

Each stream without a file is a memory file (`memfd_create`) of its own, new for each attempt. A process that outlives
its job can therefore never write into the output of another job. When the job succeeds, the memory files are closed:
no file system is touched. When it fails, or with `keep_output` always, they are copied to

    DIRECTORY/NAME.out      standard output
    DIRECTORY/NAME.err      standard error

A stream without output gets no file, and a later attempt overwrites the files of an earlier one. The file of a stream
that could not be captured says so.

Why not a pipe that the agent reads: every line of every job would wake the agent, a job would stop whenever the agent
is busy, and would get SIGPIPE when the agent dies. The price is that nothing holds back a job that prints without end.
So the sizes of the memory files of running jobs are looked at, more often while one of them grows fast, and everything
but the beginning and the end is given back to the machine. Until the next look a job can occupy more memory than it
may keep. If the agent is killed, the output is lost.
"""

import contextlib
import ctypes
import fcntl
import os
import resource
import time
from typing import Callable, Iterable, List, Optional, Tuple

from qcg.pilotjob.host.records import Launch, output_path

LIMIT = 1 << 20
"""Bytes kept of a stream: of a longer one, the first and the last half of this."""
_HALF = LIMIT // 2
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 0.5
_SHORTEST_PAUSE = 0.01
"""Seconds between two checks of the sizes."""
_GROWTH_BETWEEN_TRIMS = 8 << 20
"""Bytes that a stream may grow by between two trims, as far as the pauses allow."""
_NOT_CAPTURED = b"[The output was not captured: too many files were open on the node, or memory was short.]\n"
_CHUNK = 1 << 16
_CLOEXEC = 1
_NOEXEC_SEAL = 8
_KEEP_SIZE_AND_PUNCH_HOLE = 3


class CapturedOutput:
    """The descriptors of one attempt's captured streams; -1 for a stream that is not captured."""

    __slots__ = ("dropped", "keep", "name", "size", "stderr", "stdout")

    def __init__(self, launch: Launch, stdout: int, stderr: int) -> None:
        self.name = launch.output
        self.keep = launch.keep_output
        """Whether the output is saved also when the job succeeds."""
        self.stdout = stdout
        self.stderr = stderr
        self.dropped: List[str] = []
        """Streams that should have been captured and are not."""
        if launch.stdout is None and stdout < 0:
            self.dropped.append("stdout")
        if launch.stderr is None and stderr < 0:
            self.dropped.append("stderr")
        self.size = 0
        """Bytes in both streams together at the last check."""

    def streams(self) -> List[Tuple[str, int]]:
        return [(name, fd) for name, fd in (("stdout", self.stdout), ("stderr", self.stderr)) if fd >= 0]

    def grown_to(self, size: int) -> int:
        """The growth of both streams together since the last call."""
        growth, self.size = size - self.size, size
        return growth

    def close(self) -> None:
        for _, descriptor in self.streams():
            os.close(descriptor)
        self.stdout = self.stderr = -1


class OutputCapture:
    """Captures and saves the output of the jobs of one host."""

    def __init__(self, directory: str, log: Callable[[str], None]) -> None:
        """`directory` is made when the first output is saved."""
        self._directory = directory
        self._log = log
        self.memory_flags = memory_file_flags()
        """Flags for `memfd_create`; -1 where there are no memory files, and unlinked temporary files are used."""
        self._highest = highest_descriptor()
        self.next_trim: Optional[float] = None
        """When to call `trim`, in monotonic seconds; None while no running job has captured output."""
        self._pause = _FIRST_PAUSE
        self._trimmed_at = 0.0
        self._has_logged = False
        self._fallocate = ctypes.CDLL(None).fallocate
        self._fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]

    def capture(self, launch: Launch) -> Optional[CapturedOutput]:
        """New descriptors for the streams without a file; None when there is nothing to capture."""
        if not launch.output or (launch.stdout is not None and launch.stderr is not None):
            return None
        stdout = self._open() if launch.stdout is None else -1
        stderr = self._open() if launch.stderr is None else -1
        return self.adopt(launch, stdout, stderr)

    def adopt(self, launch: Launch, stdout: int, stderr: int) -> Optional[CapturedOutput]:
        """Like `capture`, with descriptors that a lane runner has opened; -1 for one that could not be opened."""
        if launch.stdout is not None and launch.stderr is not None:
            return None
        captured = CapturedOutput(launch, stdout, stderr)
        if captured.dropped:
            self._log_not_captured()
        return captured

    def _open(self) -> int:
        """-1 when there are too many open files, or too little memory: the job runs, and its output is dropped."""
        try:
            descriptor = _new_file(self.memory_flags)
        except OSError:
            return -1
        if descriptor >= self._highest:
            os.close(descriptor)
            return -1
        return descriptor

    def _log_not_captured(self) -> None:
        if not self._has_logged:
            self._has_logged = True
            self._log(
                "The output of some jobs is not captured: too many files are open (the limit is %d), or memory is"
                " short. Raise the hard limit (ulimit -Hn), or give the jobs stdout and stderr." % (2 * self._highest)
            )

    def began(self) -> None:
        """A job with captured output has started."""
        now = time.monotonic()
        self._pause = _FIRST_PAUSE
        if self.next_trim is None:
            self._trimmed_at = now
        if self.next_trim is None or self.next_trim > now + _FIRST_PAUSE:
            self.next_trim = now + _FIRST_PAUSE

    def trim(self, running: Iterable[CapturedOutput], now: float) -> None:
        """Free the middle of long streams, and decide when to do it again."""
        seconds = max(now - self._trimmed_at, _SHORTEST_PAUSE)
        growth, any_running = 0, False
        for captured in running:
            any_running = True
            size = sum(self._trim_stream(descriptor) for _, descriptor in captured.streams())
            growth = max(growth, captured.grown_to(size))
        self._trimmed_at = now
        pause = min(self._pause, _GROWTH_BETWEEN_TRIMS * seconds / growth) if growth else self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self.next_trim = now + max(pause, _SHORTEST_PAUSE) if any_running else None

    def postpone(self, now: float) -> None:
        """Trim later: the lane runner cannot be suspended at this moment."""
        self.next_trim = now + _LONGEST_PAUSE

    def _trim_stream(self, descriptor: int) -> int:
        """Free the memory in the middle of a long stream. Returns its size, which stays the same."""
        size = os.fstat(descriptor).st_size
        if size > 2 * LIMIT:
            # Temporary files of some file systems cannot be trimmed: then they stay as they are.
            self._fallocate(descriptor, _KEEP_SIZE_AND_PUNCH_HOLE, _HALF, size - LIMIT)
        return size

    def save(self, captured: CapturedOutput, id: str) -> None:
        """Copy captured output to files. A file that cannot be written changes nothing about the job."""
        for stream, descriptor in captured.streams() + [(stream, -1) for stream in captured.dropped]:
            path = output_path(self._directory, captured.name, stream)
            try:
                _save(descriptor, path.encode("utf-8", "surrogateescape"))
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else error
                self._log("The %s of job %s cannot be saved in %s: %s." % (stream, id, path, why))


def highest_descriptor() -> int:
    """Descriptors from this one on are never used for captured output, so that some are left for everything else."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


def memory_file_flags() -> int:
    """Flags for `memfd_create`, the safest that this kernel has; -1 where there are no memory files."""
    if not hasattr(os, "memfd_create"):
        return -1
    for flags in (_CLOEXEC | _NOEXEC_SEAL, _CLOEXEC):
        try:
            os.close(os.memfd_create("output", flags))
        except OSError:
            continue
        return flags
    return -1


def _new_file(memory_flags: int) -> int:
    """A file in append mode: a job that opens /dev/stdout again and truncates it leaves no gap."""
    if memory_flags >= 0:
        descriptor = os.memfd_create("output", memory_flags)
    else:
        import tempfile  # here: nearly every kernel has files in memory

        descriptor, path = tempfile.mkstemp(prefix="qcg-pm-output-")
        os.unlink(path)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_APPEND)
    return descriptor


def _save(descriptor: int, path: bytes) -> None:
    """Save a stream. `descriptor`: -1 if it was not captured; its file says so, because no file means no output."""
    size = os.fstat(descriptor).st_size if descriptor >= 0 else len(_NOT_CAPTURED)
    if not size:
        _remove(path)  # of an earlier attempt
        return
    try:
        file = _create(path)
        try:
            if descriptor < 0:
                _write(file, _NOT_CAPTURED)
            elif size <= LIMIT:
                _copy(descriptor, 0, size, file)
            else:
                _copy(descriptor, 0, _HALF, file)
                _write(file, b"\n[%d bytes of output left out here]\n" % (size - LIMIT))
                _copy(descriptor, size - _HALF, _HALF, file)
        finally:
            os.close(file)
    except OSError:
        _remove(path)  # half an output would be taken for all of it
        raise


def _create(path: bytes) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return os.open(path, flags, 0o600)


def _remove(path: bytes) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _copy(source: int, start: int, length: int, target: int) -> None:
    """Copy up to `length` bytes: a process that outlives the job may truncate the source meanwhile."""
    while length > 0:
        data = os.pread(source, min(length, _CHUNK), start)
        if not data:
            return
        _write(target, data)
        start += len(data)
        length -= len(data)


def _write(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]
