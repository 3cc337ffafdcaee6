"""The summary of a run: the request, the published event, and pages of the list of jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from qcg.pilotjob.cli.offline_client import RegistryClient
from qcg.pilotjob.report.run_summary import RunSummary
from tests.support.pilot import job
from tests.support.serving import Served, served
from tests.support.waiting import wait_for

GATE = "until [ -e go ]; do sleep 0.05; done"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, "--nodes", "2") as service:
        yield service


def summary(service: Served) -> RunSummary:
    return msgspec.convert(service.data("summary"), RunSummary)


def wait_for_summary(service: Served, units: dict[str, int]) -> RunSummary:
    """The first summary with these numbers by state, rates and an expected end."""
    last: list[RunSummary] = []

    def has_come() -> bool:
        last[:] = [summary(service)]
        (found,) = last
        return found.units == units and found.rates is not None and found.estimate is not None

    wait_for(has_come, what=f"the summary with {units}")
    return last[0]


def test_a_live_run_is_summed_up(service: Served):
    service.submit(
        job("gate", "sh", "-c", GATE),
        job("bad", "sh", "-c", "echo 'it \x1b[31mbroke' >&2; exit 3"),
        job("wide", "true", numCores={"exact": 2}, iteration=4),
        job("then", "true", after=["wide"]),
    )
    service.wait("bad", "FAILED")
    found = summary(service)
    assert (found.run, found.alive, found.directory) == ("x", True, str(service.run_dir))
    assert found.jobs == {"QUEUED": 2, "EXECUTING": 1, "FAILED": 1}
    assert found.iterations == {"QUEUED": 4}
    assert found.units == {"QUEUED": 5, "EXECUTING": 1, "FAILED": 1}
    assert (found.cores, found.used, found.running) == (2, 1, 1)
    assert [(node.name, node.cores, node.used, node.state) for node in found.nodes] == [("n0", 2, 1, "ready")]
    assert {(group.count, group.reason, group.example) for group in found.waiting} == {
        (4, "resources", "wide:0"),
        (1, "dependencies", "then"),
    }
    (failed,) = found.failed
    assert (failed.count, failed.reason, failed.sentence, failed.example) == (1, "exit", "exit code 3", "bad")
    assert "broke" in failed.last_lines[0]
    assert "\x1b" not in failed.last_lines[0]
    assert found.started is not None
    assert found.ended is None
    (service.wd / "go").touch()
    service.wait("then", "SUCCEED")
    over = summary(service)
    assert over.ended is not None
    assert over.estimate is None
    assert over.waiting == ()
    assert over.history is not None
    assert (sum(over.history.starts), sum(over.history.ends), sum(over.history.failures)) == (7, 7, 1)


def test_gpus_rates_and_the_expected_end_are_those_of_equal_jobs_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """One iteration runs at a time, with two of three GPUs: 0 to 3 end at once, 4 runs until the gate opens."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7,9")
    with served(tmp_path, "--share-cores") as service:
        service.submit(job("equal", "sh", "-c", f"[ ${{it}} -lt 4 ] || {GATE}", iteration=10, nodeCrs={"gpu": 2}))
        found = wait_for_summary(service, {"SUCCEED": 4, "EXECUTING": 1, "QUEUED": 5})
        assert [(node.used, node.gpus, node.gpus_used) for node in found.nodes] == [(1, 3, 2)]
        assert (found.used, found.gpus, found.gpus_used, found.running) == (1, 3, 2, 1)
        assert found.rates is not None
        assert found.rates.starts * found.rates.seconds == pytest.approx(5)
        assert found.rates.ends * found.rates.seconds == pytest.approx(4)
        assert found.estimate is not None
        # The expected end is up to half a second old.
        assert found.at - 1 < found.estimate.earliest <= found.estimate.at <= found.estimate.latest
        assert found.at < found.estimate.latest
        assert found.estimate.basis == "from the durations of 4 attempts that succeeded"
        # An attempt that runs much longer than the others has not held its core in vain.
        wait_for(lambda: summary(service).at > found.at + 1.5, what="a second and a half")
        late = summary(service)
        assert late.estimate is not None
        assert late.estimate.at - late.at < 60
        (service.wd / "go").touch()
        service.wait("equal", "SUCCEED")
        over = summary(service)
        assert [(node.used, node.gpus, node.gpus_used) for node in over.nodes] == [(0, 3, 0)]
        assert (over.gpus_used, over.estimate) == (0, None)


def test_a_resumed_manager_has_the_history_of_the_earlier_one(service: Served):
    service.submit(job("a", "true", iteration=20), job("bad", "false", iteration=3))
    service.wait("bad", "FAILED")
    service.wait("a", "SUCCEED")
    before = summary(service)
    service.data("finish")
    service.process.communicate(timeout=60)
    with RegistryClient(service.run_dir) as recorded:
        ended = recorded.summary()
    assert not ended.alive
    assert ended.units == before.units == {"SUCCEED": 20, "FAILED": 3}
    assert [(group.count, group.example) for group in ended.failed] == [(3, "bad:0")]
    assert ended.started == before.started
    assert ended.history is not None
    assert sum(ended.history.ends) == 23
    service.resume()
    after = summary(service)
    assert after.started == before.started
    assert after.history is not None
    assert (sum(after.history.starts), sum(after.history.failures)) == (23, 3)
    assert [(group.count, group.example) for group in after.failed] == [(3, "bad:0")]
    service.data("removeJob", jobNames=["bad"])
    wait_for(lambda: summary(service).failed == (), what="the removed failures to be forgotten")


def test_failed_attempts_that_were_repeated_count_as_failures(service: Served):
    again = "test -e again || { touch again; exit 3; }"
    service.submit(job("again", "sh", "-c", again, retry=1), job("gate", "sh", "-c", GATE))
    service.wait("again", "SUCCEED")
    live = summary(service).history
    assert live is not None
    assert (sum(live.ends), sum(live.failures)) == (2, 1)
    service.submit(job("bad", "false"))
    service.wait("bad", "FAILED")
    service.data("rerunJob", jobNames=["bad"])
    service.wait("bad", "FAILED")
    (service.wd / "go").touch()
    service.wait("gate", "SUCCEED")
    service.data("finish")
    service.process.communicate(timeout=60)
    with RegistryClient(service.run_dir) as recorded:
        ended = recorded.summary().history
    assert ended is not None
    assert (sum(ended.ends), sum(ended.failures)) == (5, 3)


def test_a_summary_is_published_when_something_has_changed_and_only_then(service: Served):
    with service.subscriber("SUM") as subscriber:
        first = _summary_of(subscriber.receive())
        assert first["units"] == {}
        assert subscriber.receive(timeout=2.5) is None, "nothing has changed"
        service.submit(job("a", "true"))
        began = time.monotonic()
        received = 0
        while _summary_of(subscriber.receive())["units"] != {"SUCCEED": 1}:
            received += 1
        assert received <= 2 + time.monotonic() - began
    service.submit(job("b", "true"))
    service.wait("b", "SUCCEED")


def _summary_of(message: list[bytes] | None) -> dict[str, Any]:
    assert message is not None
    topic, _, body = message[0].partition(b" ")
    assert topic == b"SUM"
    found: dict[str, Any] = json.loads(body)["summary"]
    return found


def test_jobs_are_listed_page_by_page(service: Served):
    service.submit(*(job(f"j{number}", "sh", "-c", GATE) for number in range(25)), job("other", "false"))
    for name in ("j0", "j1"):
        service.wait(name, "EXECUTING")
    listed: list[str] = []
    page = service.data("listJobs", limit=10)
    while True:
        listed += page["jobs"]
        assert page["length"] == len(page["jobs"]) <= 10
        assert page["total"] == 26
        if not page["more"]:
            break
        page = service.data("listJobs", limit=10, after=listed[-1])
    assert listed == [*(f"j{number}" for number in range(25)), "other"]
    complete = service.data("listJobs")
    assert set(complete) == {"length", "jobs"}
    assert list(complete["jobs"]) == listed
    assert complete["jobs"]["j24"]["inQueue"] >= 0
    assert list(service.data("listJobs", pattern="j1?", limit=3)["jobs"]) == ["j10", "j11", "j12"]
    assert list(service.data("listJobs", pattern=["other", "j3", "nobody"])["jobs"]) == ["j3", "other"]
    assert list(service.data("listJobs", states="EXECUTING", limit=100)["jobs"]) == ["j0", "j1"]
    assert service.data("listJobs", states=["OMITTED"])["jobs"] == {}
    for wrong in ({"limit": 0}, {"after": "nobody"}, {"states": ["GONE"]}, {"pattern": 3}, {"before": "j3"}):
        assert service.ask("listJobs", **wrong)["code"] == 1
    (service.wd / "go").touch()
    wait_for(lambda: service.data("status", options={"allJobsFinished": True})["AllJobsFinished"], what="all jobs")


def test_a_summary_costs_no_more_with_many_jobs(service: Served):
    """CPU time of the manager for a hundred summaries, with few and with many jobs that wait."""

    def cost() -> float:
        clock = Path(f"/proc/{service.process.pid}/stat").read_text().rpartition(")")[2].split()
        return float(clock[11]) + float(clock[12])

    def measure() -> float:
        wait_for(lambda: "j0" in service.data("listJobs", limit=1)["jobs"], what="jobs")
        began = cost()
        with service.client() as client:
            for _ in range(100):
                assert client.ask("summary")["code"] == 0
                assert client.ask("listJobs", limit=10)["code"] == 0
        return cost() - began

    service.submit(*(job(f"j{number}", "sh", "-c", GATE) for number in range(100)))
    few = measure()
    for first in range(100, 40_000, 10_000):
        service.submit(*(job(f"j{number}", "sh", "-c", GATE) for number in range(first, first + 10_000)))
    many = measure()
    service.data("cancelJob", jobNames=[f"j{number}" for number in range(2, 40_100)])
    (service.wd / "go").touch()
    assert many <= 4 * max(few, 10), f"{many} clock ticks with 40,000 jobs, {few} with 100"
