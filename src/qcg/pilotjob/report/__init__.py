"""Reports for people and programs: `jobs.report`, written while jobs end, and the report on a whole run.

May import `runs` and lower layers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qcg.pilotjob.report.attempt_files import attempts, attempts_frame
    from qcg.pilotjob.report.attempt_table import AttemptRow
    from qcg.pilotjob.report.errors import ReportError

__all__ = ["AttemptRow", "ReportError", "attempts", "attempts_frame"]

_MODULES = {
    "AttemptRow": "attempt_table",
    "ReportError": "errors",
    "attempts": "attempt_files",
    "attempts_frame": "attempt_files",
}


def __getattr__(name: str) -> Any:
    """Import a module on first use: a manager imports this package, but needs none of these modules."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
