"""Modules that a manager does not need before its first job has started.

They are loaded soon afterwards all the same: a run may take weeks, and must not depend on files of the installation
that are replaced meanwhile.
"""

from __future__ import annotations

from importlib import import_module

from qcg.pilotjob.description.requests import REQUESTS
from qcg.pilotjob.interfaces.dispatch import handler_of

DELAY = 0.3
"""Seconds after the start of a manager: its first jobs have started then. Not much later, because memory between the
objects of modules cannot be given back when jobs are removed."""

MODULES = (
    "cli.run_summary",
    "manager.live_summary",
    "manager.output_tails",
    "rows.store",
)


def load_late_modules() -> None:
    for request in REQUESTS.values():
        handler_of(request)
    for name in MODULES:
        import_module(f"qcg.pilotjob.{name}")
