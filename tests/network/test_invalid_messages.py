"""A manager without keys survives any message, and answers other clients."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qcg.pilotjob.description.requests import REQUESTS
from qcg.pilotjob.wire.parts import MARK
from tests.support.pilot import job
from tests.support.serving import NO_ANSWER, Bare, Served, served
from tests.support.tiers import per_tier
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("run"), "--nodes", "1", "--insecure-net") as service:
        yield service


@pytest.fixture
def stranger(service: Served) -> Iterator[Bare]:
    with Bare(service.contact.address, kind=zmq.DEALER) as stranger:
        yield stranger


@pytest.fixture(autouse=True)
def _the_service_lives_on(service: Served) -> Iterator[None]:
    yield
    assert service.ask("resourcesInfo")["code"] == 0
    assert "Traceback" not in service.log()


def test_a_client_without_keys_can_connect_to_an_insecure_manager(service: Served, stranger: Bare):
    assert stranger.ask("resourcesInfo")["data"]["total_cores"] == 1
    assert service.contact.server_key == ""


def test_the_log_warns_of_an_insecure_manager(service: Served):
    assert "WARNING --insecure-net: everybody on this host can send requests" in service.log()


def test_jobs_of_an_insecure_manager_can_connect_to_it(service: Served):
    service.submit(job("a", "sh", "-c", "echo $QCG_PM_ZMQ_ADDRESS", stdout="told"))
    service.wait("a", "SUCCEED")
    assert (service.wd / "told").read_text().strip() == service.contact.address


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"", b""],
        [b"only one frame"],
        [b"a", b"b", b"c", b"d", b"e"],
        [b"", b"", b"", b"", b"", b'{"request": "listJobs"}'],
        [b"x" * 1000, b"", b"[1, 2"],
        [b"", random.Random(1).randbytes(1_000_000)],
        [b"", b'{"request": "' + b"x" * 5_000_000 + b'"}'],
        [b"", b'{"request": "jobStatus", "jobNames": ' + json.dumps(["x" * 100] * 50_000).encode() + b"}"],
        [b"", b'{"request": "listJobs", "request": "finish"'],
        [b"", b'{"a": ' * 200_000],
        [b"", b'{"request": "submit", "jobs": [' + b'{"name": "\\ud800", "exec": "true"}' + b"]}"],
        [b"", b'{"request": "submit", "jobs": [{"name": "x", "exec": "true", "numCores": 1e400}]}'],
        [b"", b'{"request": "submit", "jobs": [{"name": "x", "exec": "true", "iteration": 99999999999999999999}]}'],
        [b"", b'{"request": "cancelJob", "jobNames": ["a:' + b"9" * 5000 + b'"]}'],
        [b"", b'{"request": "jobInfo", "jobNames": ["\\u0000", "a:", ":", "a:-1", "a:b:c"]}'],
    ],
    ids=range(16),
)
def test_an_invalid_message_is_answered_and_does_no_harm(stranger: Bare, frames: list[bytes]):
    stranger.send(*frames)
    answer = stranger.receive()
    assert answer is not None
    assert answer[:-1] == frames[:-1]
    assert json.loads(answer[-1])["code"] in (0, 1)


def test_a_hundred_megabytes_are_not_read(service: Served, stranger: Bare):
    service.forget_most_memory()
    before = service.memory()
    stranger.send(b"", b"x" * (100 << 20))
    assert stranger.receive(NO_ANSWER) is None
    assert service.most_memory() < before + 20


def test_a_large_valid_message_is_answered_and_its_memory_freed(service: Served, stranger: Bare):
    before = service.memory()
    for _ in range(3):
        stranger.send(b"", b"x" * (60 << 20))
        answer = stranger.receive()
        assert answer is not None
        assert json.loads(answer[-1])["code"] == 1
        assert len(answer[-1]) < 1000
    assert service.ask("resourcesInfo")["code"] == 0
    wait_for(lambda: service.memory() < before + 30, what="the memory to be given back")


@pytest.mark.parametrize("frames", [[b"x"] * 100, [b"x" * (5 << 20)] * 10], ids=["many", "large"])
def test_a_request_with_a_long_routing_envelope_is_dropped(service: Served, stranger: Bare, frames: list[bytes]):
    stranger.send(*frames, b'{"request": "listJobs"}')
    assert stranger.receive(NO_ANSWER) is None
    wait_for(lambda: f"a message of {len(frames) + 2} frames" in service.log(), what="a line in the log")


def test_twenty_thousand_subscriptions_do_not_slow_the_manager_down(service: Served):
    def seconds_of_a_burst(prefix: str) -> float:
        jobs = [job(f"{prefix}{number}", "true") for number in range(2000)]
        began = service.computed()
        service.data("submit", jobs=jobs)
        service.data("cancelJob", jobNames=[entry["name"] for entry in jobs])
        return service.computed() - began

    service.submit(job("occupant", "sleep", "600"))
    service.wait("occupant", "EXECUTING")
    before = seconds_of_a_burst("before")
    with Bare(service.contact.publisher, kind=zmq.XSUB) as stranger:
        for number in range(20_000):
            stranger.send(b"\x01JFI {%d" % number)
        stranger.send(b"\x01WEL")
        assert stranger.receive() == [b"WEL"]
        after = seconds_of_a_burst("after")
    service.data("cancelJob", jobNames=["occupant"])
    service.wait("occupant", "CANCELED")
    print(f"{before:.2f} s without, {after:.2f} s with the subscriptions")
    assert after < 4 * before + 1


def test_subscribers_cannot_send_events_to_the_manager(service: Served):
    with Bare(service.contact.publisher, kind=zmq.XSUB) as stranger:
        stranger.send(b"\x01JFI")
        for size in (0, 1, 100, 60_000):
            stranger.send(random.Random(size).randbytes(size))
        stranger.send(b"\x00JFI")
        stranger.send(b"\x01WEL")
        assert stranger.receive() == [b"WEL"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
keys = st.sampled_from(["jobs", "jobNames", "jobName", "params", "options", "command"]) | st.text(max_size=10)
# Only requests that neither run a command nor end the service.
names = st.sampled_from([name for name in REQUESTS if name not in ("finish", "control")]) | st.text(max_size=10)


@pytest.mark.sampled
@settings(max_examples=per_tier(60, 1000), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=names, more=st.dictionaries(keys, json_values, max_size=3))
def test_requests_with_random_values_are_answered(stranger: Bare, name: str, more: dict):
    stranger.send(b"", json.dumps({"request": name, **more}).encode())
    answer = stranger.receive()
    assert answer is not None
    reply = json.loads(answer[-1])
    assert reply["code"] == 0 or reply["message"]


@pytest.mark.sampled
@settings(max_examples=per_tier(60, 1000), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frames=st.lists(st.binary(max_size=200), min_size=1, max_size=5))
def test_requests_with_random_frames_are_answered(stranger: Bare, frames: list[bytes]):
    stranger.send(*frames)
    answer = stranger.receive()
    assert answer is not None
    assert answer[:-1] == (frames[: frames.index(MARK)] if MARK in frames[:-1] else frames[:-1])
    assert json.loads(answer[-1])["code"] == 1


@pytest.mark.parametrize("unread", [0, 1], ids=["its library keeps the answers", "nobody takes the answers"])
def test_a_flood_of_requests_does_not_fill_the_memory(service: Served, unread: int):
    """Nor does a client that does not read the answers: a thousand of some 40 KB are kept for it."""
    service.forget_most_memory()
    before = service.memory()
    body = b'{"request": "jobStatus", "jobNames": ["' + b"x" * 20_000 + b'"]}'
    with Bare(service.contact.address, kind=zmq.DEALER, unread=unread) as stranger:
        for _ in range(10_000):
            stranger.send(b"", body)
        assert service.ask("resourcesInfo")["code"] == 0
    assert service.most_memory() < before + 75
