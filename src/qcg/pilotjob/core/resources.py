"""Nodes with cores, GPUs and memory, and their free resources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from qcg.pilotjob.core.records import Attempt, NodePart
from qcg.pilotjob.description.model import WHOLE_GPU, Counters, ExtraResources, ResourceRequest


class NodeSpec(Struct, frozen=True):
    """The resources of a node as detected or given by the user."""

    name: str
    cores: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    memory: int = 0
    """Memory in MiB; 0 if unknown."""
    claimed: int = 0
    """Number of further cores claimed by other runs of the user."""
    group: str = ""
    """Name of the remote host that this node stands for; empty for the nodes of the run itself."""
    slots: bool = False
    """Whether the node is a host behind a batch system: each attempt takes one core, whatever it requests."""
    owner: str = ""
    """Name of the user on a remote host; empty if hosts.toml names none."""
    counters: Counters = ()
    """Named counters of the node, such as FPGAs."""
    gpu_share: int = 0
    """For the free part of a node: the most thousandths that are free of a GPU of which a part is taken."""


class ExpectedEnd(NamedTuple):
    """The expected end of an attempt on a node."""

    end: float
    by_limit: bool
    """Whether the attempt has a wall time; otherwise its end is expected from earlier attempts."""
    part: NodePart
    attempt: Attempt


class Hidden(NamedTuple):
    """Free resources of a node that are hidden for the moment."""

    cores: int
    """A bit mask."""
    gpus: list[str]
    memory: int
    gpu_parts: dict[str, int]
    """GPUs of which a part is free, with the thousandths that are taken."""
    counters: dict[str, int]


class Spare:
    """The part of a node that a reservation does not need at its time."""

    __slots__ = ("cores", "counters", "gpu_parts", "gpus", "memory")

    def __init__(self, cores: int, gpus: int, memory: int, gpu_parts: bool, counters: dict[str, int]) -> None:
        self.cores = cores
        self.gpus = gpus
        self.memory = memory
        self.gpu_parts = gpu_parts
        """Whether others may take parts of GPUs that are in use."""
        self.counters = counters
        """The named counters that the reservation needs."""

    def take(self, part: NodePart, extra: ExtraResources | None) -> None:
        """Note that another attempt has taken this part, and holds it at that time."""
        self.cores -= len(part.cores)
        self.gpus -= len(part.gpus)
        self.memory -= part.memory
        for name, number in extra.on_node if extra is not None else ():
            if name in self.counters:
                self.counters[name] -= number


class Node:
    """A node of a group, and its free resources."""

    __slots__ = (
        "available",
        "bit",
        "bits",
        "contested",
        "counters",
        "drained",
        "estimates",
        "expected_ends",
        "free",
        "gpus",
        "gpus_taken",
        "memory",
        "nfree",
        "reachable",
        "spec",
    )

    def __init__(self, spec: NodeSpec, position: int) -> None:
        self.spec = spec
        self.bit = 1 << position
        self.bits = {core: 1 << number for number, core in enumerate(spec.cores)}
        self.reachable = False
        """Whether the host of the node is connected."""
        self.drained = False
        """Whether the node gets no new attempts although it is reachable."""
        self.available = False
        """Whether the node can get attempts: it is reachable and not drained."""
        self.free = (1 << len(spec.cores)) - 1
        """Free cores: one bit for each core of `spec.cores`."""
        self.nfree = len(spec.cores)
        self.gpus = list(spec.gpus)
        """GPUs of which nothing is taken."""
        self.gpus_taken: dict[str, int] = {}
        """Thousandths that are taken of each of the other GPUs."""
        self.memory = spec.memory
        self.counters = dict(spec.counters)
        """Free amounts of the named counters; below 0 while attempts of an earlier manager hold more than exists."""
        self.contested: dict[int | str, int] = {}
        """Cores claimed by more than one attempt, with the number of additional claims; GPUs of which more than the
        whole is claimed, with the excess in thousandths."""
        self.expected_ends: Sequence[ExpectedEnd] | None = None
        """Expected ends of the attempts on this node, if they have not changed since they were computed."""
        self.estimates = 0
        """Value of `CoreState.estimates` when they were computed."""

    @property
    def is_idle(self) -> bool:
        """Whether all cores of the node are free."""
        return 0 < self.nfree == len(self.spec.cores)

    def take_cores(self, count: int) -> tuple[int, ...]:
        """Take the free cores with the lowest numbers."""
        ids = self.spec.cores
        if count == len(ids):
            self.free = 0
            self.nfree = 0
            return ids
        free = self.free
        if count == 1:  # the usual case
            low = free & -free
            self.free = free ^ low
            self.nfree -= 1
            return (ids[low.bit_length() - 1],)
        taken = []
        for _ in range(count):
            low = free & -free
            free ^= low
            taken.append(ids[low.bit_length() - 1])
        self.free = free
        self.nfree -= count
        return tuple(taken)

    def offers(self, extra: ExtraResources) -> bool:
        """Whether the part of a GPU and the named resources are free."""
        if extra.gpu_share and self._gpu_for(extra.gpu_share) is None:
            return False
        return all(number <= self.counters.get(name, 0) for name, number in extra.on_node)

    def take_further(self, cores: tuple[int, ...], request: ResourceRequest) -> NodePart:
        """Take the resources of a request besides these cores, which are taken."""
        extra = request.extra
        gpus = tuple(self.gpus[: request.gpus])
        if extra is not None and extra.gpu_share:
            gpu = self._gpu_for(extra.gpu_share)
            assert gpu is not None
            gpus = (gpu,)
        self.memory -= request.memory
        part = NodePart(self.spec.name, cores, gpus, request.memory)
        if gpus:
            self._count_gpus(part, extra, 1)
        if extra is not None:
            self._count_named(extra, -1)
        return part

    @property
    def largest_gpu_share(self) -> int:
        """The most thousandths that are free of a GPU of which a part is taken."""
        return max([WHOLE_GPU - taken for taken in self.gpus_taken.values() if taken < WHOLE_GPU], default=0)

    def _gpu_for(self, share: int) -> str | None:
        """The GPU that gives a part: the fullest GPU that is in use by other jobs and has enough left, otherwise a free
        one."""
        best, most = None, 0
        for gpu in self.spec.gpus if self.gpus_taken else ():
            taken = self.gpus_taken.get(gpu, 0)
            if most < taken <= WHOLE_GPU - share:
                best, most = gpu, taken
        return best or (self.gpus[0] if self.gpus else None)

    def _count_gpus(self, part: NodePart, extra: ExtraResources | None, sign: int) -> None:
        amount = sign * ((extra.gpu_share if extra is not None else 0) or WHOLE_GPU)
        for gpu in part.gpus:
            before = self.gpus_taken.pop(gpu, 0)
            taken = before + amount
            self.contested.pop(gpu, None)
            if taken:
                self.gpus_taken[gpu] = taken
            if taken > WHOLE_GPU:
                self.contested[gpu] = taken - WHOLE_GPU
            if not before:
                self.gpus.remove(gpu)
            elif not taken:
                self.gpus = sorted([*self.gpus, gpu], key=self.spec.gpus.index)

    def _count_named(self, extra: ExtraResources, sign: int) -> None:
        for name, number in extra.on_node:
            self.counters[name] = self.counters.get(name, 0) + sign * number

    def hide(self, spare: Spare) -> Hidden | None:
        """Hide free resources that are not spare: cores and GPUs with the highest numbers. None if everything is
        spare."""
        cores = max(self.nfree - max(spare.cores, 0), 0)
        gpus = max(len(self.gpus) - max(spare.gpus, 0), 0)
        memory = max(self.memory - max(spare.memory, 0), 0)
        parts = {}
        if not spare.gpu_parts:
            parts = {gpu: taken for gpu, taken in self.gpus_taken.items() if taken < WHOLE_GPU}
        counters = {}
        for name, number in spare.counters.items():
            if (excess := self.counters.get(name, 0) - max(number, 0)) > 0:
                counters[name] = excess
        if not (cores or gpus or memory or parts or counters):
            return None
        mask = 0
        for _ in range(cores):
            mask |= 1 << ((self.free ^ mask).bit_length() - 1)
        self.free ^= mask
        self.nfree -= cores
        first = len(self.gpus) - gpus
        hidden = Hidden(mask, self.gpus[first:], memory, parts, counters)
        del self.gpus[first:]
        self.memory -= memory
        self.gpus_taken.update(dict.fromkeys(parts, WHOLE_GPU))
        for name, number in counters.items():
            self.counters[name] -= number
        return hidden

    def show(self, hidden: Hidden) -> None:
        self.free |= hidden.cores
        self.nfree += hidden.cores.bit_count()
        self.gpus = sorted([*self.gpus, *hidden.gpus], key=self.spec.gpus.index)
        self.memory += hidden.memory
        self.gpus_taken.update(hidden.gpu_parts)
        for name, number in hidden.counters.items():
            self.counters[name] += number

    def release(self, part: NodePart, extra: ExtraResources | None = None) -> None:
        if part.gpus:
            self._count_gpus(part, extra, -1)
        if extra is not None:
            self._count_named(extra, 1)
        if self.contested:
            part = self._uncontested(part)
        if len(part.cores) == len(self.bits):
            self.free = (1 << len(self.bits)) - 1
        else:
            for core in part.cores:
                self.free |= self.bits[core]
        self.nfree += len(part.cores)
        self.memory += part.memory

    def claim(self, part: NodePart, extra: ExtraResources | None = None) -> NodePart:
        """Take the part of `part` that exists on this node, even if another attempt still holds it."""
        cores = tuple([core for core in part.cores if core in self.bits])
        gpus = tuple([gpu for gpu in part.gpus if gpu in self.spec.gpus])
        for core in cores:
            if self.free & self.bits[core]:
                self.free ^= self.bits[core]
                self.nfree -= 1
            else:
                self.contested[core] = self.contested.get(core, 0) + 1
        self.memory -= part.memory
        held = NodePart(part.node, cores, gpus, part.memory)
        self._count_gpus(held, extra, 1)
        if extra is not None:
            self._count_named(extra, -1)
        return held

    def _uncontested(self, part: NodePart) -> NodePart:
        """Drop one claim on each core of `part`; returns the part with only the cores that no other attempt holds."""
        return replace(part, cores=tuple([core for core in part.cores if not self._drop_claim(core)]))

    def _drop_claim(self, core: int) -> bool:
        """Drop one claim on a core; True if another attempt still holds it."""
        others = self.contested.pop(core, 0)
        if others > 1:
            self.contested[core] = others - 1
        return others > 0
