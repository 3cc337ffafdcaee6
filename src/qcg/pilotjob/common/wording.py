"""Helpers for the wording of messages."""

from __future__ import annotations


def pluralize(count: int, singular: str, plural: str = "") -> str:
    """`1 job`, `2 jobs`; with `plural`, also `1 job is` and `2 jobs are`."""
    return f"{count} {singular if count == 1 else plural or f'{singular}s'}"
