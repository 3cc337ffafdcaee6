"""Errors of reports."""

from __future__ import annotations


class ReportError(Exception):
    """A report could not be written or created. The message names the file, the reason and the remedy."""
