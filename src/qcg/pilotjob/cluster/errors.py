"""Exceptions about nodes and allocations."""

from __future__ import annotations


class ClusterError(Exception):
    """Nodes could not be found, or were not described well; the message says what to do."""


class NoAllocation(ClusterError):
    """This process is certainly not inside an allocation; the message says why. A run with `--resources auto` then uses
    this machine alone."""


class RangeError(ClusterError):
    """A range of nodes does not fit the allocation; the message says `begin` and `end`, and the caller which options
    gave them."""


class AllocationOver(ClusterError):
    """The batch system says that the allocation of this process has ended, or does not know it any more."""


class NoCommand(ClusterError):
    """A command of the batch system is not installed here, or not on the user's `$PATH`."""


class CommandFailed(ClusterError):
    """A command of the batch system ended with an error."""

    def __init__(self, command: str, said: str) -> None:
        super().__init__(f"`{command}` failed: {said}")
        self.said = said
        """The error message of the command, in one line."""


class BatchError(ClusterError):
    """An allocation could not be submitted, followed or cancelled; the message says what to do."""


class UnknownAllocation(BatchError):
    """The batch system has never known the allocation, or has forgotten it."""
