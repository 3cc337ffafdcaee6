"""The managers with the answers and method names of version 0.2."""

from __future__ import annotations

from qcg.pilotjob.api.client import Manager as CurrentManager
from qcg.pilotjob.api.manager import LocalManager as CurrentLocalManager

__all__ = ["LocalManager", "Manager"]


class Manager(CurrentManager):
    def resources(self) -> dict[str, int]:
        """The numbers under their old and their new names."""
        return _with_old_names(super().resources())


class LocalManager(CurrentLocalManager):
    def resources(self) -> dict[str, int]:
        """The numbers under their old and their new names."""
        return _with_old_names(super().resources())

    def stopManager(self) -> None:
        """End the process of the manager. Programs call it after `finish`, when there is none any more."""
        self.kill_manager_process()


def _with_old_names(resources: dict[str, int]) -> dict[str, int]:
    return {
        "totalNodes": resources["total_nodes"],
        "totalCores": resources["total_cores"],
        "usedCores": resources["used_cores"],
        "freeCores": resources["free_cores"],
        **resources,
    }
