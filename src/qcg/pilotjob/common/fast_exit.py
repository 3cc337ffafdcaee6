"""Ends a process without the teardown of the interpreter, which frees modules and objects one by one.

The teardown takes a sixth of the time of a short command, and seconds after a run with a million jobs; the system frees
all memory at once. Threads are waited for and exit handlers are run as usual.
"""

from __future__ import annotations

import atexit
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


class FastExit:
    """The last exit handler of a process. Exit handlers that were registered before it are not run.

    In the development mode of Python (`-X dev`) it does nothing, so that the teardown reports what was left open."""

    def __init__(self) -> None:
        self._code: int | None = None
        if not sys.flags.dev_mode:
            atexit.register(self._leave)  # handlers run in the opposite order of their registration

    def exit(self, code: int | str | None) -> NoReturn:
        """End the process like `sys.exit`."""
        self._code = 1 if isinstance(code, str) else code or 0
        sys.exit(code)

    def _leave(self) -> None:
        if self._code is not None and _are_streams_flushed():
            os._exit(self._code)


def _are_streams_flushed() -> bool:
    """Flush the standard streams. After an error the interpreter tries again, and reports it."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return False
    return True
