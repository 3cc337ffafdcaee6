"""Two managers on two parts of one allocation."""

from __future__ import annotations

from tests.support.pilot import job, write_requests
from tests.support.slurm_cluster import Cluster


def test_two_managers_use_separate_nodes_of_one_allocation(cluster: Cluster):
    for part in ("low", "high"):
        (cluster.cwd / part).mkdir()
        script = f'echo "$(hostname) $SLURM_JOB_NODELIST" >> {part}.hosts'
        jobs = [job("each", script=script, iteration=8), job("all", script=script, numNodes=2)]
        write_requests(cluster.cwd / f"{part}.json", jobs)
    batch = cluster.sbatch(
        "qcg-pm run low.json --wd low --slurm-limit-nodes-range-end 2 & low=$!\n"
        "qcg-pm run high.json --wd high --slurm-limit-nodes-range-begin 2 --slurm-limit-nodes-range-end 4 & high=$!\n"
        "wait $low; one=$?; wait $high; other=$?\n"
        "qcg-pm run low.json --wd low --slurm-limit-nodes-range-begin 4; echo refused with $?\n"
        "exit $((one + other))",
        nodes=4,
        ntasks_per_node=4,
        time=10,
    )
    assert batch.wait(timeout=120) == 0, batch.output
    for part, nodes in (("low", ["n1", "n2"]), ("high", ["n3", "n4"])):
        lines = (cluster.cwd / part / f"{part}.hosts").read_text().splitlines()
        assert len(lines) == 9
        assert {line.split()[0] for line in lines} == set(nodes)
        assert f"2 nodes with 8 cores: {', '.join(nodes)}" in (cluster.cwd / part / "service.log").read_text()
    assert "choose no part of the 4 nodes of allocation" in batch.output
    assert "refused with 2" in batch.output
