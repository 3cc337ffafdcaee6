"""Waiting for something that cannot be awaited: with a deadline, and with words for the case that it never comes."""

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

    `what` completes the sentence "Waited in vain for …"; a function for words that take a while, or are about the end.
    """
    __tracebackhide__ = True
    deadline = time.monotonic() + timeout
    pause = FIRST_PAUSE
    while not (value := predicate()):
        if time.monotonic() > deadline:
            told = what() if callable(what) else what
            pytest.fail(f"Waited {timeout:g} s in vain for {told or _name(predicate)}; the last answer was {value!r}.")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    return value


def _name(predicate: Callable[[], object]) -> str:
    code = getattr(predicate, "__code__", None)
    if code is None:
        return repr(predicate)
    return f"{code.co_qualname if hasattr(code, 'co_qualname') else code.co_name} of line {code.co_firstlineno}"
