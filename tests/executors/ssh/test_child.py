"""Processes of ssh and rsync."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from qcg.pilotjob.executors.ssh.child import Child
from tests.support.waiting import wait_for


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


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
    wait_for(lambda: is_gone(pid), 5, "the end of the inner process")
