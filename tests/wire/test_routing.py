"""The address of the manager for nodes, whatever names resolve to on this machine."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import zmq

from qcg.pilotjob.api.target import complete_address
from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import Allocation
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.manager.placement import Placement
from qcg.pilotjob.wire import routing
from qcg.pilotjob.wire.hub import Frames, Hub
from qcg.pilotjob.wire.routing import LOOPBACK, address_towards, is_ipv6
from tests.support.waiting import wait_for

OURS = {"10.0.0.1", "fd00::1"}


class Kernel:
    """Routes of a machine whose addresses are `OURS`; other addresses without a route cannot be reached."""

    def __init__(self, family: int, kind: int) -> None:
        self._source = ""

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def connect(self, target: tuple[str, int]) -> None:
        host = target[0]
        if not host.startswith(("10.", "127.", "fd00:")):
            raise OSError("no route")
        self._source = host if host in OURS | {LOOPBACK} else "fd00::1" if ":" in host else "10.0.0.1"

    def getsockname(self) -> tuple[str, int]:
        return self._source, 1


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    known: dict[str, list[str]] = {}

    def getaddrinfo(host: str, port: int, family: int = 0, kind: int = 0) -> list[Any]:
        if host not in known:
            raise socket.gaierror(f"{host} is not known")
        families = [(socket.AF_INET6 if ":" in address else socket.AF_INET, address) for address in known[host]]
        return [(one, kind, 0, "", (address, port)) for one, address in families if family in (0, one)]

    monkeypatch.setattr(f"{routing.__name__}.socket.getaddrinfo", getaddrinfo)
    monkeypatch.setattr(f"{routing.__name__}.socket.socket", Kernel)
    return known


def test_an_own_name_that_means_loopback_is_ignored(names: dict[str, list[str]]):
    names.update(n1=["127.0.1.1"], n2=["10.0.0.2"])
    assert address_towards(["n1", "n2"]) == "10.0.0.1"


def test_an_own_name_is_used_when_there_is_no_other(names: dict[str, list[str]]):
    names.update(n1=["127.0.1.1", "10.0.0.1"])
    assert address_towards(["n1"]) == "10.0.0.1"


def test_nodes_with_ipv6_only_are_reached(names: dict[str, list[str]]):
    names.update(n1=["::1", "fd00::1"], n2=["fe80::2", "fd00::2"], n3=["fd00::3", "10.0.0.3"])
    assert address_towards(["n1", "n2"]) == "[fd00::1]"
    assert address_towards(["n3"]) == "10.0.0.1"


def test_unknown_names_give_no_address(names: dict[str, list[str]]):
    names.update(n1=["127.0.1.1"], n2=["192.0.2.7"])
    assert address_towards(["n1", "n2", "n3"]) is None


def placement(*nodes: str) -> Placement:
    specs = [NodeSpec(name, (0,)) for name in nodes]
    return Placement(specs, {}, Allocation(AllocationRef("1"), specs, {name: name for name in nodes}))


def test_one_node_is_this_machine_and_several_unreachable_nodes_are_reported(names: dict[str, list[str]]):
    names.update(n1=["127.0.1.1"], n2=["127.0.1.1"])
    assert placement("n1").address == LOOPBACK
    with pytest.raises(ClusterError, match="cannot be reached from here.*n1, n2.*/etc/hosts"):
        _ = placement("n1", "n2").address


def test_addresses_in_brackets_are_listened_at_and_completed():
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    arrived: list[Frames] = []

    async def talk() -> None:
        hub = Hub()
        context = zmq.Context()
        try:
            port = hub.router("agents", None, "tcp://[::1]:*", arrived.extend)
            assert is_ipv6(port.address)
            assert complete_address(port.address) == port.address
            client = context.socket(zmq.DEALER)
            client.setsockopt(zmq.IPV6, True)
            client.connect(port.address)
            client.send(b"hello")
            await asyncio.to_thread(wait_for, lambda: arrived)
            client.close()
        finally:
            context.term()
            hub.close()

    asyncio.run(talk())
    assert [frames[-1] for frames in arrived] == [b"hello"]
