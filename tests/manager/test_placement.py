"""The description of a node in the Hello of its agent."""

from __future__ import annotations

from pathlib import Path

from qcg.pilotjob.agent.protocol import Hello
from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import Allocation
from qcg.pilotjob.common.options import Options
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.executors.base import NodeLayout
from qcg.pilotjob.journal.journal import FILE_NAME, Journal
from qcg.pilotjob.journal.metadata import LONGEST_NODE_TIMEOUT
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.manager.allocation_layouts import AllocationLayouts
from qcg.pilotjob.manager.bootstrap import _remember
from qcg.pilotjob.manager.placement import Placement


def layouts_after(*hellos: Hello, bind: bool = True) -> tuple[dict[str, NodeLayout], list[str]]:
    """The layouts of the nodes, and the nodes without binding although binding was requested."""
    specs = [NodeSpec(name, (0, 1), ("1", "3")) for name in ("n1", "n2")]
    allocation = Allocation(
        AllocationRef("7"), specs, {}, None, {"n1": (0, 1), "n2": (0, 1)}, {"n1": (2, 1), "n2": (2, 1)}
    )
    layouts = AllocationLayouts(allocation, "Slurm", bind=bind)
    return {hello.agent: layouts.layout_of(hello) for hello in hellos}, layouts.unbound


def test_cores_are_bound_where_the_machine_matches_the_allocation():
    with_threads = Hello("n1", "n1", 1, [0, 2, 1, 3], "1", [[0, 2], [1, 3]])
    found, unbound = layouts_after(with_threads, Hello("n2", "n2", 1, [0], "1", [[0]]))
    assert (found["n1"].cpus, found["n2"].cpus) == ({0: 0, 1: 1}, None)
    assert unbound == ["n2"]


def test_no_core_is_bound_with_no_bind():
    found, unbound = layouts_after(Hello("n1", "n1", 1, [0, 1], "1", [[0], [1]]), bind=False)
    assert found["n1"].cpus is None
    assert unbound == []


def test_gpus_get_the_names_of_the_environment_of_the_agent():
    confined = Hello("n1", "n1", 1, [0, 1], "1", [[0], [1]], ["0", "1"])
    found, _ = layouts_after(confined, Hello("n2", "n2", 1, [0, 1], "1", [[0], [1]]))
    assert (found["n1"].gpus, found["n2"].gpus) == ({"1": "0", "3": "1"}, None)


def test_the_longest_timeout_of_all_managers_of_a_run_is_remembered(tmp_path: Path):
    journal = Journal.create(tmp_path / FILE_NAME)
    placement = Placement([NodeSpec("n1", (0,))], {})
    for timeout in (50.0, 100.0, 20.0):
        _remember(journal, Options(node_timeout=timeout), Site("/wd", "i"), placement)
    assert journal.metadata(LONGEST_NODE_TIMEOUT) == 100.0
    journal.close()
