"""How often Python looks for garbage in rings of references."""

from __future__ import annotations

import gc

YOUNG, MIDDLE, OLD = 50_000, 20, 100


def collect_seldom() -> None:
    """For a process that holds millions of records for long and drops them without leaving rings: what is there now is
    never looked at again, and the rest seldom."""
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
