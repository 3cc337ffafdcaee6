"""Starts commands by forking a process that has loaded their modules: loading takes most of the processor time of a
short command.

The commands are processes of their own, with their own arguments, directory, environment and standard streams, and
children of the process that asked for them. There are these differences from other processes: modules are loaded
already; at the end exit handlers run and threads are waited for, but modules are not torn down; /proc shows the command
line and the environment of the server. `tests/support/warm_start.py` is the client, and decides which commands start
like this.
"""

from __future__ import annotations

import array
import atexit
import gc
import io
import os
import pickle
import pkgutil
import runpy
import socket
import sys
import time
from contextlib import suppress
from importlib import import_module
from typing import NamedTuple

LENGTH = 8
"""Bytes of the length before a request, and of the pid in a reply, which is 0 when the command could not start."""
STREAMS = 3

PACKAGES = ("cli", "cli.commands", "executors", "interfaces", "interfaces.handlers", "manager", "report", "runs")
UNUSED = ("__main__", "bench", "dashboard", "top")
"""Modules of these packages that are programs, or belong to rare commands with many modules."""
LOADED_LATE = ("encodings.idna", "rich.console", "rich.live", "rich.progress", "rich.table")
"""Other modules that common commands load."""


class Request(NamedTuple):
    """One command to start. Its standard streams come with the message."""

    options: list[str]
    """What a command line has after `python`: `-c` and a program, or `-m` and a module; and the arguments."""
    directory: str
    environment: dict[str, str]


class Command:
    """A command in its process."""

    exit_code: int | None = None

    def __init__(self, request: Request, streams: list[int], ready: int) -> None:
        """`ready`: gets the pid, when signals and the table of descriptors are those of the command."""
        self._request = request
        self._ready = ready
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)

    def run(self) -> None:
        os.chdir(self._request.directory)
        os.environ.clear()
        os.environ.update(self._request.environment)
        time.tzset()
        _open_standard_streams()
        kind, program, *arguments = self._request.options
        sys.argv[:] = [kind, *arguments]
        sys.orig_argv[sys.orig_argv.index("-c") :] = self._request.options
        os.write(self._ready, os.getpid().to_bytes(LENGTH, sys.byteorder))
        os.close(self._ready)
        try:
            if kind == "-m":
                sys.path[0] = os.getcwd()
                runpy.run_module(program, run_name="__main__", alter_sys=True)
            else:
                exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
        except SystemExit as end:
            if end.code is None or isinstance(end.code, int):
                self.exit_code = end.code or 0
            raise


def main() -> None:
    """Serve until the client has closed the connection; in a forked process, run the command."""
    command: Command | None = None

    def skip_teardown() -> None:
        """To free each object of the server would copy all its memory."""
        if command is not None and command.exit_code is not None:
            with suppress(OSError, ValueError):  # the interpreter tries again, and reports the error
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(command.exit_code)

    atexit.register(skip_teardown)  # the first one registered runs last
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        _load()
        command = _serve(connection)
    if command is not None:
        command.run()


def _load() -> None:
    for package in PACKAGES:
        for module in pkgutil.iter_modules(import_module(f"qcg.pilotjob.{package}").__path__):
            if module.name not in UNUSED:
                import_module(f"qcg.pilotjob.{package}.{module.name}")
    for name in LOADED_LATE:
        import_module(name)
    gc.collect()
    gc.freeze()  # a collection would touch, and so copy, all objects


def _serve(connection: socket.socket) -> Command | None:
    """Fork for each request. Returns the command in its process."""
    while received := _receive(connection):
        request, streams = received
        receiver, sender = os.pipe()
        if _is_forked():
            os.close(receiver)
            return Command(request, streams, sender)
        for descriptor in (sender, *streams):
            os.close(descriptor)
        connection.sendall(os.read(receiver, LENGTH).ljust(LENGTH, b"\0"))
        os.close(receiver)
    return None


def _receive(connection: socket.socket) -> tuple[Request, list[int]] | None:
    try:
        head, control, _, _ = connection.recvmsg(LENGTH, socket.CMSG_SPACE(STREAMS * array.array("i").itemsize))
    except KeyboardInterrupt:  # pytest was interrupted
        return None
    if not head:
        return None
    streams = array.array("i")
    for _, _, data in control:
        streams.frombytes(data)
    left = int.from_bytes(head, sys.byteorder)
    body = bytearray()
    while len(body) < left:
        body += connection.recv(left - len(body))
    return Request(*pickle.loads(bytes(body))), list(streams)


def _is_forked() -> bool:
    """Fork, and return whether this is the new process. Its parent ends, so that the test process adopts it."""
    middle = os.fork()
    if middle == 0:
        if os.fork() == 0:
            return True
        os._exit(0)
    os.waitpid(middle, 0)
    return False


def _open_standard_streams() -> None:
    """Open text streams as the interpreter does at its start: their buffers depend on what they lead to."""
    unbuffered = isinstance(sys.stdout.buffer, io.FileIO)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old: io.TextIOWrapper = getattr(sys, name)
        is_input = name == "stdin"
        binary = open(  # noqa: SIM115 open until the end of the process
            number, "rb" if is_input else "wb", 0 if unbuffered and not is_input else -1, closefd=False
        )
        stream = io.TextIOWrapper(
            binary,
            old.encoding,
            old.errors,
            newline=None if is_input else "\n",
            line_buffering=not unbuffered and (name == "stderr" or binary.isatty()),
            write_through=unbuffered,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


if __name__ == "__main__":
    main()
