"""Errors of reports."""

from __future__ import annotations


class ReportError(Exception):
    """A report could not be written or created; the message says which file, why, and what to do."""
