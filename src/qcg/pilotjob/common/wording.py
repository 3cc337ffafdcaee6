"""Helpers for the wording of messages."""

from __future__ import annotations

from collections.abc import Sequence


def pluralize(count: int, singular: str, plural: str = "") -> str:
    """`1 job`, `2 jobs`; with `plural`, also `1 job is` and `2 jobs are`."""
    return f"{count} {singular if count == 1 else plural or f'{singular}s'}"


def list_names(names: Sequence[str], most: int = 10) -> str:
    """Names for a message; of many names only the first ones and the number of the others."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
