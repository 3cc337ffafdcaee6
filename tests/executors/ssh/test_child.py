"""Processes of ssh and rsync."""

from __future__ import annotations

import asyncio

import pytest

from qcg.pilotjob.executors.ssh.child import Child
from tests.support.processes import is_alive
from tests.support.waiting import wait_for


@pytest.mark.parametrize("obeys", [True, False])
def test_a_closed_process_takes_those_with_it_that_it_has_started(obeys):
    inner = "sleep 100" if obeys else "trap '' TERM; echo ready; while :; do sleep 0.1; done"

    async def scenario() -> list[int]:
        child = await Child.start(["sh", "-c", f'sh -c "echo \\$\\$; {inner}" & wait'])
        pids = [int(await child.stdout.readline())]
        if not obeys:
            await child.stdout.readline()
        child.close()
        return pids

    (pid,) = asyncio.run(scenario())
    wait_for(lambda: not is_alive(pid), what="the end of the inner process")
