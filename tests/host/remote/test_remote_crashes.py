"""Random kills of channels and supervisors: no attempt runs twice, and every one has exactly one end."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from typing import Any

import pytest

from tests.host.remote.far_side import Channel, FarSide, ends_in, script, until
from tests.support.tiers import per_tier


class Manager:
    """A simple manager: it keeps launches until they are answered, and starts lost attempts again."""

    def __init__(self, far: FarSide, jobs: int) -> None:
        self.far = far
        self.unanswered: dict[str, list[Any]] = {}
        self.acked: dict[str, int] = {}
        self.ends: dict[str, str] = {}
        self.accepted: set[str] = set()
        self.waiting = {f"{number}.1" for number in range(jobs)}
        self.succeeded: set[str] = set()
        self._events = 0

    def connect(self) -> Channel:
        channel = Channel(self.far)
        channel.init()
        report = channel.call("jobs-poll", acks=self.acked, full=True)
        self._take(report["reports"])
        live = {running[0] for running in report["live"]}
        # An accepted attempt is live or has an end, whatever was killed.
        assert self.accepted <= live | set(self.ends), self.accepted - live - set(self.ends)
        assert not live & set(self.ends)
        self.unanswered = {id: launch for id, launch in self.unanswered.items() if id not in live}
        self._events = 0
        return channel

    def prepare(self) -> list[list[Any]]:
        """The launches to send next."""
        for id in sorted(self.waiting)[:5]:
            job, _, number = id.partition(".")
            text = f"echo {id} >> ../runs; sleep 0.0{int(job) % 8}"
            self.unanswered[id] = script(id, text, name=job, number=int(number))
        self.waiting -= set(self.unanswered)
        return list(self.unanswered.values())

    def turn(self, channel: Channel) -> None:
        launches = self.prepare()
        if launches:
            results = channel.call("jobs-submit", launches=launches)["results"]
            assert set(results.values()) <= {"accepted", "known"}
            self.accepted |= set(results)
            self.unanswered.clear()
        channel.receive(0.02)
        for event in channel.events[self._events :]:
            if event["event"] == "records":
                self._take({event["ledger"]: event["records"]})
        self._events = len(channel.events)
        channel.call("jobs-poll", acks=self.acked, full=False)

    def _take(self, reports: dict[str, list[Any]]) -> None:
        for ledger, records in reports.items():
            fresh = [record for record in records if record[1] > self.acked.get(ledger, 0)]
            for id, end in ends_in({ledger: fresh}).items():
                assert id not in self.ends, f"{id} has ended twice"
                self.ends[id] = end[2]
                self.unanswered.pop(id, None)
                job, _, number = id.partition(".")
                if end[2] == "exit":
                    assert end[1] == 0
                    self.succeeded.add(job)
                else:
                    assert end[2] in ("lost", "closed")
                    self.waiting.add(f"{job}.{int(number) + 1}")
            if records:
                self.acked[ledger] = max(self.acked.get(ledger, 0), records[-1][1])


@pytest.mark.sampled
@pytest.mark.timeout(600)
def test_no_attempt_is_lost_or_runs_twice_whatever_is_killed(far: FarSide) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    jobs = per_tier(30, 500)
    manager = Manager(far, jobs)
    kills = per_tier(6, 100)
    channel = manager.connect()
    try:
        next_kill = time.monotonic() + chance.uniform(0, 0.6)
        while len(manager.succeeded) < jobs:
            if kills and time.monotonic() > next_kill:
                kills -= 1
                next_kill = time.monotonic() + chance.uniform(0, 0.6)
                if chance.random() < 0.5:
                    for pid in far.supervisor_pids():
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                else:
                    # Half of the channels die while a request is pending, and its reply is lost.
                    if chance.random() < 0.5:
                        channel.send("jobs-submit", launches=manager.prepare())
                        time.sleep(chance.uniform(0, 0.03))
                    channel.process.kill()
                    channel.close()
                    channel = manager.connect()
            manager.turn(channel)
    finally:
        channel.process.kill()
        channel.close()
    runs = Counter((far.run_dir / "work/1/runs").read_text().split())
    assert max(runs.values()) == 1
    assert set(runs) <= set(manager.ends)
    until(lambda: not far.supervisor_pids(), "the end of the supervisor")
