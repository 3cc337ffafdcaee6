"""Errors about nodes, allocations and the batch system."""

from __future__ import annotations


class ClusterError(Exception):
    """Nodes could not be found, or were not described well; the message says what to do."""


class NoAllocation(ClusterError):
    """This is no place inside an allocation; the message says why."""


class AllocationOver(NoAllocation):
    """Slurm itself says that the allocation has ended, or does not know it any more."""


class NoCommand(ClusterError):
    """Slurm is not installed here, or not on the user's `$PATH`."""


class CommandFailed(ClusterError):
    def __init__(self, command: str, said: str) -> None:
        super().__init__(f"`{command}` failed: {said}")
        self.said = said
        """In its own words."""

    @property
    def knows_no_job(self) -> bool:
        """Whether it was asked about a job that Slurm has never known, or has forgotten."""
        return "Invalid job id" in self.said


class BatchError(Exception):
    """An allocation could not be asked for, looked at or cancelled; the message says what to do."""


class NoSuchJob(BatchError):
    """Slurm has never known the job, or has forgotten it."""
