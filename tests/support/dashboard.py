"""A dashboard as its owner and as strangers see it: real processes and requests."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from tests.support.pilot import start
from tests.support.tiers import per_tier

PATIENCE = 60.0


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json["error"])


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self._path)


class Dashboard:
    """`qcg-pm dashboard` for a run. Requests have its cookie by default."""

    def __init__(self, directory: Path, *options: str | Path) -> None:
        self.process = start("qcg-pm", "dashboard", directory, *options)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()
        self.address = line.strip()
        parts = urlsplit(self.address)
        self.host = parts.netloc
        self.token = parse_qs(parts.query)["token"][0]
        self.socket = str(options[options.index("--socket") + 1]) if "--socket" in options else ""
        self.cookie = self.raw("GET", f"/?token={self.token}").headers["set-cookie"].partition(";")[0]

    def connection(self) -> http.client.HTTPConnection:
        if self.socket:
            return UnixConnection(self.socket)
        return http.client.HTTPConnection(self.host, timeout=per_tier(60, 600))  # runs of the long tier are large

    def raw(self, method: str, target: str, headers: dict[str, str] | None = None, body: bytes | None = None) -> Reply:
        """The reply to a request with exactly these headers; a Host header is added if none is given."""
        connection = self.connection()
        try:
            given = {"Host": self.host, **(headers or {})}
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in given.items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())
        finally:
            connection.close()

    def get(self, path: str, **parameters: Any) -> Reply:
        query = urlencode(parameters, doseq=True, quote_via=quote)
        return self.raw("GET", f"/{path}?{query}", {"Cookie": self.cookie})

    def act(self, action: str, *names: str, **headers: str) -> Reply:
        """An action as the page sends it; `headers` with underscores replace those of the page."""
        given = {
            "Cookie": self.cookie,
            "Origin": f"http://{self.host}",
            "X-QCG-PM": "1",
            "Content-Type": "application/json",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        body = json.dumps({"action": action, "names": names}).encode()
        return self.raw("POST", "/api/act", {name: value for name, value in given.items() if value}, body)

    def memory(self) -> float:
        """The peak memory of the dashboard in megabytes."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        raise AssertionError

    def end(self, number: int = signal.SIGTERM) -> subprocess.CompletedProcess[str]:
        """End the dashboard, and return its output since the start."""
        self.process.send_signal(number)
        try:
            out, err = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # a hanging dashboard prints its stack
            _, err = self.process.communicate()
            raise AssertionError(f"the dashboard did not end: {err}") from None
        return subprocess.CompletedProcess(self.process.args, self.process.returncode, out, err)

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.end()


class Events:
    """The stream of events of a dashboard, as a browser reads it."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._connection = dashboard.connection()
        self._connection.request("GET", "/api/events", headers={"Cookie": dashboard.cookie})
        self._response = self._connection.getresponse()
        assert self._response.status == 200, self._response.read()
        assert self._response.getheader("Content-Type") == "text/event-stream"

    def next(self) -> Any:
        """The next summary."""
        event = ""
        while True:
            line = self._response.readline().decode().rstrip("\n")
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            elif line.startswith("data: ") and event == "summary":
                return json.loads(line.removeprefix("data: "))

    def close(self) -> None:
        self._response.close()
        self._connection.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def copies_in(directory: Path) -> list[str]:
    """Files that dashboards and other displays have left in a temporary directory."""
    return [name for name in os.listdir(directory) if name.startswith("qcg-pm-")]
