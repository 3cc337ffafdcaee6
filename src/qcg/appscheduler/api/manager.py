"""The manager with the answers of version 0.2."""

from __future__ import annotations

from qcg.pilotjob.api.client import Manager as CurrentManager

__all__ = ["Manager"]


class Manager(CurrentManager):
    def resources(self) -> dict[str, int]:
        """The numbers under their old and their new names."""
        now = super().resources()
        return {
            "totalNodes": now["total_nodes"],
            "totalCores": now["total_cores"],
            "usedCores": now["used_cores"],
            "freeCores": now["free_cores"],
            **now,
        }
