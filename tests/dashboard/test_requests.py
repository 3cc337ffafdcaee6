"""Requests that are wrong, too large or too slow: each gets a sentence or nothing, and others continue."""

from __future__ import annotations

import random
import socket

import pytest

from tests.support.dashboard import Dashboard
from tests.support.tiers import per_tier

pytestmark = pytest.mark.leaves_open("the dashboard of the module")

REQUESTS = per_tier(150, 3000)


def send(dashboard: Dashboard, data: bytes) -> bytes:
    """The reply to these bytes."""
    host, port = dashboard.host.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except OSError:  # it was closed while too much was sent
            pass
        received = b""
        try:
            while part := connection.recv(65536):
                received += part
        except ConnectionResetError:
            pass
        return received


def is_well(dashboard: Dashboard) -> None:
    assert dashboard.get("api/summary").status == 200
    assert dashboard.process.poll() is None


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("api/jobs", "first=x"),
        ("api/jobs", "first=1e9"),
        ("api/jobs", "limit=" + "9" * 400),
        ("api/jobs", "limit=-1"),
        ("api/jobs", "first=-1"),
        ("api/jobs", "sort=size"),
        ("api/jobs", "state=DONE"),
        ("api/jobs", "search=a&search=b"),
        ("api/jobs", "&".join(["state=FAILED"] * 60)),
        ("api/timeline", "first=nan"),
        ("api/timeline", "first=inf"),
        ("api/timeline", "first=5&last=4"),
        ("api/timeline", "level=rack"),
        ("api/usage", "bins=-"),
        ("api/job", ""),
        ("api/output", "name=prep&stream=stdin"),
        ("api/poll", "after=yesterday"),
    ],
)
def test_wrong_parameters_are_reported_in_one_sentence(dashboard: Dashboard, path: str, query: str):
    reply = dashboard.raw("GET", f"/{path}?{query}", {"Cookie": dashboard.cookie})
    assert reply.status == 400
    assert reply.error.endswith(".")
    assert len(reply.error) < 300


@pytest.mark.parametrize(
    "path",
    [
        "nothing",
        "api/nothing",
        "api/",
        "assets/../handler.py",
        "assets/%2e%2e/server.py",
        "../../etc/passwd",
        "assets//etc/passwd",
    ],
)
def test_there_is_nothing_at_other_addresses(dashboard: Dashboard, path: str):
    reply = dashboard.raw("GET", f"/{path}", {"Cookie": dashboard.cookie})
    if path == "api/":  # a directory is the page: proxies may put anything before it
        assert reply.headers["content-type"].startswith("text/html")
    else:
        assert (reply.status, list(reply.json)) == (404, ["error"])


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "FOO"])
def test_other_methods_are_refused(dashboard: Dashboard, method: str):
    reply = dashboard.raw(method, "/api/summary", {"Cookie": dashboard.cookie})
    assert reply.status == 405
    assert reply.error


def test_head_has_no_content(dashboard: Dashboard):
    reply = dashboard.raw("HEAD", "/api/summary", {"Cookie": dashboard.cookie})
    assert (reply.status, reply.body) == (200, b"")
    assert int(reply.headers["content-length"]) > 100


def test_headers_that_are_there_twice_are_refused(dashboard: Dashboard):
    request = f"GET /api/summary HTTP/1.1\r\nHost: {dashboard.host}\r\nHost: evil\r\nCookie: {dashboard.cookie}\r\n\r\n"
    assert b" 400 " in send(dashboard, request.encode()).partition(b"\r\n")[0]


def test_answers_without_headers_are_not_given(dashboard: Dashboard):
    assert b" 505 " in send(dashboard, f"GET /api/summary\r\nCookie: {dashboard.cookie}\r\n\r\n".encode())


@pytest.mark.parametrize(
    "line", ["x" * 100_000, "GET /" + "a" * 70_000 + " HTTP/1.1\r\n", "GET / HTTP/1.1\r\n" + "A: b\r\n" * 9000]
)
def test_too_large_requests_are_cut_off(dashboard: Dashboard, line: str):
    first = send(dashboard, line.encode()).partition(b"\r\n")[0]
    assert first == b"" or first.split()[1] in (b"400", b"414", b"431")
    is_well(dashboard)


def test_a_body_that_is_too_large_is_refused_before_it_is_read(ended):
    with Dashboard(ended, "--control") as dashboard:
        head = (
            f"POST /api/act HTTP/1.1\r\nHost: {dashboard.host}\r\nCookie: {dashboard.cookie}\r\nX-QCG-PM: 1\r\n"
            f"Origin: http://{dashboard.host}\r\nContent-Type: application/json\r\n"
        )
        for length, status in (("99999999", b"413"), ("-1", b"411"), ("x", b"411"), ("٣", b"400")):
            answer = send(dashboard, f"{head}Content-Length: {length}\r\n\r\n".encode())
            assert answer.split()[1] in (status, b"411"), length
        chunked = send(dashboard, f"{head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".encode())
        assert chunked.split()[1] == b"411"


def test_a_request_that_never_ends_is_closed(dashboard: Dashboard):
    host, port = dashboard.host.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: ")
        received = b""
        while part := connection.recv(4096):
            received += part
    assert received == b"" or b" 431 " in received or b" 408 " in received


@pytest.mark.sampled
@pytest.mark.timeout(600)
def test_random_bytes_do_no_harm(dashboard: Dashboard):
    choose = random.Random(14)
    whole = f"GET /api/jobs?search=a HTTP/1.1\r\nHost: {dashboard.host}\r\nCookie: {dashboard.cookie}\r\n\r\n".encode()
    for _ in range(REQUESTS):
        data = bytearray(whole)
        for _ in range(choose.randint(1, 8)):
            at = choose.randrange(len(data))
            kind = choose.random()
            if kind < 0.4:
                data[at] = choose.randrange(256)
            elif kind < 0.7:
                del data[at : at + choose.randint(1, 20)]
            else:
                data[at:at] = choose.randbytes(choose.randint(1, 30))
        answer = send(dashboard, bytes(data) + b"\r\n\r\n")
        assert b"Traceback" not in answer
        assert answer == b"" or answer.startswith((b"HTTP/1.1 ", b"HTTP/1.0 ")), (bytes(data), answer)
    is_well(dashboard)
