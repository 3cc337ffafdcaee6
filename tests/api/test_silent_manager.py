"""A manager that does not answer or publish: waits keep their timeouts."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from qcg.pilotjob.api import aio, client
from qcg.pilotjob.api.aio import AsyncManager
from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.errors import ConnectionError, TimeoutElapsed
from qcg.pilotjob.api.target import Target
from qcg.pilotjob.wire.contact import ClientsContact

SOON = 15.0
"""Seconds: longer than the timeouts of waits here, and far shorter than the timeout of a request."""


class Puppet:
    """A service that answers and publishes only when the test requests it."""

    def __init__(self, *, welcomes: bool = False) -> None:
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.bind("tcp://127.0.0.1:*")
        self._publisher = self._context.socket(zmq.XPUB)
        self._publisher.setsockopt(zmq.XPUB_WELCOME_MSG, b"WEL" if welcomes else b"")
        self._publisher.bind("tcp://127.0.0.1:*")
        self.mute: set[str] = set()
        """Requests that get no answer."""
        self.name = "a"
        self.states: list[str] = []
        """Of this job, one for each question; the last one stays."""
        self.ends: list[dict[str, Any]] = []
        """What replies to `endedJobs` have beside the usual, one after the other."""
        self.asked: list[str] = []
        self.subscribed: set[bytes] = set()
        """Topics that a client has subscribed to, now or earlier."""
        self.beats = False
        """Whether it publishes beats, and nothing else."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def target(self) -> Target:
        addresses = [socket.getsockopt_string(zmq.LAST_ENDPOINT) for socket in (self._router, self._publisher)]
        return Target(ClientsContact(address=addresses[0], publisher=addresses[1]), None)

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        self._context.destroy(linger=0)

    def _serve(self) -> None:
        while not self._ending.is_set():
            while self._publisher.poll(0):
                self.subscribed.add(self._publisher.recv().lstrip(b"\x00\x01"))
            if self.beats and "jobStatus" in self.asked:
                self._publisher.send(b'BEAT {"numbers": {"JFI": 1, "IFI": 0, "NOJ": 0}}')
            if not self._router.poll(20):
                continue
            *way_back, body = self._router.recv_multipart()
            request = json.loads(body)["request"]
            self.asked.append(request)
            if request not in self.mute:
                answer = json.dumps({"code": 0, "data": self._data(request)}).encode()
                self._router.send_multipart([*way_back, answer])

    def _data(self, request: str) -> dict[str, Any]:
        if request == "endedJobs":
            reply = {"ends": [], "last": 0, "first": 0, "more": True, "delayed": False}
            return {**reply, **(self.ends.pop(0) if self.ends else {})}
        if request != "jobStatus":
            return {}
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return {"jobs": {self.name: {"status": 0, "data": {"jobName": self.name, "status": state}}}}


@pytest.fixture
def puppet() -> Iterator[Puppet]:
    puppet = Puppet()
    yield puppet
    puppet.close()


def waited(puppet: Puppet, face: str, cfg: dict[str, Any], timeout: float | None) -> dict[str, str]:
    """The result of `wait4` of one variant of the client."""
    if face == "threads":
        with Manager.at(puppet.target, cfg) as manager:
            return manager.wait4(puppet.name, timeout)

    async def wait() -> dict[str, str]:
        manager = AsyncManager(puppet.target.contact.address, cfg)
        async with manager:
            manager._target = puppet.target  # an address alone does not give the address of the publisher
            return await manager.wait4(puppet.name, timeout)

    return asyncio.run(wait())


@pytest.mark.parametrize("face", ["threads", "asyncio"])
def test_a_wait_keeps_its_timeout_when_the_manager_does_not_answer(puppet: Puppet, face: str):
    puppet.mute = {"jobStatus"}
    began = time.monotonic()
    with pytest.raises(TimeoutElapsed, match="after 1.5 s, 1 of 1 jobs has not ended: 'a'"):
        waited(puppet, face, {"poll_delay": 0.2}, 1.5)
    assert time.monotonic() - began < 1.5 + 5 + SOON


@pytest.mark.parametrize("face", ["threads", "asyncio"])
def test_without_a_welcome_the_manager_is_polled(puppet: Puppet, face: str):
    puppet.states = ["EXECUTING", "EXECUTING", "SUCCEED"]
    assert waited(puppet, face, {"poll_delay": 0.2}, 60) == {"a": "SUCCEED"}
    assert puppet.asked.count("jobStatus") == 3


@pytest.mark.parametrize("face", ["threads", "asyncio"])
def test_an_end_published_before_the_subscription_is_queried_at_the_first_heartbeat(face: str):
    """A welcome does not prove that the event arrives."""
    puppet = Puppet(welcomes=True)
    puppet.states = ["EXECUTING", "SUCCEED"]
    puppet.beats = True
    try:
        assert waited(puppet, face, {"poll_delay": 60}, 50) == {"a": "SUCCEED"}
    finally:
        puppet.close()


@pytest.mark.parametrize("face", ["threads", "asyncio"])
@pytest.mark.parametrize(("name", "topics"), [("a", {b"JFI"}), ("a:1", {b"JFI", b"IFI"})])
def test_only_waits_for_iterations_subscribe_to_iteration_events(face: str, name: str, topics: set[bytes]):
    puppet = Puppet(welcomes=True)
    puppet.name = name
    puppet.states = ["EXECUTING", "SUCCEED"]
    puppet.beats = True
    try:
        assert waited(puppet, face, {"poll_delay": 60}, 50) == {name: "SUCCEED"}
    finally:
        puppet.close()
    assert puppet.subscribed - {b"BEAT", b"WEL"} == topics


@pytest.mark.parametrize("face", ["threads", "asyncio"])
def test_a_request_without_an_answer_raises_an_error_after_its_timeout(puppet: Puppet, face: str):
    puppet.mute = {"jobStatus"}
    with pytest.raises(ConnectionError, match=r"did not answer within 0.5 s"):
        waited(puppet, face, {"poll_delay": 0.2, "request_timeout": 0.5}, None)


@pytest.mark.parametrize("face", ["threads", "asyncio"])
def test_ends_that_the_manager_cannot_write_yet_are_requested_until_it_can(face: str, monkeypatch: pytest.MonkeyPatch):
    """As while a disk is full: no event announces free space."""
    for module in (aio, client):
        monkeypatch.setattr(module, "DELAYED_PAUSE", 0.01)
    puppet = Puppet(welcomes=True)
    later = {"ends": [{"number": 1, "job": "a", "state": "FAILED"}], "last": 1}
    puppet.ends = [{}, {"delayed": True}, {"delayed": True}, {"delayed": True}, later]
    try:
        assert waited_for_any(puppet, face) == ("a", "FAILED")
        assert puppet.asked == ["endedJobs"] * 5
    finally:
        puppet.close()


def waited_for_any(puppet: Puppet, face: str) -> tuple[str, str]:
    cfg = {"poll_delay": 60}
    if face == "threads":
        with Manager.at(puppet.target, cfg) as manager:
            return manager.wait4_any_job_finish(50)

    async def wait() -> tuple[str, str]:
        async with AsyncManager(puppet.target.contact.address, cfg) as manager:
            manager._target = puppet.target
            return await manager.wait4_any_job_finish(50)

    return asyncio.run(wait())


def test_a_request_without_an_answer_does_not_affect_others(puppet: Puppet):
    puppet.mute = {"resourcesInfo"}
    puppet.states = ["SUCCEED"]

    async def ask() -> None:
        async with AsyncManager(puppet.target.contact.address, {"request_timeout": 3}) as manager:
            first = asyncio.ensure_future(manager.resources())
            await asyncio.sleep(0.3)
            puppet.mute.add("jobInfo")
            second = asyncio.ensure_future(manager.send_request({"request": "jobInfo"}))
            with pytest.raises(ConnectionError, match="did not answer"):
                await first
            assert (await manager.status("a"))["jobs"]["a"]["data"]["status"] == "SUCCEED"
            with pytest.raises(ConnectionError, match="did not answer"):
                await second

    asyncio.run(ask())


def test_a_cancelled_query_of_a_wait_is_repeated(puppet: Puppet):
    """A wait that ends while its query is pending must not lose the reply."""
    puppet.states = ["SUCCEED"]

    async def wait() -> None:
        manager = AsyncManager(puppet.target.contact.address, {"poll_delay": 0.01})
        async with manager:
            manager._target = puppet.target
            for tenths in range(40):
                assert await manager.wait4("a", 0.008 + tenths / 10_000) == {"a": "SUCCEED"}

    asyncio.run(wait())
