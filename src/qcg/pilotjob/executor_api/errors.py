"""What can go wrong with calls of functions, besides what the functions raise."""

from __future__ import annotations

from qcg.pilotjob.api.errors import QCGPJMAError

FORKED = "this executor was made by another process, whose fork this is; make one here"


class ExecutorError(QCGPJMAError):
    """Base of the errors of executors."""


class CallError(ExecutorError):
    """A call that cannot be made, or whose outcome cannot be brought back."""


class WorkerLostError(ExecutorError):
    """The worker of a call ended before the call did. The function may have run, in part or to its end."""


class RemoteTraceback(Exception):
    """The traceback in the worker: the `__cause__` of an exception that came from there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"
