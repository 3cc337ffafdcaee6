"""Polls a condition until a deadline, with an error message."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")

FIRST_PAUSE = 0.001
LONGEST_PAUSE = 0.05


def wait_for(predicate: Callable[[], T], timeout: float = 60.0, what: str | Callable[[], str] = "") -> T:
    """The first true value of `predicate`, or a failed test after `timeout` seconds.

    `what` names the condition in the message; a function is called at the deadline.
    """
    __tracebackhide__ = True
    deadline = time.monotonic() + timeout
    pause = FIRST_PAUSE
    while not (value := predicate()):
        if time.monotonic() > deadline:
            words = what() if callable(what) else what
            pytest.fail(f"Waited {timeout:g} s in vain for {words or _name(predicate)}; the last answer was {value!r}.")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    return value


def _name(predicate: Callable[[], object]) -> str:
    code = getattr(predicate, "__code__", None)
    if code is None:
        return repr(predicate)
    return f"{code.co_qualname if hasattr(code, 'co_qualname') else code.co_name} of line {code.co_firstlineno}"
