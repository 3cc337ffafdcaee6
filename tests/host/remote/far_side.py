"""Drives the far side of remote hosts as a manager does, without ssh: all its processes are on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qcg.pilotjob.host.process_tree import Snapshot, read_process

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src"
TIMEOUT = 60.0
RUN = "qcg-run/test"
INSTANCE = secrets.token_hex(16)
"""Id of the run: processes of jobs are found by it, so no other process of this machine may have the same."""
LOG = "log.20180418T025047Z"


class FarSide:
    """One login host with the run directory in `home`."""

    PAUSE = 0.02
    """Seconds between two polls of `ended`."""

    def __init__(
        self,
        home: Path,
        *,
        host: str = "wizard",
        command: list[str] | None = None,
        source: str = str(SOURCE),
        instance: str = INSTANCE,
    ) -> None:
        self.home = home
        self.instance = instance
        self.host = host
        self.command = command or [sys.executable, str(SOURCE / "qcg/pilotjob/host/remote/__main__.py")]
        self.source = source
        self.run_dir = home / RUN
        self.service = self.run_dir / ".service"
        self.log = self.run_dir / "log"
        self.epoch: int | None = None
        self.number = 0

    @property
    def environment(self) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("QCG_PM_")},
            "HOME": str(self.home),
            "PYTHONPATH": self.source,
            "PYTHONDONTWRITEBYTECODE": "1",
            "QCG_PM_REMOTE_HOST_NAME": self.host,
        }

    def popen(self, subcommand: str, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.command, subcommand, RUN, *arguments],
            env=self.environment,
            cwd=self.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def request(self, do: str, **fields: Any) -> dict[str, Any]:
        self.number += 1
        request = {"do": do, "n": self.number, "marker": secrets.token_hex(16), "epoch": self.epoch, **fields}
        if request["epoch"] is None:
            del request["epoch"]
        return request

    def raw_call(self, do: str, payload: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        """The reply to a separate command, and the bytes after it."""
        request = self.request(do, **fields)
        with self.popen(do) as process:
            out, err = process.communicate(encode(request, payload), timeout=TIMEOUT)
        assert out.startswith(request["marker"].encode()), (out, err)
        return decode(out, request["marker"])

    def call(self, do: str, payload: bytes = b"", **fields: Any) -> dict[str, Any]:
        """The reply to a separate command, which must succeed."""
        reply, rest = self.raw_call(do, payload, **fields)
        assert reply["ok"], reply
        assert not rest
        return reply

    def init(self, **fields: Any) -> dict[str, Any]:
        reply = self.call("remote-init", instance=self.instance, **{"uuid": "u", "log": LOG, **fields})
        self.epoch = reply["epoch"]
        return reply

    def submit(self, *launches: list[Any]) -> dict[str, Any]:
        results: dict[str, Any] = self.call("jobs-submit", launches=list(launches))["results"]
        return results

    def poll(self, **fields: Any) -> dict[str, Any]:
        return self.call("jobs-poll", **{"acks": {}, "full": True, **fields})

    def ends(self) -> dict[str, list[Any]]:
        """The recorded ends by id: at, exit code, reason, message, pid, started."""
        return ends_in(self.poll()["reports"])

    def ended(self, *ids: str) -> list[list[Any]]:
        """The ends of these attempts, once all are recorded."""
        ends = until(lambda: found if set(ids) <= set(found := self.ends()) else None, f"the ends of {ids}", self.PAUSE)
        return [ends[id] for id in ids]

    def status(self, path: str) -> dict[str, str]:
        """The values of a job.status; empty before the supervisor has written it."""
        try:
            lines = (self.log / "job" / path / "job.status").read_text().splitlines()
        except FileNotFoundError:
            return {}
        return dict(line.split("=", 1) for line in lines if line)

    def supervisor_pids(self) -> list[int]:
        """The supervisors of this run directory and host."""
        found = []
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                is_ours = b"supervise" in words and str(self.run_dir).encode() in words
                if is_ours and f"QCG_PM_REMOTE_HOST_NAME={self.host}".encode() in environment:
                    found.append(pid)
        return found

    def supervisor(self) -> int:
        return until(lambda: (self.supervisor_pids() or [0])[0], "a supervisor")

    def kill_everything(self) -> None:
        """End what a test has left: supervisors, and processes of jobs, which have the id of the run in a variable."""
        for pid in self.supervisor_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in Snapshot().marked_with(INSTANCE + "."):
            with contextlib.suppress(OSError):
                if str(self.run_dir).encode() in Path(f"/proc/{process.pid}/environ").read_bytes():
                    os.kill(process.pid, signal.SIGKILL)


class Channel:
    """An open `remote-serve`."""

    def __init__(self, far: FarSide) -> None:
        self.far = far
        self.process = far.popen("remote-serve")
        self.marker = secrets.token_hex(16)
        self.events: list[dict[str, Any]] = []
        self._replies: dict[int, tuple[dict[str, Any], bytes]] = {}
        self._buffer = b""

    def send(self, do: str, payload: bytes = b"", **fields: Any) -> int:
        request = self.far.request(do, **{"marker": self.marker, **fields})
        assert self.process.stdin is not None
        self.process.stdin.write(encode(request, payload))
        self.process.stdin.flush()
        return self.far.number

    def call(self, do: str, payload: bytes = b"", **fields: Any) -> dict[str, Any]:
        reply, _ = self.raw_call(do, payload, **fields)
        assert reply["ok"], reply
        return reply

    def raw_call(self, do: str, payload: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        number = self.send(do, payload, **fields)
        self.until(lambda: number in self._replies, f"the reply to {do}")
        return self._replies.pop(number)

    def init(self, **fields: Any) -> dict[str, Any]:
        reply = self.call("remote-init", instance=self.far.instance, **{"uuid": "u", "log": LOG, **fields})
        self.far.epoch = reply["epoch"]
        return reply

    def records(self) -> list[Any]:
        return [record for event in self.events if event["event"] == "records" for record in event["records"]]

    def ends(self) -> dict[str, list[Any]]:
        return {record[2][0]: record[2][1:] for record in self.records() if record[0] == "e"}

    def until(self, predicate: Any, what: str) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not predicate():
            assert time.monotonic() < deadline, f"timed out while waiting for {what}; {self.events}"
            self.receive(0.5)

    def receive(self, timeout: float) -> None:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            return
        data = os.read(self.process.stdout.fileno(), 1 << 20)
        assert data, self.process.stderr and self.process.stderr.read()
        self._buffer += data
        while b"\n" in self._buffer:
            header, _, rest = self._buffer.partition(b"\n")
            marker, json_length, payload_length = header.split()
            assert marker == self.marker.encode()
            size = int(json_length) + int(payload_length)
            if len(rest) < size:
                return
            head, payload = json.loads(rest[: int(json_length)]), rest[int(json_length) : size]
            self._buffer = rest[size:]
            if "event" in head:
                self.events.append(head)
            else:
                self._replies[head["n"]] = (head, payload)

    def close(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(TIMEOUT)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@contextlib.contextmanager
def channel(far: FarSide) -> Iterator[Channel]:
    opened = Channel(far)
    try:
        yield opened
    finally:
        opened.process.kill()
        opened.close()


def encode(request: dict[str, Any], payload: bytes = b"") -> bytes:
    text = json.dumps(request).encode()
    return b"%d %d\n" % (len(text), len(payload)) + text + payload


def decode(out: bytes, marker: str) -> tuple[dict[str, Any], bytes]:
    header, _, rest = out.partition(b"\n")
    received_marker, json_length, _ = header.split()
    assert received_marker == marker.encode()
    head = json.loads(rest[: int(json_length)])
    return head, rest[int(json_length) :]


def ends_in(reports: dict[str, list[Any]]) -> dict[str, list[Any]]:
    found = {}
    for records in reports.values():
        for kind, _, body in records:
            if kind == "e":
                assert body[0] not in found, "an end was recorded twice"
                found[body[0]] = body[1:]
    return found


def launch(id: str, *argv: str, **other: Any) -> list[Any]:
    """A launch as JSON. The job has the name `name` and the attempt number `number`."""
    name, number = other.pop("name", f"job-{id}"), other.pop("number", 1)
    fields = {
        "argv": list(argv),
        "env": {"QCG_PM_STEP_ID": f"{INSTANCE}.{id}"},
        "unset": [],
        "wd": f"work/1/{name}",
        "stdin": None,
        "stdout": None,
        "stderr": None,
        "cores": None,
        "wall_time": None,
        "setup": False,
        "grant": [["wizard", [0], []]],
        "files": {},
        "lane": "",
        "output": "",
        "keep_output": False,
        "remote": [f"job/1/{name}/{number:02d}", "1", name, number, [], [], {}, [0, 1, 0, 0, None]],
        "stream": False,
        "memory": 0,
    }
    assert set(other) <= set(fields)
    fields.update(other)
    return [id, *fields.values()]


def script(id: str, text: str, **other: Any) -> list[Any]:
    return launch(id, "/bin/sh", "-c", text, **other)


def until(predicate: Any, what: str, pause: float = 0.02) -> Any:
    """The first true value of `predicate`: for changes made by another process."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        value = predicate()
        if value:
            return value
        assert time.monotonic() < deadline, f"timed out while waiting for {what}"
        select.select([], [], [], pause)


def alive(pid: int) -> bool:
    process = read_process(pid)
    return process is not None and not process.dead


def build_zipapp(path: Path) -> Path:
    """The far side as one file, as a manager sends it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "__main__.py", "import sys\nfrom qcg.pilotjob.host.remote.__main__ import main\nsys.exit(main())\n"
        )
        archive.writestr("qcg/__init__.py", "")
        archive.writestr("qcg/pilotjob/__init__.py", "")
        for file in sorted((SOURCE / "qcg/pilotjob/host").rglob("*.py")):
            archive.write(file, file.relative_to(SOURCE).as_posix())
    return path
