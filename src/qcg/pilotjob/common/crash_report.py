"""Reports an unexpected exception: a sentence on stderr, and a file to attach to a bug report."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from qcg.pilotjob import __version__
from qcg.pilotjob.common.exit_codes import CRASHED
from qcg.pilotjob.common.printable import printable_lines


def report_crash(command: str, error: BaseException) -> int:
    """Print the error and the path of the bug report. Returns the exit code."""
    summary = _summary(error)
    print_safely(f"Error: {command} ended because of an unexpected error: {summary}")
    try:
        path = _write(command, error)
    except (OSError, ImportError) as why:
        reason = why.strerror if isinstance(why, OSError) else why
        print_safely(f"This is a defect of QCG-PilotJob, and no file for a bug report could be written: {reason}")
    else:
        print_safely(f"This is a defect of QCG-PilotJob: please report it, and attach {path}")
    return CRASHED


def _write(command: str, error: BaseException) -> str:
    import tempfile  # loaded here: nearly no command needs it

    text = _text(command, error)
    descriptor, path = tempfile.mkstemp(prefix="qcg-pm-error-", suffix=".txt")  # readable by its owner only
    try:
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(printable_lines(text))
    except OSError:
        with suppress(OSError):
            os.unlink(path)
        raise
    return path


def _text(command: str, error: BaseException) -> str:
    """The text of a bug report, without environment, arguments and values of variables, which may hold secrets."""
    import platform
    import traceback
    from datetime import datetime, timezone

    lines = [
        f"command: {command}",
        f"version: {__version__}",
        f"python: {platform.python_version()} ({platform.python_implementation()})",
        f"platform: {platform.platform()}",
        f"time: {datetime.now(timezone.utc).isoformat(timespec='seconds')}",
        "",
    ]
    return "\n".join(lines) + "\n" + "".join(traceback.format_exception(error))


def _summary(error: BaseException) -> str:
    """The exception in one line of limited length."""
    text = " ".join(str(error).split())
    if len(text) > 300:
        text = text[:300] + "..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def print_safely(text: str) -> None:
    """Write a line to stderr, whatever its encoding. A closed stderr is no reason for another exception."""
    if sys.stderr is None:
        return
    encoding = sys.stderr.encoding or "utf-8"
    with suppress(OSError, ValueError):
        print(printable_lines(text).encode(encoding, "backslashreplace").decode(encoding), file=sys.stderr, flush=True)
