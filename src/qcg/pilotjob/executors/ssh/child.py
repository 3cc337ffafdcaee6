"""A process of ssh or rsync, with its streams."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from qcg.pilotjob.executors.process import WatchedProcess

_LIMIT = 1 << 18
_KEPT_ERRORS = 8000
_ENDED_WITHIN = 0.5
"""Seconds to wait for processes that were told to end; most need milliseconds."""
_PAUSE = 0.005


class Child:
    """A started process. It has a session of its own, so that Ctrl-C at the terminal does not reach it.

    After `close` it has been waited for, so that nothing is left for the event loop to do.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        stdin: asyncio.StreamWriter,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader,
        transports: Sequence[asyncio.BaseTransport],
    ) -> None:
        self._process = process
        self._transports = transports
        self._watched = WatchedProcess(process.pid, process, lambda: None)
        self.stdin = stdin
        self.stdout = stdout
        self._errors = bytearray()
        self._reading_errors = asyncio.ensure_future(self._read_errors(stderr))
        self._writing = asyncio.Lock()

    @classmethod
    async def start(cls, argv: Sequence[str], cwd: str | None = None) -> Child:
        """Raises OSError when it cannot be started."""
        loop = asyncio.get_running_loop()
        # It returns at once: only the start of the process is waited for.
        process = subprocess.Popen(  # noqa: ASYNC220
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            start_new_session=True,
        )
        transports: list[asyncio.BaseTransport] = []
        try:
            stdout, stderr = asyncio.StreamReader(_LIMIT), asyncio.StreamReader(_LIMIT)
            for reader, pipe in ((stdout, process.stdout), (stderr, process.stderr)):
                reading, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), pipe)
                transports.append(reading)
            unused = asyncio.StreamReader()
            writing, protocol = await loop.connect_write_pipe(
                partial(asyncio.StreamReaderProtocol, unused), process.stdin
            )
        except BaseException:
            for transport in transports:
                transport.close()
            process.kill()
            process.communicate()
            raise
        stdin = asyncio.StreamWriter(writing, protocol, None, loop)
        return cls(process, stdin, stdout, stderr, (*transports, writing))

    @property
    def errors(self) -> str:
        """The last part of its stderr."""
        return self._errors.decode("utf-8", "replace")

    async def write(self, data: bytes) -> None:
        """Raises ConnectionError when the process has closed its input."""
        async with self._writing:
            self.stdin.write(data)
            await self.stdin.drain()

    @property
    def unwritten(self) -> int:
        """Bytes that wait until the process reads its input."""
        return self.stdin.transport.get_write_buffer_size()

    async def end(self, patience: float) -> int | None:
        """Wait for its end, and return its exit code; kill it after `patience` seconds, and return None."""
        try:
            await asyncio.wait_for(self._watched.exited.wait(), patience)
            # Not for long: a process in the background may keep stderr open, as the master of a connection does.
            await asyncio.wait({self._reading_errors}, timeout=0.5)
        except (asyncio.TimeoutError, TimeoutError):
            return None
        finally:
            self.close()
        return self._process.returncode

    def close(self) -> None:
        """Close its streams, and end it if it runs, with the processes that it has started."""
        self._reading_errors.cancel()
        for transport in self._transports:
            transport.close()
        if not self._watched.exited.is_set():
            # First SIGTERM, at which ssh removes the socket of its shared connection, and rsync its temporary files.
            for number in (signal.SIGTERM, signal.SIGKILL):
                if self._end_group(number):
                    break
            self._watched.let_go()
            self._watched.exited.set()

    def _end_group(self, number: int) -> bool:
        """Send a signal to the process and to all of its process group. True when none of them is left soon."""
        deadline = time.monotonic() + _ENDED_WITHIN
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
            while time.monotonic() < deadline:
                self._process.poll()
                os.killpg(self._process.pid, 0)
                time.sleep(_PAUSE)
            return False
        # No group, because it has ended by itself, or with the others.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDED_WITHIN)
        return True

    async def _read_errors(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(_LIMIT):
            self._errors += data
            del self._errors[:-_KEPT_ERRORS]


class Finished(NamedTuple):
    exit_code: int | None
    """None: it did not end in time, and was killed."""
    stdout: bytes
    stderr: str


async def run(argv: Sequence[str], patience: float, cwd: str | None = None) -> Finished:
    """Run a command without input. Raises OSError when it cannot be started."""
    child = await Child.start(argv, cwd)
    child.stdin.close()
    parts: list[bytes] = []

    async def read() -> None:
        while data := await child.stdout.read(_LIMIT):
            parts.append(data)

    reading = asyncio.ensure_future(read())
    try:
        code = await child.end(patience)
        await asyncio.wait({reading}, timeout=0.5)
    finally:
        reading.cancel()
        child.close()
    return Finished(code, b"".join(parts), child.errors)


async def run_at_terminal(argv: Sequence[str]) -> int:
    """Run a command that may ask the user at the terminal, and return its exit code. Raises OSError."""
    descriptor = os.open("/dev/tty", os.O_RDWR)
    try:
        process = subprocess.Popen(argv, stdin=descriptor, stdout=descriptor, stderr=descriptor)  # noqa: ASYNC220
        watched = WatchedProcess(process.pid, process, lambda: None)
        try:
            await watched.exited.wait()
        finally:
            watched.let_go()
        return process.returncode
    finally:
        os.close(descriptor)
