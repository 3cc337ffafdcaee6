"""Batch jobs behind a channel, with a stub of a batch system."""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from qcg.pilotjob.host.records import Ended, EndReason
from qcg.pilotjob.host.remote.batch_worker import BatchWorker
from tests.host.remote.test_batch_jobs import Host, ends, launch, request
from tests.support.stub_queue import StubQueue
from tests.support.waiting import wait_for


@pytest.fixture
def stub(tmp_path: Path) -> StubQueue:
    return StubQueue(tmp_path / "queue")


@pytest.fixture
def host(tmp_path: Path, stub: StubQueue) -> Host:
    return Host(tmp_path / "run", stub, timeout=30.0, submit_poll_interval=600.0, poll_interval=600.0)


@pytest.fixture
def worker(host: Host) -> Iterator[BatchWorker]:
    worker = BatchWorker(host.jobs)
    yield worker
    worker.close()
    host.jobs.close()


def wait_for_end(host: Host, worker: BatchWorker) -> Ended:
    """The next end that a channel reports."""
    while True:
        ready, _, _ = select.select([worker], [], [], 30)
        assert ready, "no change was announced"
        worker.take_notices()
        found = ends([body for _, body in host.view.read().get("batch", [])])
        if found:
            return found[0]


def test_a_request_is_answered_while_the_batch_system_hangs(stub: StubQueue, worker: BatchWorker):
    stub.set("submit", "hang")
    began = time.monotonic()
    assert worker.submit(request(launch("a"))) == {"a:1.1": "accepted"}
    assert worker.submit(request(launch("a"), launch("b"))) == {"a:1.1": "known", "b:1.1": "accepted"}
    assert time.monotonic() - began < 10
    wait_for(lambda: stub.calls("submit"), 30, "the command")
    stub.clear("submit", "hang")
    wait_for(lambda: len(stub.jobs()) == 2, 30, "the submission of both")


def test_an_end_is_announced_without_a_query_of_the_batch_system(host: Host, stub: StubQueue, worker: BatchWorker):
    worker.submit(request(launch("a", "false")))
    wait_for(lambda: "JOB_ID" in host.status("a"), 30, "the submission")
    asked = len(stub.calls("list"))
    stub.run("1")
    ended = wait_for_end(host, worker)
    assert (ended.exit_code, ended.reason) == (1, EndReason.EXIT)
    assert len(stub.calls("list")) <= asked + 1


def test_the_queue_is_queried_at_once_for_the_cause_of_an_end(host: Host, stub: StubQueue, worker: BatchWorker):
    worker.submit(request(launch("a", "sleep", "1000")))
    wait_for(lambda: "JOB_ID" in host.status("a"), 30, "the submission")
    runner = stub.start("1")
    wait_for(lambda: "STARTED" in host.status("a"), 30, "the start of the job")
    stub.set_state("1", "TIMEOUT")
    runner.send_signal(signal.SIGTERM)
    runner.wait(30)
    ended = wait_for_end(host, worker)
    assert ended.reason == EndReason.TIMEOUT


def test_a_waiting_job_is_killed_soon(host: Host, stub: StubQueue, worker: BatchWorker):
    worker.submit(request(launch("a")))
    wait_for(lambda: "JOB_ID" in host.status("a"), 30, "the submission")
    assert worker.kill({"ids": ["a:1.1"], "reason": "cancel", "message": ""}) == ["a:1.1"]
    ended = wait_for_end(host, worker)
    assert ended.reason == EndReason.CANCEL


def test_a_batch_system_that_cannot_be_queried_is_reported_once(tmp_path: Path, stub: StubQueue):
    host = Host(tmp_path / "run", stub, submit_poll_interval=0.1)
    stub.set("list", "fail", "cannot connect")
    worker = BatchWorker(host.jobs)
    worker.submit(request(launch("a")))
    wait_for(lambda: len(stub.calls("list")) > 3, 30, "several questions")
    worker.close()
    host.jobs.close()
    assert worker.take_notices() == ["Stub cannot be reached: cannot connect"]
