"""A manager for the duration of a measurement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.cli.signals import signals_deferred


@contextmanager
def service(*options: str) -> Iterator[LocalManager]:
    """A manager with these options of `qcg-pm-service`. The manager and its agent end with the block, also after a
    signal."""
    manager: LocalManager | None = None
    try:
        with signals_deferred():
            manager = LocalManager(options)
        yield manager
    finally:
        if manager is not None:
            with signals_deferred():
                manager.finish()
