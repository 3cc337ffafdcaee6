"""The name of one allocation.

Part of the batch-system port, in a module of its own: agents need it as they start, and do not load the rest of
`cluster/base.py`.
"""

from __future__ import annotations

from msgspec import Struct


class AllocationRef(Struct, frozen=True):
    """Names one allocation of a batch system, in files and on command lines."""

    id: str = ""
    """The id as the batch system prints it at the submission and in its queue: one text everywhere."""
    cluster: str = ""
    """Name of the cluster that the allocation is on, where the batch system has several."""
    system: str = ""
    """Name of the batch system; empty in files of earlier versions."""

    def agent_options(self) -> list[str]:
        """Options that tell an agent which allocation it is in."""
        given = {"--allocation": self.id, "--cluster": self.cluster, "--batch-system": self.system}
        return [word for name, value in given.items() if self.id and value for word in (name, value)]
