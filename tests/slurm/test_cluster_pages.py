"""The examples of the documents that need a cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.docs.pages import CLUSTER_PAGES, blocks_of
from tests.docs.running import PageDirectory
from tests.slurm.concurrent_tests import long_concurrent_test
from tests.support.slurm_cluster import Cluster

TIMEOUT = 120


@long_concurrent_test
def test_the_examples_of_cluster_pages_produce_the_documented_output(cluster: Cluster):
    def on_the_login_node(command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
        # Both streams in one, in the order in which they were written.
        return cluster.run("bash", "-c", 'exec 2>&1; exec "$@"', "-", *command, cwd=cwd, timeout=TIMEOUT, check=False)

    assert CLUSTER_PAGES
    for page in CLUSTER_PAGES:
        (cluster.cwd / page.stem).mkdir()
        directory = PageDirectory(cluster.cwd / page.stem, on_the_login_node)
        for block in blocks_of(page):
            directory.execute(block)
        assert not directory.unused, f"no command uses {', '.join(directory.unused)} of {page.name}"
