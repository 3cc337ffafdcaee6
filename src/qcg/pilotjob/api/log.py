"""The log of the client: `api.log`, and the logger `qcg.pilotjob.api` for programs that configure logging."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from pathlib import Path

from qcg.pilotjob.api.errors import FileError
from qcg.pilotjob.common.logs import LogFormatter
from qcg.pilotjob.host.safe_open import check_own_directory, open_output, open_own

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
DEFAULT_DIRECTORY, DEFAULT_NAME = ".qcgpjm-client", "api.log"
_FLAGS = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_TRUNC

_logger = logging.getLogger("qcg.pilotjob.api")

# Not handlers of the logger: the level of a log file must not filter messages for other handlers of the program.
_handlers: dict[Path, logging.Handler] = {}
_users: Counter[Path] = Counter()
"""Number of manager objects that write to each log file."""
_lock = threading.Lock()


class ClientLog:
    """Messages of the client, to the log files and to the logger of the program."""

    def debug(self, message: str, *arguments: object) -> None:
        self._log(logging.DEBUG, message, *arguments)

    def info(self, message: str, *arguments: object) -> None:
        self._log(logging.INFO, message, *arguments)

    def warning(self, message: str, *arguments: object) -> None:
        self._log(logging.WARNING, message, *arguments)

    def _log(self, level: int, message: str, *arguments: object) -> None:
        _logger.log(level, message, *arguments)
        record = _logger.makeRecord(_logger.name, level, __file__, 0, message, arguments, None)
        for handler in tuple(_handlers.values()):
            if level >= handler.level:
                handler.handle(record)


log = ClientLog()


class LogFile:
    """The log file of a manager object. Several objects may share a file; it is closed with the last of them.

    The default log file is left out where it cannot be written, or where its directory may belong to another user.
    """

    def __init__(self, wdir: str, log_file: str | None, log_level: str | None) -> None:
        """`log_file`: an empty string for no log; `None` for `.qcgpjm-client/api.log`."""
        self._path: Path | None = None
        if log_file == "":
            return
        path = Path(wdir, log_file or f"{DEFAULT_DIRECTORY}/{DEFAULT_NAME}").absolute()
        level = (log_level or "info").upper()
        with _lock:
            if not _users[path]:
                try:
                    _handlers[path] = _open(path, is_default=log_file is None)
                except OSError as error:
                    if log_file or log_level:
                        raise FileError(
                            f"there can be no log file {path}: {error.strerror}; give another log_file"
                        ) from None
                    return
                _handlers[path].setLevel(level)
            _users[path] += 1
        self._path = path

    def close(self) -> None:
        with _lock:
            path, self._path = self._path, None
            if path is None:
                return
            _users[path] -= 1
            if _users[path]:
                return
            _handlers.pop(path).close()


def _open(path: Path, *, is_default: bool) -> logging.Handler:
    if is_default:
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        check_own_directory(path.parent)
        descriptor = open_own(path, _FLAGS)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = open_output(path, _FLAGS)
    handler = _DescriptorHandler(os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace"))
    handler.setFormatter(LogFormatter())
    return handler


class _DescriptorHandler(logging.StreamHandler):  # type: ignore[type-arg]  # generic at run time from Python 3.11 on
    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore errors: a log that cannot be written, or is being closed, must not disturb the program."""

    def close(self) -> None:
        super().close()
        self.stream.close()
