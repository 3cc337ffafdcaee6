"""The `cfg` of a manager object, and the log of the client."""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from qcg.pilotjob.api.errors import FileError, WrongArgumentsError
from qcg.pilotjob.logs import LogFormatter

log = logging.getLogger("qcg.pilotjob.api")

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_users: Counter[Path] = Counter()
"""Of each log file: several managers may write to the same."""
_lock = threading.Lock()


class Config(Struct, frozen=True):
    poll_delay: float = 5.0
    """Seconds between questions where no event arrives."""
    request_timeout: float = 60.0
    """Seconds that a request may take."""
    reconnect: float = 0.0
    """Seconds to look for the service again when it is gone while waiting, before giving up."""
    init_timeout: float = 300.0
    """Seconds that a service of one's own may take to start."""
    wdir: str = "."
    log_file: str | None = None
    log_level: str | None = None
    pub_timeout: float = 300.0
    """Accepted for older programs: waiting needs no such limit."""


def read_config(cfg: Mapping[str, Any] | None) -> Config:
    """Keys that are not known are left alone, and said so in the log."""
    known: dict[str, Any] = {}
    for key, value in (cfg or {}).items():
        if key not in Config.__struct_fields__:
            log.warning("the configuration key %r is not known and has no effect", key)
        elif key in ("wdir", "log_file", "log_level"):
            known[key] = None if value is None else str(value)
        else:
            known[key] = None if value is None else _seconds(key, value)
    config = Config(**{key: value for key, value in known.items() if value is not None})
    if config.log_level is not None and config.log_level.upper() not in LEVELS:
        raise WrongArgumentsError(f"the log level {config.log_level!r} is not known; use debug, info, warning or error")
    return config


def _seconds(key: str, value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        raise WrongArgumentsError(f"the configuration key {key!r} wants a number of seconds, not {value!r}") from None
    if math.isnan(seconds) or seconds < 0:
        raise WrongArgumentsError(f"the configuration key {key!r} cannot be {'negative' if seconds < 0 else value}")
    return seconds


class LogFile:
    """The file that a configuration names for the client's log, if it names one. Several managers may share a file; it
    is closed with the last of them."""

    def __init__(self, config: Config) -> None:
        self._path: Path | None = None
        if not (config.log_file or config.log_level):
            return
        self._path = path = Path(config.wdir, config.log_file or ".qcgpjm-client/api.log").absolute()
        log.setLevel((config.log_level or "info").upper())
        with _lock:
            if not _users[path]:
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    self._path = None
                    raise FileError(
                        f"there can be no log file {path}: {error.strerror}; give another log_file"
                    ) from None
                handler = logging.FileHandler(path, mode="w", encoding="utf-8", delay=True)
                handler.setFormatter(LogFormatter())
                log.addHandler(handler)
            _users[path] += 1

    def close(self) -> None:
        with _lock:
            path, self._path = self._path, None
            if path is None:
                return
            _users[path] -= 1
            if _users[path]:
                return
            for handler in list(log.handlers):
                if isinstance(handler, logging.FileHandler) and handler.baseFilename == str(path):
                    log.removeHandler(handler)
                    handler.close()
