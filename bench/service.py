"""A manager for the duration of a measurement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.cli.signals import signals_deferred


@contextmanager
def service(folder: Path, *options: str) -> Iterator[LocalManager]:
    """A manager with this working directory and these options of `qcg-pm-service`. The manager and its agent end with
    the block, also after a signal."""
    manager: LocalManager | None = None
    try:
        with signals_deferred():
            manager = LocalManager(["--wd", str(folder), *options], {"wdir": str(folder)})
        yield manager
    finally:
        if manager is not None:
            with signals_deferred():
                manager.finish()
