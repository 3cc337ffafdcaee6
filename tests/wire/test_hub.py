"""Listening sockets of a manager, and when they are closed."""

from __future__ import annotations

import asyncio
import socket

from qcg.pilotjob.common.options import Options
from qcg.pilotjob.executors.agents import AgentExecutor, Endpoint
from qcg.pilotjob.interfaces.network import NetworkInterface
from qcg.pilotjob.wire.hub import Hub
from qcg.pilotjob.wire.keys import make_keys
from tests.executors.fake_agents import FakeSupervisor, NotingObserver
from tests.support.waiting import wait_for


def is_open(address: str) -> bool:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=30).close()
    except ConnectionRefusedError:
        return False
    return True


async def until_closed(*addresses: str) -> None:
    """Wait until a socket is closed: ZeroMQ closes sockets in a separate thread."""
    await asyncio.to_thread(wait_for, lambda: not any(map(is_open, addresses)))


def test_a_closed_port_receives_nothing_and_drops_what_is_sent():
    async def test() -> None:
        hub = Hub()
        try:
            port = hub.router("test", make_keys(), "tcp://127.0.0.1:*", lambda messages: None)
            assert is_open(port.address)
            port.pause()
            port.close()
            await until_closed(port.address)
            port.resume()
            port.send([b"peer", b"too late"])
            port.close()
        finally:
            hub.close()

    asyncio.run(test())


def test_closing_the_network_interface_closes_its_ports():
    async def test() -> None:
        hub = Hub()
        try:
            interface = NetworkInterface(hub, Options(), "127.0.0.1")
            assert is_open(interface.contact.address)
            assert is_open(interface.contact.publisher)
            await interface.close()
            await until_closed(interface.contact.address, interface.contact.publisher)
        finally:
            hub.close()

    asyncio.run(test())


def test_closing_the_executor_closes_the_port_for_agents():
    async def test() -> None:
        hub = Hub()
        try:
            endpoint = Endpoint(hub, make_keys(), "tcp://127.0.0.1:*")
            observer = NotingObserver()
            executor = AgentExecutor(
                observer, {"a": ["n1"]}, {}, endpoint, lambda executor: FakeSupervisor(executor, observer)
            )
            contact = executor.open()
            assert is_open(contact.address)
            executor.close()
            await until_closed(contact.address)
            executor.acknowledge({"a": 1})
        finally:
            hub.close()

    asyncio.run(test())
