"""A service of our own, for as long as it is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.cli.signals import signals_deferred


@contextmanager
def service(*options: str) -> Iterator[LocalManager]:
    """With these options of `qcg-pm-service`; at the end of the block it is gone, with its agent, also when a signal
    came in between."""
    manager: LocalManager | None = None
    try:
        with signals_deferred():
            manager = LocalManager(options)
        yield manager
    finally:
        if manager is not None:
            with signals_deferred():
                manager.finish()
