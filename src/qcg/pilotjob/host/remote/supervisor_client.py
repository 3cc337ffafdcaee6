"""Reaches the supervisor of this host over its socket, and starts one when there is none."""

import fcntl
import os
import select
import socket
import sys
import time
from typing import Any, Dict, List, Optional

from qcg.pilotjob.host.remote.environment import GATE_ADMITS
from qcg.pilotjob.host.remote.errors import CommandError, os_error
from qcg.pilotjob.host.remote.frames import FrameReader, request_frame
from qcg.pilotjob.host.remote.layout import Layout, read_text
from qcg.pilotjob.host.safe_open import open_own

LOCK_SUFFIX = ".lock"
SOCKET_SUFFIX = ".sock"
LOG_SUFFIX = ".log"
READY = b"ready\n"
RUNNING = b"running\n"
"""Reply of a supervisor that finds another one running."""
START_TIMEOUT = 60.0
"""Seconds for a supervisor to start, and for another one to end: a host may be slow to load Python."""
CALL_TIMEOUT = 300.0
RETRY = 0.02


class SupervisorClient:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def is_running(self) -> bool:
        """Whether a supervisor holds the lock of this host."""
        try:
            descriptor = os.open(self._layout.of_host(LOCK_SUFFIX), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return self._answers()
        finally:
            os.close(descriptor)
        return False

    def connect(self) -> Optional[socket.socket]:
        """A connection to the supervisor; None when there is none."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # The path of a socket can have 107 bytes only.
            os.chdir(self._layout.service)
            connection.connect(self._layout.host + SOCKET_SUFFIX)
        except OSError:
            connection.close()
            return None
        return connection

    def ensure(self) -> None:
        """Start a supervisor unless there is one. Raises CommandError."""
        if not self.is_running():
            self._start()

    def watch(self) -> Optional[socket.socket]:
        """A connection on which the supervisor writes a byte whenever there are new records; None without one."""
        connection = self.connect()
        if connection is not None:
            connection.sendall(request_frame({"do": "watch"}))
            connection.setblocking(False)
        return connection

    def call(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Send a request and return the reply. Starts a supervisor when there is none. Raises CommandError.

        A supervisor that ends before it answers is replaced, and gets the request again: a launch is accepted once."""
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            connection = self.connect()
            if connection is not None:
                with connection:
                    reply = _exchange(connection, request)
                if reply is not None:
                    return reply
            elif not self.is_running():
                self._start()
                continue
            if time.monotonic() > deadline:
                raise CommandError("The supervisor of %s does not answer; see %s." % (self._layout.host, self._log()))
            select.select([], [], [], RETRY)

    def call_if_running(self, request: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """Send a request to a supervisor that is there; None without one."""
        connection = self.connect()
        if connection is None:
            return None
        with connection:
            return _exchange(connection, request)

    def _answers(self) -> bool:
        """For file systems without locks."""
        connection = self.connect()
        if connection is None:
            return False
        connection.close()
        return True

    def _log(self) -> str:
        return self._layout.of_host(LOG_SUFFIX)

    def _start(self) -> None:
        """Start a supervisor in a session of its own and wait until it accepts connections."""
        try:
            log = open_own(self._log(), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            reader, writer = os.pipe()
        except OSError as error:
            raise os_error("The supervisor cannot be started", error) from None
        child = os.fork()
        if child == 0:
            _become_supervisor(self._layout.run_dir, log, writer)
        os.close(log)
        os.close(writer)
        os.waitpid(child, 0)
        answer = b""
        with os.fdopen(reader, "rb", buffering=0) as pipe:
            while not answer.endswith(b"\n"):
                if not select.select([pipe], [], [], START_TIMEOUT)[0]:
                    raise CommandError("The supervisor of this host does not start; see %s." % self._log())
                part = pipe.read(4096)
                if not part:
                    break
                answer += part
        if answer not in (READY, RUNNING):
            why = answer.decode("utf-8", "replace").strip() or _last_line(read_text(self._log()) or "")
            raise CommandError("The supervisor of this host cannot start: %s (see %s)." % (why, self._log()))


def far_command() -> List[str]:
    """The command that runs the far side again, without its arguments."""
    return [sys.executable or os.readlink("/proc/self/exe"), os.path.abspath(sys.argv[0])]


def _become_supervisor(run_dir: str, log: int, writer: int) -> None:
    """In a forked child: leave the session of the caller, so that its end does not matter, and become a supervisor."""
    try:
        command = far_command()
        os.setsid()
        if os.fork() == 0:
            null = os.open(os.devnull, os.O_RDWR)
            for source, target in ((null, 0), (writer, 1), (log, 2)):
                os.dup2(source, target)
            os.chdir("/")
            os.environ.pop(GATE_ADMITS, None)
            os.execv(command[0], command + ["supervise", run_dir])
    finally:
        os._exit(127)


def _exchange(connection: socket.socket, request: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """Send a request and wait for its reply; None when the supervisor ends instead."""
    reader = FrameReader()
    connection.settimeout(CALL_TIMEOUT)
    try:
        connection.sendall(request_frame(request))
        while True:
            data = connection.recv(1 << 16)
            if not data:
                return None
            for reply, _ in reader.feed(data):
                return reply
    except socket.timeout:
        raise CommandError("The supervisor of this host has not answered for %g s." % CALL_TIMEOUT) from None
    except OSError:
        return None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it ended at once"
