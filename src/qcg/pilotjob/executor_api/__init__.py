"""Executors in the sense of `concurrent.futures`: for jobs made from templates, and for Python functions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qcg.pilotjob.executor_api.functions import PilotExecutor
    from qcg.pilotjob.executor_api.qcgpj_executor import QCGPJExecutor

__all__ = ["PilotExecutor", "QCGPJExecutor"]

_PLACES = {"PilotExecutor": "functions", "QCGPJExecutor": "qcgpj_executor"}


def __getattr__(name: str) -> Any:
    """Imported when asked for: a worker needs none of it, and starts the sooner."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
