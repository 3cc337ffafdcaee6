"""Function calls as they travel to workers and back: pickling, and errors in words where it fails."""

from __future__ import annotations

import pickle
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from msgspec import Struct

from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.executor_api.errors import CallError, RemoteTraceback


class Resources(Struct, frozen=True):
    """The resources of a worker, and of each of its calls."""

    cores: int = 1
    gpus: int = 0

    def request(self) -> dict[str, Any]:
        """The `resources` of a worker's job. All cores are on the node where the function runs."""
        wanted: dict[str, Any] = {"numCores": {"exact": self.cores}, "numNodes": {"exact": 1}}
        if self.gpus:
            wanted["nodeCrs"] = {"gpu": self.gpus}
        return wanted

    def __str__(self) -> str:
        cores = pluralize(self.cores, "core")
        return f"{cores} and {pluralize(self.gpus, 'GPU')}" if self.gpus else cores


class Call(Struct, eq=False):
    """One call of a function."""

    number: int
    """Numbered in the order of submission."""
    resources: Resources
    function: bytes
    arguments: bytes
    future: Future[Any]
    submitted: float


class Outcome(Struct):
    """The result of a call."""

    succeeded: bool
    value: bytes
    """The pickled result, or the pickled exception and the text of its traceback."""
    seconds: float
    """Runtime of the function."""


def pack_function(function: Callable[..., Any]) -> bytes:
    return _pack(function, f"the function {_name(function)} cannot be sent to a worker")


def pack_arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    return _pack((args, kwargs), f"the arguments for {_name(function)} cannot be sent to a worker")


def perform(function: bytes, arguments: bytes) -> Outcome:
    """Make a call in a worker. Every exception becomes an outcome."""
    start = time.perf_counter()
    doing = "the call cannot be understood by the worker"
    try:
        called = pickle.loads(function)
        args, kwargs = pickle.loads(arguments)
        doing = ""
        start = time.perf_counter()
        result = called(*args, **kwargs)
        seconds = time.perf_counter() - start
        doing = f"the result of {_name(called)} cannot be brought back"
        return Outcome(True, _dumps(result), seconds)
    except BaseException as error:  # noqa: BLE001  # user code: its caller gets every exception
        return Outcome(False, _pack_failure(error, doing), time.perf_counter() - start)


def unpack(outcome: Outcome) -> tuple[Any, BaseException | None]:
    """Return the result and None, or None and the exception."""
    try:
        value = pickle.loads(outcome.value)
    except Exception as error:  # noqa: BLE001  # unpickling runs user code
        return None, CallError(f"the outcome of the call cannot be read: {type(error).__name__}: {error}")
    if outcome.succeeded:
        return value, None
    raised, text = value
    raised.__cause__ = RemoteTraceback(text)
    return None, raised


def _pack_failure(error: BaseException, doing: str) -> bytes:
    text = "".join(traceback.format_exception(error))
    if doing:
        error = CallError(f"{doing}: {type(error).__name__}: {error}")
    elif not isinstance(error, Exception):
        # `result()` would raise it again, and end the caller's program.
        error = CallError(f"the function ended with {type(error).__name__}({', '.join(map(repr, error.args))})")
    error.__cause__ = error.__context__ = error.__traceback__ = None
    try:
        packed = _dumps((error, text))
        pickle.loads(packed)
    except Exception as why:  # noqa: BLE001  # a user's exception class that cannot be pickled or unpickled
        failure = CallError(
            f"the function raised {type(error).__name__}: {error}. The exception itself cannot be brought back"
            f" ({type(why).__name__}: {why}); it can when all its attributes can be pickled, and its __init__ passes"
            " all its arguments to super().__init__"
        )
        return _dumps((failure, text))
    return packed


def _pack(what: object, problem: str) -> bytes:
    try:
        return _dumps(what)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise CallError(f"{problem}: {error}") from error


def _dumps(what: object) -> bytes:
    import cloudpickle  # imported late: most programs that import the API send no function

    packed: bytes = cloudpickle.dumps(what)
    return packed


def _name(function: object) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
