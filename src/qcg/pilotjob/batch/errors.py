"""What can be wrong with allocations that are asked for."""

from __future__ import annotations


class BatchError(Exception):
    """An allocation could not be asked for; the message says what to do."""


class NoSuchJob(BatchError):
    """Slurm has never known the job, or has forgotten it."""
