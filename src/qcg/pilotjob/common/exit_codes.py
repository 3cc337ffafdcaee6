"""Exit codes of all commands."""

from __future__ import annotations

FAILURE = 1
"""A job did not succeed, a request was refused, or the manager denied the request of the command."""
CANNOT_START = 2
"""The command could not start: wrong options, a file that cannot be read, no manager."""
UNABLE = 3
"""The manager could not continue, for a reason other than its jobs or its time."""
JOBS_LEFT = 4
"""The manager ended before its jobs: `--resume` continues with them."""
OUTPUT_LOST = 5
"""The command did its work, but its output could not be written."""
CRASHED = 70
"""An unexpected exception ended the command (EX_SOFTWARE of sysexits.h)."""
INTERRUPTED = 130
"""The user pressed Ctrl-C."""


def killed_by(signal_number: int) -> int:
    """The exit code that shells use for a command which a signal ended."""
    return 128 + signal_number
