"""What can go wrong with reports."""

from __future__ import annotations


class ReportError(Exception):
    """A report could not be written or made; the text says which file, why, and what to do."""
