"""Expensive objects that the tests of one directory share, as long as a worker runs tests of this directory.

A fixture of session scope would outlive them: tests of a job host, which may run in the same process later, end every
process below it. Tests with `any_worker` come from one file, then from another, so that a fixture of module scope is
set up again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def kept_for_directory(item: pytest.Item, name: str, make: Callable[[], AbstractContextManager[T]]) -> T:
    """The object with this name, made for the first test that asks for it. It is closed when the next test is in
    another directory."""
    directory = next(node for node in reversed(item.listchain()) if isinstance(node, pytest.Directory))
    kept = directory.stash.setdefault(_KEPT, {})
    if name not in kept:
        manager = make()
        kept[name] = manager.__enter__()

        def close() -> None:
            del kept[name]
            manager.__exit__(None, None, None)

        directory.addfinalizer(close)
    found: T = kept[name]
    return found


_KEPT = pytest.StashKey[dict[str, Any]]()
