"""What can go wrong on the way to a host."""

from __future__ import annotations


class ExecutorError(Exception):
    """Agents could not be reached or started; the message says which and why."""
