"""Standard output that may fail, as on a full disk: the command continues, prints an error, and exits with 5."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress


class GuardedStdout(io.FileIO):
    """Writes to a descriptor until that fails: then it prints an error, and discards all further output.

    A reader that has gone, such as `head` after its last line, is no failure: the writer gets BrokenPipeError.
    """

    lost = False

    def write(self, data: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self.lost = True
            redirect_to_devnull(self.fileno())
            # Not `sys.stderr`: during a live display that is a proxy which writes to stdout.
            if sys.__stderr__ is not None:
                with suppress(OSError):
                    os.write(
                        sys.__stderr__.fileno(),
                        f"Error: standard output cannot be written: {error.strerror}\n".encode(),
                    )
            return memoryview(data).nbytes

    def all_written(self) -> bool:
        """Flush. False when any output was lost, now or before."""
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            redirect_to_devnull(self.fileno())
        return not self.lost


def guard_stdout() -> GuardedStdout | None:
    """Replace `sys.stdout` by a guarded one. None without a standard output."""
    before = sys.stdout
    if not isinstance(before, io.TextIOWrapper):
        return None
    output = GuardedStdout(before.fileno(), "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )
    return output


def flush_stderr() -> None:
    """Flush stderr. A failure changes no exit code, and there is no place left to report it."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        redirect_to_devnull(sys.stderr.fileno())


def redirect_to_devnull(descriptor: int) -> None:
    """Discard all further output of a descriptor."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, descriptor)
    os.close(devnull)
