"""Named counters of the run, such as licenses: an attempt holds them from its start to its end, wherever it runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from qcg.pilotjob.description.model import ExtraResources


class RunCounters:
    """The counters of a run, and their free amounts."""

    __slots__ = ("free", "totals")

    def __init__(self, totals: Mapping[str, int]) -> None:
        self.totals = dict(totals)
        self.free = dict(totals)
        """Below 0 while attempts of an earlier manager hold more than this run has."""

    def has(self, extra: ExtraResources, kept: Collection[str] = ()) -> bool:
        """Whether the requested numbers are free. `kept`: names of counters that are kept for another job."""
        free = self.free
        return all(number <= free.get(name, 0) and name not in kept for name, number in extra.of_run)

    def take(self, extra: ExtraResources) -> None:
        for name, number in extra.of_run:
            self.free[name] = self.free.get(name, 0) - number

    def release(self, extra: ExtraResources) -> None:
        for name, number in extra.of_run:
            self.free[name] += number

    def why_never(self, extra: ExtraResources | None) -> str | None:
        """Why the run has too little of a requested counter, even if all of it is free; None if it has enough."""
        for name, number in () if extra is None else extra.of_run:
            total = self.totals.get(name, 0)
            if number > total:
                return f"{number} {name} requested, but this run has {total or 'none'}"
        return None
