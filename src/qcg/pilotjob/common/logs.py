"""The log of a manager, `service.log`."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

from qcg.pilotjob.common.printable import printable, printable_entry
from qcg.pilotjob.host.safe_open import open_output

LEVELS = ("critical", "error", "warning", "info", "debug")


class LogFormatter(logging.Formatter):
    """One entry a record: time, level, message. Further lines are indented and control characters escaped, so that no
    text of a job can look like an entry or control the terminal that shows the log."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return printable_entry(super().format(record))


class _LogFile(logging.FileHandler):
    """A log file on a disk that may be full: prints one error, and writes the missing lines once there is space."""

    _in_trouble = False

    def emit(self, record: logging.LogRecord) -> None:
        self._failed = False
        super().emit(record)
        self._in_trouble = self._failed

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        # The stream keeps lines that it could not write, and tries again with the next one.
        self._failed = True
        if not self._in_trouble:
            _print_error(f"{self.baseFilename} cannot be written: {os.strerror(error.errno or 0)}")

    def close(self) -> None:
        try:
            super().close()
        except OSError as error:
            _print_error(f"the end of {self.baseFilename} could not be written: {os.strerror(error.errno or 0)}")


def _print_error(sentence: str) -> None:
    with suppress(OSError):  # stderr may be closed, too
        print(printable(sentence), file=sys.stderr, flush=True)


def log_to(path: Path, level: str) -> logging.Handler:
    """Log the messages of this package to a file that only its owner can read. The root logger is left alone."""
    os.close(open_output(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    handler = _LogFile(path, encoding="utf-8")
    handler.setFormatter(LogFormatter())
    logger = logging.getLogger("qcg.pilotjob")
    logger.setLevel(level.upper())
    logger.propagate = False
    logger.addHandler(handler)
    return handler


def stop_logging(handler: logging.Handler) -> None:
    logging.getLogger("qcg.pilotjob").removeHandler(handler)
    handler.close()
