"""Ports of the network interface, and errors when they cannot be opened."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.pilot import run
from tests.support.serving import served


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@pytest.fixture
def free() -> int:
    """The first of three ports in a row that are free."""
    for first in range(20_000, 30_000, 7):
        with ExitStack() as stack:
            try:
                for port in range(first, first + 3):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
        return first
    pytest.fail("no free ports")


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_can_be_chosen_for_requests_and_for_events(tmp_path: Path, free: int):
    with served(tmp_path, "--nodes", "1", "--net-port", str(free), "--net-pub-port", str(free + 1)) as service:
        assert service.contact.address == f"tcp://127.0.0.1:{free}"
        assert service.contact.publisher == f"tcp://127.0.0.1:{free + 1}"
        assert service.ask("resourcesInfo")["code"] == 0


def test_a_range_is_searched_for_free_ports(tmp_path: Path, free: int):
    with socket.create_server(("127.0.0.1", free + 1)):
        options = ("--net-port-min", str(free), "--net-port-max", str(free + 2))
        with served(tmp_path, "--nodes", "1", *options) as service:
            ports = {port_of(service.contact.address), port_of(service.contact.publisher)}
            assert ports == {free, free + 2}


def test_without_options_any_port_is_taken(tmp_path: Path):
    with served(tmp_path, "--nodes", "1") as service:
        assert port_of(service.contact.address) != port_of(service.contact.publisher)


@pytest.mark.parametrize("option", ["--net-port", "--net-pub-port"])
def test_a_port_in_use_is_an_error_and_no_run_directory_is_created(tmp_path: Path, taken: int, option: str):
    done = run("qcg-pm-service", option, str(taken), "--wd", tmp_path, "--id", "x", "--nodes", "1")
    assert done.returncode == 2
    assert f"the network interface cannot be opened: tcp://127.0.0.1:{taken}: Address already in use" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_port_range_in_use_is_an_error(tmp_path: Path, taken: int):
    options = ("--net-port-min", str(taken), "--net-port-max", str(taken))
    done = run("qcg-pm-service", *options, "--wd", tmp_path, "--nodes", "1")
    assert done.returncode == 2
    assert f"tcp://127.0.0.1:{taken}-{taken}: none of these ports is free" in done.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--net-port", "0"), "0 is not in the range 1<=x<=65535"),
        (("--net-port", "many"), "'many' is not a whole number"),
        (("--net-port-min", "5000", "--net-port-max", "4000"), "--net-port-min 5000 is above --net-port-max 4000"),
        ((), "nothing to do"),
    ],
)
def test_invalid_port_options_are_errors(tmp_path: Path, options: tuple[str, ...], sentence: str):
    done = run("qcg-pm-service", *options, "--wd", tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_a_resumed_manager_keeps_a_fixed_port(tmp_path: Path, free: int):
    with served(tmp_path, "--nodes", "1", "--net-port", str(free)) as service:
        service.kill()
        service.resume()
        assert port_of(service.contact.address) == free
        service.kill()
        service.resume("--net-port", str(free + 1))
        assert port_of(service.contact.address) == free + 1


def test_a_port_in_use_is_reported_once_with_a_remedy(tmp_path: Path, taken: int):
    done = run("qcg-pm-service", "--net-port", str(taken), "--wd", tmp_path, "--nodes", "1")
    assert done.stderr.count(str(taken)) == 1
    assert "give another port, or none for any free one" in done.stderr
