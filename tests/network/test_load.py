"""Many clients and many jobs: all are served, and memory of removed jobs is freed."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import zmq

from qcg.pilotjob.api.client import Manager
from tests.support.pilot import job
from tests.support.serving import PATIENCE, Served, served
from tests.support.waiting import wait_for

CLIENTS = 50
JOBS = 100_000
BULK = 10_000


@pytest.fixture
def occupied(tmp_path: Path) -> Iterator[Served]:
    """Its only core is taken, so that what is submitted waits."""
    with served(tmp_path, "--nodes", "1", "--report-format", "none") as service:
        service.submit(job("occupant", "sleep", "600"))
        service.wait("occupant", "EXECUTING")
        yield service
        service.data("cancelJob", jobNames=["occupant"])
        service.wait("occupant", "CANCELED")


def bulk(first: int, count: int) -> list[dict[str, Any]]:
    return [
        job(f"j{number}", "/bin/echo", str(number), stdout=f"out{number}") for number in range(first, first + count)
    ]


class Latency:
    """The processor time of the manager until a small request is answered, under other load."""

    def __init__(self, service: Served) -> None:
        self._service = service
        self._client = service.client()
        self._over = threading.Event()
        self.seconds: list[float] = []
        self._thread = threading.Thread(target=self._measure)

    def _measure(self) -> None:
        while not self._over.is_set():
            began = self._service.computed()
            assert self._client.ask("jobStatus", jobNames=["occupant"])["code"] == 0
            self.seconds.append(self._service.computed() - began)
            self._over.wait(0.002)

    def __enter__(self) -> Latency:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()
        self._client.close()


def test_small_requests_are_answered_while_ten_thousand_jobs_are_submitted(occupied: Served):
    with Latency(occupied) as latency:
        began = occupied.computed()
        assert occupied.data("submit", jobs=bulk(0, BULK))["submitted"] == BULK
        took = occupied.computed() - began
        assert occupied.data("listJobs")["length"] == BULK + 1
    print(f"most {max(latency.seconds):.3f} s, median {statistics.median(latency.seconds):.4f} s")
    # Taking them in is one step, so that it is all or nothing; reading them is many.
    assert max(latency.seconds) < max(0.5, 0.7 * took)
    assert statistics.median(latency.seconds) < 0.05


@pytest.mark.timeout(300)
def test_fifty_clients_and_a_hundred_thousand_jobs(occupied: Served):
    """Submitted in bulk, cancelled and removed; one client waits for the end of all. Then the memory is free again."""
    each = JOBS // CLIENTS
    occupied.data("submit", jobs=bulk(JOBS, BULK))
    names = [f"j{number}" for number in range(JOBS, JOBS + BULK)]
    occupied.data("cancelJob", jobNames=names)
    occupied.data("removeJob", jobNames=names)
    before = occupied.memory()
    at_once = threading.Barrier(CLIENTS + 1)

    def live(number: int) -> list[float]:
        """The calls of one client; the processor time of the manager for each of its small requests."""
        took = []
        with occupied.client(zmq.DEALER) as client:
            client.ask("resourcesInfo")
            at_once.wait(PATIENCE)
            for first in range(number * each, (number + 1) * each, each // 2):
                assert client.ask("submit", jobs=bulk(first, each // 2))["code"] == 0
                began = occupied.computed()
                assert client.ask("jobStatus", jobNames=[f"j{first}"])["code"] == 0
                took.append(occupied.computed() - began)
        return took

    with ThreadPoolExecutor(CLIENTS) as clients:
        lives = [clients.submit(live, number) for number in range(CLIENTS)]
        at_once.wait(PATIENCE)
        took = [seconds for life in lives for seconds in life.result()]
    assert len(took) == 2 * CLIENTS
    print(f"small requests: most {max(took):.2f} s, median {statistics.median(took):.2f} s")
    assert max(took) < 3
    assert occupied.data("status")["JobStats"]["TotalJobs"] == JOBS + 1

    names = [f"j{number}" for number in range(JOBS)]
    with Manager.of_run(occupied.run_dir, {"log_file": ""}) as manager, ThreadPoolExecutor(1) as other:
        waiting = other.submit(manager.wait4all, 60)
        assert not waiting.done()
        full = occupied.memory()
        assert occupied.data("cancelJob", jobNames=[*names, "occupant"])["canceled"] == JOBS + 1
        waiting.result(60)
    occupied.data("removeJob", jobNames=[*names, "occupant"])
    # What is left is what the allocator keeps for the next time: a second round does not need more.
    wait_for(lambda: occupied.memory() < before + 0.6 * (full - before), what="memory to be given back")
    once = occupied.memory()

    occupied.submit(job("occupant", "sleep", "600"))
    for first in range(0, JOBS, BULK):
        assert occupied.data("submit", jobs=bulk(first, BULK))["submitted"] == BULK
    assert occupied.memory() < before + 1.15 * (full - before)
    occupied.data("cancelJob", jobNames=names)
    assert occupied.data("removeJob", jobNames=names)["removed"] == JOBS
    wait_for(lambda: occupied.memory() < before + 0.6 * (full - before), what="memory to be given back again")
    twice = occupied.memory()
    print(f"memory: {before:.0f} MB; with {JOBS} jobs {full:.0f} MB; without them {once:.0f} MB, again {twice:.0f} MB")
