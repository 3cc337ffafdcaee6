"""Configuration of a client: the argument `cfg` of a manager object."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from qcg.pilotjob.api.errors import WrongArgumentsError
from qcg.pilotjob.api.log import LEVELS, log


class Config(Struct, frozen=True):
    """The values of `cfg`, with defaults."""

    poll_delay: float = 5.0
    """Seconds between requests while no event arrives."""
    request_timeout: float = 60.0
    """Seconds that a request may take."""
    reconnect: float = 0.0
    """Seconds to try to reconnect when the manager is gone."""
    init_timeout: float = 300.0
    """Seconds that a manager of one's own may take to start."""
    wdir: str = "."
    log_file: str | None = None
    """Path of the log of the client; None: the default path, an empty string: no log."""
    log_level: str | None = None
    pub_timeout: float = 300.0
    """Accepted for earlier programs, without effect."""


def read_config(cfg: Mapping[str, Any] | None) -> Config:
    """Read a `cfg`; unknown keys are ignored with a warning in the log."""
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
