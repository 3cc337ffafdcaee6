"""Links that need longer for a message than a host may be silent."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from qcg.pilotjob.executors.ssh import transport
from qcg.pilotjob.executors.ssh.attempts import in_frames
from tests.support import slow_link
from tests.support.ssh_executor import ANY_CHANNEL, a_launch, send


@ANY_CHANNEL
def test_many_large_launches_arrive_over_a_slow_link(lab, monkeypatch):
    monkeypatch.setattr(transport, "SILENCE", 6)
    monkeypatch.setattr(transport, "_TICK", 0.5)
    rate = 100_000
    lab.far_command = [sys.executable, str(Path(slow_link.__file__)), str(rate), *lab.far.command]

    async def scenario() -> None:
        observer = lab.start()
        send(observer, *(a_launch(seq)._replace(env={"DATA": "x" * 12_500}) for seq in range(1, 81)))
        await observer.until(lambda: len(observer.ended) == 80, 60)
        assert observer.away == []
        await observer.executor.shut_down(1, "cancel")

    asyncio.run(scenario())


def test_frames_of_launches_are_limited_in_bytes():
    def size(launch):
        return len(msgspec.json.encode(launch))

    launches = [a_launch(seq)._replace(env={"DATA": "x" * (400_000 if seq == 3 else 50_000)}) for seq in range(1, 11)]
    frames = in_frames(launches, 200, 256 << 10, size)
    assert [launch.id for frame in frames for launch in frame] == [launch.id for launch in launches]
    assert [len(frame) for frame in frames] == [2, 1, 5, 2]
    assert in_frames([], 200, 256 << 10, size) == []
