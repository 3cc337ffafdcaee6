"""Errors of executors, besides the exceptions of the called functions."""

from __future__ import annotations

from qcg.pilotjob.api.errors import QCGPJMAError

FORKED = "this executor was made by another process, whose fork this is; make one here"


class ExecutorError(QCGPJMAError):
    """Base of the errors of executors."""


class CallError(ExecutorError):
    """A call that cannot be sent, or whose outcome cannot be returned."""


class WorkerLostError(ExecutorError):
    """The worker of a call ended before the call. The function may have run, in part or to its end."""


class RemoteTraceback(Exception):
    """The traceback in the worker: the `__cause__` of an exception that a function raised there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"
