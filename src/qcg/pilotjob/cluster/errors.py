"""What can be wrong with nodes."""

from __future__ import annotations


class ClusterError(Exception):
    """Nodes could not be found, or were not described well; the message says what to do."""


class NoAllocation(ClusterError):
    """This is no place inside an allocation; the message says why."""


class AllocationOver(NoAllocation):
    """Slurm itself says that the allocation has ended, or does not know it any more."""
