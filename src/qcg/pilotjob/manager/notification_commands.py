"""Runs the commands of `--notify`, in a thread of their own: the manager never waits for one."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import IO

from msgspec import Struct

from qcg.pilotjob.executors.hang_safe import call_in_thread
from qcg.pilotjob.host.process_tree import Process, Snapshot, send

log = logging.getLogger(__name__)

TIMEOUT = 60.0
"""Seconds after which a command is killed, with all processes that it has started."""
MOST_WAITING = 8
"""Notifications that wait for a command; further ones are dropped."""
MOST_OUTPUT = 4000
"""Bytes of a command's output that are logged."""
MOST_LOOKS = 10
"""Number of searches for processes that a command starts while it is being stopped."""


class Message(Struct, frozen=True):
    """The input of the commands for one notification."""

    document: bytes
    """Their standard input."""
    variables: Mapping[str, str]
    """Added to their environment."""


class NotificationCommands:
    """Runs commands for one notification after another."""

    def __init__(self, commands: Sequence[str], wd: str, timeout: float = TIMEOUT) -> None:
        """`commands`: as in a shell, but started without one. `wd`: the directory in which they are started."""
        self._commands = [shlex.split(command) for command in commands]
        self._wd = wd
        self._timeout = timeout
        self._waiting: deque[Message] = deque()
        self._running: asyncio.Future[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._gives_up = False
        self._kills = 0
        """Number of orders to kill, one of which may come while a command is being started."""

    def send(self, message: Message) -> None:
        """Run all commands soon."""
        if len(self._waiting) >= MOST_WAITING:
            log.warning("a notification is dropped: %d others still wait for --notify", len(self._waiting))
            return
        self._waiting.append(message)
        self._idle.clear()
        if self._running is None:
            self._run_next()

    async def finish(self, last: Message | None, patience: float, hurry: asyncio.Event) -> None:
        """Run all commands for the last time, and wait for them `patience` seconds at most, or until `hurry` is set.
        Earlier notifications have half of that."""
        deadline = time.monotonic() + patience
        try:
            if not await self._delivered(hurry, patience / 2):
                self._waiting.clear()
                self._kill()
            if last is not None and not hurry.is_set():
                self.send(last)
            if not await self._delivered(hurry, deadline - time.monotonic()):
                log.warning("the manager ends, and does not wait any longer for the command of --notify")
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Kill the command that runs, and run no other one. Calling it again does nothing."""
        self._gives_up = True
        self._waiting.clear()
        self._kill()

    def _kill(self) -> None:
        with self._lock:
            self._kills += 1
            if self._process is not None:
                _kill_tree(self._process.pid)

    async def _delivered(self, hurry: asyncio.Event, patience: float) -> bool:
        """Wait for the queued notifications, until a time is over or `hurry` is set; whether all have been
        delivered."""
        events = [asyncio.ensure_future(event.wait()) for event in (self._idle, hurry)]
        await asyncio.wait(events, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        for event in events:
            event.cancel()
        return self._idle.is_set()

    def _run_next(self) -> None:
        if not self._waiting:
            self._idle.set()
            return
        self._running = call_in_thread(partial(self._run_all, self._waiting.popleft()), "notify")
        self._running.add_done_callback(self._done)

    def _done(self, running: asyncio.Future[None]) -> None:
        self._running = None
        error = running.exception()
        if isinstance(error, OSError):
            log.warning("a notification is dropped: %s", error)
        self._run_next()
        if error is not None and not isinstance(error, OSError):
            raise error

    def _run_all(self, message: Message) -> None:
        for argv in self._commands:
            with _output_file() as output:
                code = self._run(argv, message, output)
                _log_result(argv, code, _beginning(output))

    def _run(self, argv: list[str], message: Message, output: IO[bytes]) -> int | str:
        """Run a command to its end; returns its exit code, or why it has none."""
        with self._lock:
            if self._gives_up:
                return "was not run, because the manager ends"
            kills = self._kills
        try:
            # Without the lock: a start hangs where the file system of the command does.
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=output,  # a file: processes that the command leaves behind may keep it open
                stderr=subprocess.STDOUT,
                cwd=self._wd,
                env={**os.environ, **message.variables},
                start_new_session=True,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return f"could not be started: {error}"
        with self._lock:
            self._process = process
            if self._kills != kills:  # while it was started
                _kill_tree(process.pid)
        try:
            process.communicate(message.document, timeout=self._timeout)
        except subprocess.TimeoutExpired:
            _kill_tree(process.pid)
            process.communicate()
            return f"was killed after {self._timeout:g} s"
        finally:
            with self._lock:
                self._process = None
        return process.returncode


def _output_file() -> IO[bytes]:
    """A file for the output of a command. Where none can be made, the output is not kept."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return open(os.devnull, "w+b")


def _kill_tree(pid: int) -> None:
    """Kill a child that was not waited for yet, its session, and all descendants. They are stopped first, so that none
    starts another one meanwhile."""
    found: dict[int, Process] = {}
    for _ in range(MOST_LOOKS):
        snapshot = Snapshot()
        first = snapshot.processes.get(pid)
        roots = [*snapshot.session(pid), *found.values(), *([first] if first is not None else [])]
        new = {number: one for number, one in snapshot.with_descendants(roots).items() if number not in found}
        for process in new.values():
            send(process, signal.SIGSTOP)
        found |= new
        if not new:
            break
    for process in found.values():
        send(process, signal.SIGKILL)


def _beginning(output: IO[bytes]) -> str:
    output.seek(0)
    data = output.read(MOST_OUTPUT + 1)
    text = data[:MOST_OUTPUT].decode("utf-8", "replace").strip()
    return f"{text} …" if len(data) > MOST_OUTPUT else text


def _log_result(argv: list[str], code: int | str, output: str) -> None:
    said = f":\n{output}" if output else ""
    if code == 0:
        log.info("notified with %s%s", argv[0], said)
    else:
        result = f"ended with exit code {code}" if isinstance(code, int) else code
        log.warning("the command of --notify, %s, %s%s", argv[0], result, said)
