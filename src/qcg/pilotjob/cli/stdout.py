"""Standard output that may be lost, as on a disk that is full: a command does its work all the same, and says so."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress


class Output(io.FileIO):
    """Writes to a descriptor until that fails: then this is said, and what follows goes nowhere.

    That the reader has gone, as `head` does when it has seen enough, is no loss; who writes gets to know it.
    """

    lost = False

    def write(self, data: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self.lost = True
            go_nowhere(self.fileno())
            # Not `sys.stderr`: while a live display is shown, that is a proxy which would write here again.
            if sys.__stderr__ is not None:
                with suppress(OSError):
                    os.write(
                        sys.__stderr__.fileno(),
                        f"Error: standard output cannot be written: {error.strerror}\n".encode(),
                    )
            return memoryview(data).nbytes

    def all_written(self) -> bool:
        """Write what is left in buffers. False when anything was lost, now or before."""
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            go_nowhere(self.fileno())
        return not self.lost


def take_standard_output() -> Output | None:
    """From now on everybody writes through it. None where there is no standard output."""
    before = sys.stdout
    if not isinstance(before, io.TextIOWrapper):
        return None
    output = Output(before.fileno(), "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )
    return output


def leave_standard_error() -> None:
    """What it cannot take is lost, and nobody can be told. That changes no exit code."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        go_nowhere(sys.stderr.fileno())


def go_nowhere(descriptor: int) -> None:
    """What is written to it from now on, nobody sees."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
