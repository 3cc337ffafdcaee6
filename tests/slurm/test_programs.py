"""Programs with a manager of their own inside an allocation, as the tests of version 0.14 state it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.slurm_cluster import Cluster, Job

BEGIN = """
import json, os, sys, time
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager

results = {}
manager = LocalManager(["--wd", os.getcwd(), "--report-format", "json"], {"wdir": os.getcwd()})
"""

END = """
manager.finish()
manager.cleanup()
print("results", json.dumps(results))
"""

SHAPES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "every-core": ({"numCores": {"exact": 8}}, [4, 4]),
    "some-of-each": ({"numCores": {"exact": 2}, "numNodes": {"exact": 2}}, [2, 2]),
    "whole-nodes": ({"numNodes": {"exact": 2}}, [4, 4]),
    "range-on-one": ({"numCores": {"min": 1, "max": 5}, "numNodes": {"exact": 1}}, [4]),
    "range": ({"numCores": {"min": 1, "max": 5}}, [4, 1]),
    "no-end": ({"numCores": {"min": 1}}, [4, 4]),
    "too-many": ({"numCores": {"exact": 9}}, []),
    "too-many-nodes": ({"numNodes": {"exact": 3}}, []),
}

SHARES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "split": ({"numCores": {"min": 1, "scheduler": {"name": "split-into"}}}, [4, 4]),
    "parts": ({"numCores": {"min": 1, "scheduler": {"name": "split-into", "params": {"parts": 4}}}}, [2, 2]),
    "maximum": ({"numCores": {"min": 1, "scheduler": {"name": "maximum-iters"}}}, [1, 1, 2, 2, 2, 2, 2, 2, 2]),
    "nodes": ({"numCores": {"exact": 4}, "numNodes": {"min": 1, "scheduler": {"name": "maximum-iters"}}}, [4] * 4),
}

PLACES = """
shapes, shares = json.loads(sys.argv[1])
results["resources"] = manager.resources()
results["logs"] = [os.path.exists(".qcgpjm-client/api.log"), os.path.exists("service.log")]
open("in", "w").write("text")
for name, resources in shapes.items():
    execution = {"exec": "cat", "stdin": "in", "stdout": name + ".out", "stderr": name + ".err"}
    manager.submit(Jobs().add_std(name=name, execution=execution, resources=resources))
    results[name] = list(manager.wait4(name).values())
    info = manager.info_parsed(name)[name]
    results[name] += [list(map(len, info.nodes.values())), info.wdir == os.getcwd()]
for name, (resources, count) in shares.items():
    execution = {"exec": "hostname", "stdout": name + ".${it}"}
    manager.submit(Jobs().add_std(name=name, iteration={"stop": count}, execution=execution, resources=resources))
    manager.wait4(name)
    childs = manager.info_parsed(name, withChilds=True)[name].childs
    results[name] = [child.total_cores for child in childs]
    results[name + " hosts"] = [open(f"{name}.{index}").read().strip() in childs[index].nodes for index in range(count)]
"""

CANCELS = """
def states(name):
    return [child.status for child in manager.info_parsed(name, withChilds=True)[name].childs]

def running(name, count):
    while states(name).count("EXECUTING") < count:
        time.sleep(0.05)

waits = "until [ -e go ]; do sleep 0.05; done"
for cores in (1, 2):
    name = f"all-{cores}"
    manager.submit(Jobs().add(name=name, script=waits, iteration=12, numCores=cores))
    running(name, 8 // cores)
    manager.cancel(name)
    results[name] = [*manager.wait4(name).values(), states(name)]
manager.submit(Jobs().add(name="some", script=waits, iteration=6, numCores=2))
running("some", 4)
manager.cancel(["some:0", "some:1", "some:5"])
manager.wait4(["some:0", "some:1", "some:5"])
open("go", "w").close()
manager.wait4("some")
results["some"] = states("some")
results["counts"] = manager.info_parsed("some")["some"].iterations
deaf = "trap '' TERM; touch up.${it}; while :; do sleep 0.1; done"
manager.submit(Jobs().add(name="deaf", script=deaf, iteration=8))
while not all(os.path.exists(f"up.{index}") for index in range(8)):
    time.sleep(0.05)
manager.cancel("deaf")
results["deaf before"] = states("deaf")
results["deaf"] = [*manager.wait4("deaf").values(), states("deaf")]
"""


def run_program(cluster: Cluster, text: str, *arguments: Any) -> dict[str, Any]:
    """The values that a program in an allocation of two nodes with four cores each has put into `results`."""
    program = Path(cluster.cwd / "program.py")
    program.write_text(BEGIN + text + END)
    (cluster.cwd / "arguments").write_text(json.dumps(arguments))
    batch: Job = cluster.sbatch('python program.py "$(cat arguments)"', nodes=2, ntasks_per_node=4, time=10)
    assert batch.wait(timeout=110) == 0, batch.output
    results: dict[str, Any] = json.loads(batch.output.rpartition("results ")[2])
    return results


def test_jobs_of_a_program_get_the_cores_and_nodes_that_they_ask_for(cluster: Cluster):
    shapes = {name: shape for name, (shape, _) in SHAPES.items()}
    shares = {name: (shape, len(sizes)) for name, (shape, sizes) in SHARES.items()}
    results = run_program(cluster, PLACES, shapes, shares)
    assert results["resources"] == {"total_nodes": 2, "total_cores": 8, "used_cores": 0, "free_cores": 8}
    assert results["logs"] == [True, True]
    for name, (_, cores) in SHAPES.items():
        if cores:
            assert results[name] == ["SUCCEED", cores, True]
            assert (cluster.cwd / f"{name}.out").read_text() == "text"
            assert (cluster.cwd / f"{name}.err").read_text() == ""
        else:
            assert results[name][:2] == ["FAILED", []]
    for name, (_, sizes) in SHARES.items():
        assert results[name] == sizes
        assert results[f"{name} hosts"] == [True] * len(sizes), "each ran on a node of its own grant"


def test_a_program_cancels_jobs_and_iterations_on_all_nodes(cluster: Cluster):
    results = run_program(cluster, CANCELS)
    for name in ("all-1", "all-2"):
        assert results[name] == ["CANCELED", ["CANCELED"] * 12]
    lost = (0, 1, 5)
    assert results["some"] == ["CANCELED" if index in lost else "SUCCEED" for index in range(6)]
    assert results["counts"] == {"start": 0, "stop": 6, "total": 6, "finished": 6, "failed": 3}
    assert results["deaf before"] == ["EXECUTING"] * 8, "until they are killed"
    assert results["deaf"] == ["CANCELED", ["CANCELED"] * 8]
