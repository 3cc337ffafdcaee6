"""Executors as in `concurrent.futures`: PilotExecutor calls Python functions, QCGPJExecutor runs jobs from templates.

May import `api`, `wire`, `common` and `host`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qcg.pilotjob.executor_api.functions import PilotExecutor
    from qcg.pilotjob.executor_api.qcgpj_executor import QCGPJExecutor

__all__ = ["PilotExecutor", "QCGPJExecutor"]

_MODULES = {"PilotExecutor": "functions", "QCGPJExecutor": "qcgpj_executor"}


def __getattr__(name: str) -> Any:
    """Import on first use: a worker needs none of these modules, and starts faster."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
