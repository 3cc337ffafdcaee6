"""Tuning of Python's garbage collector, and returning unused memory to the operating system."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG, MIDDLE, OLD = 50_000, 20, 100


def collect_seldom() -> None:
    """Collect seldom, and never the objects that exist now.

    For processes that hold millions of records for a long time and drop them without leaving reference cycles.
    """
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)


@contextmanager
def loading() -> Iterator[None]:
    """Load modules without collections: they leave next to no garbage, and each collection looks through all of them.

    Afterwards, garbage is collected as `collect_seldom` says.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        collect_seldom()


def release_memory() -> None:
    """Return unused memory to the operating system where the C library can; 0.1 s after a hundred thousand jobs."""
    import ctypes

    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
