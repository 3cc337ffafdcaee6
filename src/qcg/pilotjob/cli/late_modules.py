"""Modules that a manager does not need before its first job has started.

They are loaded soon afterwards all the same: a run may take weeks, and must not depend on files of the installation
that are replaced meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module

from qcg.pilotjob.description.requests import REQUESTS
from qcg.pilotjob.interfaces.dispatch import handler_of

log = logging.getLogger(__name__)

DELAY = 0.3
"""Seconds after the start of a manager: its first jobs have started then. Not much later, because memory between the
objects of modules cannot be given back when jobs are removed."""
PAUSE = 1.0
"""Seconds until a module is tried again that could not be read, for example because too many files were open."""
MODULES = (
    "cli.run_summary",
    "manager.live_summary",
    "manager.output_tails",
    "rows.store",
)


async def load_late_modules() -> None:
    """Load them one by one, so that neither jobs nor requests wait."""
    await asyncio.sleep(DELAY)
    for load in _loads():
        while True:
            try:
                load()
            except OSError as error:
                log.warning("a module cannot be loaded, and is tried again: %s", error)
                await asyncio.sleep(PAUSE)
            except Exception:
                log.exception("a module cannot be loaded; is the installation complete?")
                break
            else:
                break
        await asyncio.sleep(0)


def _loads() -> Iterator[Callable[[], object]]:
    for request in REQUESTS.values():
        yield partial(handler_of, request)
    for name in MODULES:
        yield partial(import_module, f"qcg.pilotjob.{name}")
