"""The cores and GPUs of the nodes of an allocation, as the kernels there number them."""

from __future__ import annotations

from collections.abc import Mapping

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.cluster.base import Allocation
from qcg.pilotjob.common.wording import list_names
from qcg.pilotjob.executors.allocation_agents import NodeLayouts
from qcg.pilotjob.executors.base import NodeLayout
from qcg.pilotjob.launch.binding import Layout, binding, binding_by_count


class AllocationLayouts(NodeLayouts):
    """Binds jobs to the cores and GPUs of nodes as their agents report them."""

    def __init__(self, allocation: Allocation, system: str, *, bind: bool) -> None:
        """`system`: the batch system in messages."""
        self._allocation = allocation
        self._system = system
        self._bind = bind
        self._gpus = {spec.name: spec.gpus for spec in allocation.specs}
        self._cores = {spec.name: spec.cores for spec in allocation.specs}
        self.unbound: list[str] = []
        """Nodes whose cores cannot be bound to."""

    def layout_of(self, hello: protocol.Hello) -> NodeLayout:
        node = hello.agent
        gpus = None
        if len(hello.gpus) == len(self._gpus[node]):
            gpus = dict(zip(self._gpus[node], hello.gpus, strict=True))
        return NodeLayout(self._cpus_of(hello) if self._bind else None, gpus)

    def _cpus_of(self, hello: protocol.Hello) -> Mapping[int, int] | None:
        node = hello.agent
        if node in self._allocation.layouts:
            layout = Layout(*self._allocation.layouts[node])
            found = binding(self._allocation.cpus[node], hello.cores, hello.machine, layout)
        else:
            found = binding_by_count(self._cores[node], hello.cores, hello.machine)
        if found is None and node not in self.unbound:
            self.unbound.append(node)
        return found

    def notices(self) -> list[str]:
        if not self.unbound:
            return []
        names = list_names(sorted(self.unbound))
        return [
            f"{names}: the CPUs there differ from the record of {self._system}; jobs are not bound to their cores there"
        ]
