"""Backfill with reservations: later jobs overtake one that does not fit only if they do not delay it (EASY).

In each group of nodes the first job that does not fit gets a reservation: the earliest time at which it can start, and
nodes that have enough for it then. A later job may start if it ends by that time, or if it leaves alone what the
reservation needs. Without a known time there is no reservation, and only the rule of `patience` applies: the job
can be overtaken by any job, until it has waited too long. The same holds if the job could not end before the manager
does.

A reservation is computed when a later job could overtake, and kept until something that it depends on has changed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Set

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.forecast import Forecast, expected_duration, forecast
from qcg.pilotjob.core.node_group import NodeGroup, Target
from qcg.pilotjob.core.queue import Head, QueueEntry, QueueLine
from qcg.pilotjob.core.records import Grant, Job
from qcg.pilotjob.core.resources import Hidden, Node
from qcg.pilotjob.description.model import ExtraResources

SMALL = 64
"""Number of nodes and expected ends up to which a reservation is computed again whenever an attempt has ended."""
STEPS_PER_END = 8
"""On more nodes, a reservation is computed again when so many ends have come that each of them costs so many steps."""


class Reservation:
    """The earliest time at which the first job that does not fit can start, and the resources kept free for it."""

    __slots__ = (
        "_hidden",
        "forecast",
        "grants_released",
        "group",
        "hidden_cores",
        "job",
        "line",
        "order",
        "position",
        "version",
    )

    def __init__(self, core: CoreState, group: NodeGroup, head: Head, found: Forecast) -> None:
        self.order, self.position, _, self.line = head
        self.job = self.line.first.job
        self.group = group
        self.forecast = found
        self.version = core.pool.version
        self.grants_released = core.pool.grants_released
        self._hidden: list[tuple[Node, Hidden]] = []
        self.hidden_cores = 0
        """Number of free cores that are hidden at the moment."""

    @property
    def at(self) -> float:
        """The time of the reservation; infinite if it is not known."""
        return self.forecast.at

    def is_for(self, job: Job, position: int) -> bool:
        """Whether it is the reservation of this job or iteration."""
        return self.job is job and self.position == position

    def is_current(self, core: CoreState, head: Head) -> bool:
        """Whether this is still the reservation of this job, and nothing has changed that it depends on."""
        if self.line is not head[3] or self.position != head[1] or self.job is not self.line.first.job:
            return False
        if self.version != core.pool.version or core.now >= min(self.at, self.forecast.learned_until):
            return False
        ended, cost = core.pool.grants_released - self.grants_released, self.forecast.cost
        return not ended or (cost > SMALL and ended * STEPS_PER_END < cost)

    def hide(self) -> None:
        """Hide the free resources that the reserved job needs at the time of the reservation."""
        if self._hidden:
            return
        for node, spare in self.forecast.spare.items():
            hidden = self.group.hide(node, spare)
            if hidden is not None:
                self._hidden.append((node, hidden))
                self.hidden_cores += hidden.cores.bit_count()

    def show(self) -> None:
        """Show the hidden resources again."""
        for node, hidden in self._hidden:
            self.group.show(node, hidden)
        self._hidden.clear()
        self.hidden_cores = 0

    def use_spare(self, grant: Grant) -> None:
        """Note a grant that is held beyond the time of the reservation."""
        nodes = {node.spec.name: spare for node, spare in self.forecast.spare.items()}
        for part in grant.parts:
            if (spare := nodes.get(part.node)) is not None:
                spare.take(part, grant.extra)


class Backfill:
    """The jobs that do not fit in one scheduling pass, and the resources that later jobs may take."""

    def __init__(self, core: CoreState, left: float, *, keep: bool = True) -> None:
        """`left`: seconds that a job started now may take. `keep`: whether reservations are kept for the next pass."""
        self._core = core
        self._left = left
        self._keep = keep
        self.waiting: dict[NodeGroup, list[Head]] = {}
        """The heads that do not fit, by each of the groups in which they can run."""
        self._reserved: dict[NodeGroup, Reservation | None] = {}

    def add_waiting(self, head: Head) -> None:
        """Add the first job of a line that does not fit. To be called in queue order."""
        for group in head[3].target.groups:
            self.waiting.setdefault(group, []).append(head)

    def reservation(self, group: NodeGroup) -> Reservation | None:
        """The reservation in a group, if its first job that does not fit can have one."""
        if group not in self.waiting:
            return None
        if group not in self._reserved:
            self._decide(group)
        return self._reserved[group]

    def protects(self, line: QueueLine, group: NodeGroup) -> bool:
        """Whether the first job of the line needs no further protection in this group: it has a reservation, or
        another job has one there."""
        return any(
            (found := self.reservation(other)) is not None and (other is group or found.line is line)
            for other in line.target.groups
        )

    def keeper(self, extra: ExtraResources) -> Reservation | None:
        """The reservation of an earlier job that needs counters of the run which a job with these resources would take;
        None if enough stays free. They are kept also from a job that ends in time: while its counters are taken, a job
        has no reservation, and others could take its cores."""
        if not (extra.of_run and self.waiting):
            return None
        free = self._core.pool.counters.free
        left = {name: free.get(name, 0) - number for name, number in extra.of_run}
        for group in self.waiting:
            reserved = self.reservation(group)
            needed = None if reserved is None else reserved.line.request.extra
            for name, number in () if needed is None else needed.of_run:
                if name in left:
                    left[name] -= number
                    if left[name] < 0:
                        return reserved
        return None

    def delayed(self, entry: QueueEntry, names: Collection[str]) -> Reservation | None:
        """The reservation of an earlier job that a job would delay if it started now, in whichever of the groups with
        these names; None if it delays none."""
        extra = entry.line.request.extra
        keeper = None if extra is None else self.keeper(extra)
        if keeper is not None and keeper.order < entry.order:
            return keeper
        first = None
        for group in entry.line.target.groups:
            if group.name in names:
                found = self.reservation(group)
                if found is None or found.order >= entry.order or self.ends_in_time(entry, found):
                    return None
                first = first or found
        return first

    def free_cores(self, target: Target) -> int:
        """The most free cores of any group, including cores that are hidden at the moment."""
        return max([group.free_cores + self._hidden_in(group) for group in target.groups], default=0)

    def any_free_cores(self) -> bool:
        """Whether any group has free cores, also if they are hidden at the moment."""
        return any(group.free_cores or self._hidden_in(group) for group in self._core.pool.groups)

    def allocate(self, line: QueueLine, blocked: Set[NodeGroup]) -> Grant | None:
        """Take a grant for the first job of a line that delays no reservation."""
        groups = line.target.groups
        if len(groups) > 1:
            groups = tuple(sorted(groups, key=lambda group: -group.free_cores - self._hidden_in(group)))
        for group in groups:
            if group not in blocked:
                grant = self._allocate_in(group, line)
                if grant is not None:
                    return grant
        return None

    def issued(self, grant: Grant) -> None:
        """Note that a job was started. A job ahead of the reserved job may have taken its resources."""
        group = self._core.pool.group_of(grant.parts[0].node)
        if self._reserved.get(group) is None:
            self._core.reservations.pop(group, None)

    def ends_in_time(self, entry: QueueEntry, reserved: Reservation) -> bool:
        """Whether a job that is started now ends by the time of the reservation."""
        return self._core.now + self._duration(entry, reserved) <= reserved.at

    def close(self) -> float:
        """Show everything again at the end of the pass. Returns when a reservation may no longer hold, although nothing
        happens."""
        until = math.inf
        for reserved in self._reserved.values():
            if reserved is not None:
                reserved.show()
                until = min(until, reserved.forecast.learned_until)
        return until

    def _hidden_in(self, group: NodeGroup) -> int:
        reserved = self._reserved.get(group)
        return 0 if reserved is None else reserved.hidden_cores

    def _allocate_in(self, group: NodeGroup, line: QueueLine) -> Grant | None:
        request = line.request
        if group not in self.waiting:
            return group.allocate(request)
        if group not in self._reserved:
            grant = group.allocate(request)
            if grant is None:
                return None
            self._core.pool.put_back(grant)
            self._decide(group)
        reserved = self._reserved[group]
        if reserved is None:
            return group.allocate(request)
        if self.ends_in_time(line.first, reserved):
            reserved.show()
            return group.allocate(request)
        reserved.hide()
        grant = group.allocate(request)
        if grant is not None:
            reserved.use_spare(grant)
        return grant

    def _duration(self, entry: QueueEntry, reserved: Reservation) -> float:
        """Seconds that a job takes at most. Once the reserved job has waited too long, only wall times count, because
        learned durations may be wrong again and again."""
        if entry.wall_time:
            return entry.wall_time
        if reserved.line.served <= self._core.now - self._core.patience:
            return math.inf
        return expected_duration(entry.line.durations)

    def _decide(self, group: NodeGroup) -> None:
        """Find the reservation of the first job that waits in the group and can run there.

        A job for any host gets one on the host where it can start first.
        """
        core = self._core
        head = self._first_in(group)
        if head is None:
            self._reserved[group] = None
            return
        groups = [other for other in head[3].target.groups if other is group or self._first_in(other) is head]
        found = [_reserve(core, other, head) for other in groups]
        if self._keep:
            for reserved in found:
                core.reservations[reserved.group] = reserved
        best = min(found, key=lambda reserved: reserved.at)
        for other in groups:
            self._reserved[other] = None
        if best.at - core.now + best.line.first.wall_time <= self._left and best.at < core.now + self._left:
            self._reserved[best.group] = best

    def _first_in(self, group: NodeGroup) -> Head | None:
        """The first job that waits for this group and could run there if it were idle."""
        if group in self._reserved:
            return None
        waiting = self.waiting[group]
        kept = self._core.reservations.get(group)
        if kept is not None and kept.is_current(self._core, waiting[0]):
            return waiting[0]
        for head in waiting:
            if group.reserved_for(head[3].request) is not None:
                return head
        return None


def _reserve(core: CoreState, group: NodeGroup, head: Head) -> Reservation:
    """The kept reservation of a job, or a new one."""
    kept = core.reservations.get(group)
    if kept is not None and kept.is_current(core, head):
        return kept
    return Reservation(core, group, head, forecast(core, group, head[3].request))
