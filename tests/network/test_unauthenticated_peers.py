"""Peers without the keys of the run get no answer, and the log has the reason."""

from __future__ import annotations

import contextlib
import random
import re
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from qcg.pilotjob.description.requests import REQUESTS
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.auth_log import PAUSE
from qcg.pilotjob.wire.contact import ClientsContact
from qcg.pilotjob.wire.keys import make_keys
from tests.support.pilot import job
from tests.support.serving import NO_ANSWER, PATIENCE, Bare, Served, served
from tests.support.waiting import wait_for

MARK = "connections were not let in"
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("run"), "--nodes", "1") as service:
        yield service


@pytest.fixture
def new_lines(service: Served) -> Callable[[], str]:
    """The lines of the log since the start of the test."""
    before = len(service.log())
    return lambda: service.log()[before:]


def told(lines: str) -> int:
    """The number of connections that these lines of the log report."""
    return sum(map(int, re.findall(rf"(\d+) {MARK}", lines)))


@pytest.fixture
def all_told(service: Served) -> None:
    """Of earlier strangers the log has said all there is to say, which takes it a moment: it has said nothing for two
    pauses, in which the manager was there all the time to say it."""
    said, since = service.log(), time.monotonic()

    def quiet() -> bool:
        nonlocal said, since
        asked = time.monotonic()
        service.ask("resourcesInfo")
        if time.monotonic() - asked > PAUSE / 2 or service.log() != said:
            said, since = service.log(), time.monotonic()
        return time.monotonic() - since > 2 * PAUSE

    wait_for(quiet, what="the log to be quiet")


def try_to_send(client: Bare, *frames: bytes) -> None:
    """A refused peer has no connection to send to, and a blocking send would wait forever."""
    with contextlib.suppress(zmq.Again):
        client.socket.send_multipart(frames, zmq.NOBLOCK)


def keys_of(found: ClientsContact, **others: str) -> ClientsContact:
    return ClientsContact(
        found.address,
        found.publisher,
        others.get("server_key", found.server_key),
        others.get("client_public", found.client_public),
        others.get("client_secret", found.client_secret),
    )


def no_key(found: ClientsContact) -> None:
    return None


def wrong_client_key(found: ClientsContact) -> ClientsContact:
    other = make_keys()
    return keys_of(found, client_public=other.client_public, client_secret=other.client_secret)


def wrong_server_key(found: ClientsContact) -> ClientsContact:
    return keys_of(found, server_key=make_keys().server_public)


def keys_of_another_run(found: ClientsContact) -> ClientsContact:
    other = make_keys()
    return ClientsContact(found.address, found.publisher, other.server_public, other.client_public, other.client_secret)


def public_key_without_its_secret(found: ClientsContact) -> ClientsContact:
    return keys_of(found, client_secret=make_keys().client_secret)


Stranger = Callable[[ClientsContact], ClientsContact | None]
STRANGERS: dict[Stranger, str] = {
    no_key: "without keys",
    wrong_client_key: "with a wrong client key",
    wrong_server_key: "with a wrong server key",
    keys_of_another_run: "with a wrong server key",
    public_key_without_its_secret: "with a wrong server key",
}


@pytest.mark.parametrize("stranger", STRANGERS, ids=lambda stranger: stranger.__name__)
def test_an_unauthenticated_client_gets_no_answer_and_the_log_has_the_reason(
    service: Served, new_lines: Callable[[], str], stranger: Stranger
):
    with Bare(service.contact.address, stranger(service.contact), zmq.DEALER) as client:
        for name in REQUESTS:
            try_to_send(client, b"", b'{"request": "%s", "jobNames": ["a"], "jobs": []}' % name.encode())
        assert client.receive(NO_ANSWER) is None
        wait_for(lambda: STRANGERS[stranger] in new_lines(), what="a line in the log")
    assert MARK in new_lines()
    assert service.ask("resourcesInfo")["code"] == 0


@pytest.mark.parametrize("stranger", STRANGERS, ids=lambda stranger: stranger.__name__)
def test_an_unauthenticated_subscriber_receives_no_event(
    service: Served, new_lines: Callable[[], str], stranger: Stranger
):
    with Bare(service.contact.publisher, stranger(service.contact), zmq.SUB) as subscriber:
        subscriber.socket.setsockopt_string(zmq.SUBSCRIBE, "")
        wait_for(lambda: STRANGERS[stranger] in new_lines(), what="a line in the log")
        with service.subscriber("JFI") as owner:
            service.submit(job(f"seen-{stranger.__name__}", "true"))
            assert owner.receive()
        assert subscriber.receive(0.2) is None


def test_the_port_of_agents_is_closed_to_unauthenticated_peers(service: Served, new_lines: Callable[[], str]):
    found = contact.read(service.run_dir)
    assert found is not None
    assert found.agents is not None
    with Bare(found.agents.address, service.contact, zmq.DEALER) as client:
        try_to_send(client, b"\x80")
        wait_for(lambda: MARK in new_lines(), what="a line in the log")
        assert client.receive(0.2) is None


def connect(address: str) -> socket.socket:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def push(connection: socket.socket, data: bytes) -> None:
    """Send as much as the manager accepts."""
    with contextlib.suppress(OSError):
        connection.sendall(data)


RAW = {
    "another protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "random bytes": random.Random(7).randbytes(1_000_000),
    "a greeting of version 1": b"\x01\x00" + b"\x05hello" * 4,
    "half a greeting": GREETING[:10],
    "a greeting and random bytes": GREETING
    + b"CURVE".ljust(20, b"\0")
    + bytes(32)
    + random.Random(8).randbytes(10_000),
    "nothing at all": b"",
}


@pytest.mark.parametrize("data", RAW.values(), ids=RAW)
def test_bytes_that_are_no_handshake_are_refused_and_logged(service: Served, new_lines: Callable[[], str], data: bytes):
    with connect(service.contact.address) as connection:
        push(connection, data)
        assert service.ask("resourcesInfo")["code"] == 0
    wait_for(lambda: MARK in new_lines(), what="a line in the log")


@pytest.mark.parametrize("mechanism", [b"CURVE", b"NULL"])
def test_frames_of_a_hundred_megabytes_are_not_kept(service: Served, new_lines: Callable[[], str], mechanism: bytes):
    service.forget_most_memory()
    before = service.memory()
    frame = b"\x06" + (100 << 20).to_bytes(8, "big")
    for _ in range(5):
        with connect(service.contact.address) as connection:
            push(connection, GREETING + mechanism.ljust(20, b"\0") + bytes(32) + frame)
            chunk = bytes(1 << 20)
            for _ in range(100):
                push(connection, chunk)
    assert service.ask("resourcesInfo")["code"] == 0
    assert service.most_memory() < before + 20
    wait_for(lambda: told(new_lines()) >= 5, what="all of them to be told")


@pytest.mark.usefixtures("all_told")
def test_thousands_of_connections_leave_only_few_lines_in_the_log(service: Served, new_lines: Callable[[], str]):
    service.ask("resourcesInfo")
    descriptors = Path(f"/proc/{service.process.pid}/fd")
    open_before, before = len(list(descriptors.iterdir())), service.memory()
    for number in range(3000):
        with connect(service.contact.address) as connection:
            push(connection, (b"", GREETING[:10], b"GET / HTTP/1.1\r\n\r\n")[number % 3])
    assert service.ask("resourcesInfo")["code"] == 0
    wait_for(lambda: len(list(descriptors.iterdir())) <= open_before, what="the connections to be closed")
    wait_for(lambda: told(new_lines()) == 3000, what="all of them to be told")
    assert new_lines().count(MARK) < 60
    assert service.memory() < before + 10


def test_unauthenticated_connections_that_use_all_descriptors_do_not_end_the_manager(tmp_path: Path):
    with served(tmp_path, "--nodes", "1") as service, service.client() as owner:
        owner.ask("resourcesInfo")
        resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, (100, 100))
        with contextlib.ExitStack() as strangers:
            for _ in range(200):
                strangers.enter_context(connect(service.contact.address))
            assert owner.ask("submit", jobs=[job("a", "true")])["code"] == 0
            wait_for(lambda: "(SUCCEED)" in (service.run_dir / "jobs.report").read_text(), what="the end of the job")
        assert service.ask("resourcesInfo")["code"] == 0


def test_jobs_have_the_limit_of_open_files_of_the_manager(tmp_path: Path):
    given = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (777, given[1]))
    try:
        with served(tmp_path, "--nodes", "1") as service:
            limits = resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE)
            service.submit(job("a", "sh", "-c", "ulimit -Sn; ulimit -Hn", stdout="told"))
            service.wait("a", "SUCCEED")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, given)
    assert limits == (given[1], given[1])
    assert (tmp_path / "told").read_text().split() == ["777", str(given[1])]


@pytest.mark.usefixtures("all_told")
def test_the_owner_is_never_refused(service: Served, new_lines: Callable[[], str]):
    for _ in range(20):
        service.ask("resourcesInfo")
    with connect(service.contact.address) as connection:
        push(connection, b"GET / HTTP/1.1\r\n\r\n")
    wait_for(lambda: MARK in new_lines(), what="a line in the log")
    assert f"1 {MARK}: 1 that did not speak ZeroMQ" in new_lines()
