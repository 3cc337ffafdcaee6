"""The limit of open files and connections of this process.

Every peer that connects to a port takes a descriptor until it is disconnected. So this process raises its own limit as
far as it may. Jobs get the limit that it was given, because some programs do not work with a large one.
"""

from __future__ import annotations

import os
import resource

GIVEN, MOST = resource.getrlimit(resource.RLIMIT_NOFILE)

NEEDED_BY_MANAGER = 48
"""Free descriptors without which a manager, or its agent, hangs or is aborted by the network library."""
NEEDED_BY_CLIENT = 16


class TooFewDescriptors(Exception):
    """The limit of open files is too low; the message says how to raise it."""


def raise_limit() -> None:
    """Raise the limit of this process to the hard limit."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST, MOST))


def require(needed: int) -> None:
    """Raise TooFewDescriptors when `needed` more files cannot be opened.

    The network library aborts the process when it has no descriptors left.
    """
    opened: list[int] = []
    try:
        for _ in range(needed):
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))  # noqa: PERF401 an error closes all of them
    except OSError as error:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise TooFewDescriptors(
            f"{needed} more files cannot be opened: {os.strerror(error.errno or 0)}. The limit of this process is"
            f" {limit}; raise it, for example with `ulimit -n 1024`, and try again"
        ) from None
    finally:
        for descriptor in opened:
            os.close(descriptor)
