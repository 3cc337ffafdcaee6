"""Strangers get nothing: without the token, with another one, from other origins, other users of the machine."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.dashboard import Dashboard, Reply
from tests.support.pilot import job, run_requests
from tests.support.second_user import UID, needs_root

DATA = [
    "api/summary",
    "api/jobs",
    "api/job?name=bad",
    "api/output?name=prep",
    "api/events",
    "metrics",
    "",
    "assets/main.js",
]

pytestmark = [pytest.mark.leaves_open("the dashboard of the module"), pytest.mark.cold_start]


def tells_nothing(reply: Reply) -> None:
    assert reply.status in (401, 403)
    assert list(reply.json) == ["error"]
    for secret in ("prep", "bad", "ended"):
        assert secret not in reply.error
    assert "set-cookie" not in reply.headers


@pytest.mark.parametrize("path", DATA)
def test_without_the_token_there_is_nothing(dashboard: Dashboard, path: str):
    tells_nothing(dashboard.raw("GET", f"/{path}"))


@pytest.mark.parametrize("token", ["", "x", "0" * 43])
def test_a_wrong_token_is_not_exchanged(dashboard: Dashboard, token: str):
    tells_nothing(dashboard.raw("GET", f"/?token={token}"))
    tells_nothing(dashboard.raw("GET", f"/?token={token}&token={dashboard.token}"))


def test_the_token_counts_only_in_the_address_of_the_page(dashboard: Dashboard):
    tells_nothing(dashboard.raw("GET", f"/api/summary?token={dashboard.token}"))


def test_token_and_cookie_of_another_run_are_worth_nothing(dashboard: Dashboard, tmp_path: Path):
    tmp_path.chmod(0o700)
    run_requests(tmp_path, [job("elsewhere", "true")])
    with Dashboard(tmp_path) as other:
        assert [line["name"] for line in other.get("api/jobs").json["lines"]] == ["elsewhere"]
        tells_nothing(dashboard.raw("GET", f"/?token={other.token}"))
        tells_nothing(dashboard.raw("GET", "/api/summary", {"Cookie": other.cookie}))
        name = dashboard.cookie.partition("=")[0]
        tells_nothing(dashboard.raw("GET", "/api/summary", {"Cookie": f"{name}={other.cookie.partition('=')[2]}"}))


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "", "localhost@evil.example"])
def test_forged_names_of_the_host_get_nothing(dashboard: Dashboard, host: str):
    for path in ("/", "/api/summary", f"/?token={dashboard.token}"):
        reply = dashboard.raw("GET", path, {"Host": host, "Cookie": dashboard.cookie})
        assert reply.status == 403
        assert "set-cookie" not in reply.headers


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]
)
def test_pages_of_other_origins_read_nothing(dashboard: Dashboard, headers: dict[str, str]):
    tells_nothing(dashboard.raw("GET", "/api/summary", {"Cookie": dashboard.cookie, **headers}))


def test_the_token_is_exchanged_for_a_strict_cookie(dashboard: Dashboard):
    reply = dashboard.raw("GET", f"/?token={dashboard.token}")
    assert reply.status == 303
    assert reply.headers["location"] == "./"
    assert "HttpOnly; SameSite=Strict" in reply.headers["set-cookie"]
    assert dashboard.token not in reply.headers["set-cookie"]
    assert reply.headers["cache-control"] == "no-store"


def test_a_link_on_another_site_leads_to_the_page_without_a_redirect(dashboard: Dashboard):
    reply = dashboard.raw("GET", f"/?token={dashboard.token}", {"Sec-Fetch-Site": "cross-site"})
    assert reply.status == 200
    assert b'content="0;url=./"' in reply.body
    assert dashboard.token.encode() not in reply.body


@pytest.mark.parametrize("path", ["/", "/api/summary", "/nothing", "/api/job?name=none"])
def test_every_answer_has_the_headers_that_keep_a_browser_safe(dashboard: Dashboard, path: str):
    for headers in ({}, {"Cookie": dashboard.cookie}):
        reply = dashboard.raw("GET", path, headers)
        policy = reply.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'self'" in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in reply.headers


def test_the_token_is_in_no_argument_and_no_file(dashboard: Dashboard, ended: Path):
    secrets = (dashboard.token.encode(), dashboard.cookie.partition("=")[2].encode())
    pid = dashboard.process.pid
    places = [Path(f"/proc/{pid}/cmdline"), Path(f"/proc/{pid}/environ")]
    places += [path for path in ended.rglob("*") if path.is_file()]
    for place in places:
        content = place.read_bytes()
        assert not any(secret in content for secret in secrets), place


def test_the_dashboard_listens_on_the_loopback_interface_alone(dashboard: Dashboard):
    port = int(dashboard.host.rpartition(":")[2])
    with socket.socket(socket.AF_INET) as other:
        other.bind(("127.0.0.2", port))  # would fail if it listened on all addresses


@pytest.fixture
def private(tmp_path: Path) -> Path:
    directory = tmp_path / "private"
    directory.mkdir(mode=0o700)
    return directory


def test_only_its_owner_can_use_the_socket(ended: Path, private: Path):
    path = private / "d.sock"
    with Dashboard(ended, "--socket", path) as dashboard:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert dashboard.get("api/summary").status == 200
        tells_nothing(dashboard.raw("GET", "/api/summary"))
        tells_nothing(dashboard.raw("GET", "/api/summary", {"Host": "evil.example", "Cookie": dashboard.cookie}))
    assert not path.exists()


CONNECT = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print('connected')"


@needs_root
@pytest.mark.parametrize("opened", [False, True])
def test_another_user_cannot_open_the_socket(ended: Path, private: Path, opened: bool):
    """Even when the directory is opened for others, the socket itself is closed to them."""
    path = private / "d.sock"
    with Dashboard(ended, "--socket", path):
        if opened:
            for directory in (private, *private.parents):
                if directory != Path("/") and os.stat(directory).st_uid == os.geteuid():
                    directory.chmod(directory.stat().st_mode | 0o755)
        command = [
            "setpriv",
            "--reuid",
            str(UID),
            "--regid",
            str(UID),
            "--clear-groups",
            "/usr/bin/python3",
            "-c",
            CONNECT,
        ]
        done = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=60)
        assert "connected" not in done.stdout
        assert "PermissionError" in done.stderr
        as_owner = subprocess.run(
            [sys.executable, "-c", CONNECT, str(path)], capture_output=True, text=True, timeout=60
        )
        assert as_owner.stdout == "connected\n"
