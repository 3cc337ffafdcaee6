"""`service.log`: what a person can follow."""

from __future__ import annotations

import logging
import os
from pathlib import Path

LEVELS = ("critical", "error", "warning", "info", "debug")


def log_to(path: Path, level: str) -> logging.Handler:
    """Send what this package says to a file that only its owner can read. The root logger is nobody's here."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    logger = logging.getLogger("qcg.pilotjob")
    logger.setLevel(level.upper())
    logger.propagate = False
    logger.addHandler(handler)
    return handler


def stop_logging(handler: logging.Handler) -> None:
    logging.getLogger("qcg.pilotjob").removeHandler(handler)
    handler.close()
