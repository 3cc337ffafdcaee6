"""Notifications of remote hosts: from the far notifier to the listener of the manager."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.executors.ssh.notifications import NotificationListener, manager_address, ssh_settings
from qcg.pilotjob.host.remote import notifier
from qcg.pilotjob.host.remote.layout import Layout, remove
from tests.support.waiting import wait_for

WIZARD = HostConfig("wizard", ("wizard",), manager_address="127.0.0.1")
FAR = [sys.executable, "-m", "qcg.pilotjob.host.remote"]


def listening(test: Callable[[NotificationListener, list[str]], Awaitable[None]]) -> None:
    async def within() -> None:
        received: list[str] = []
        listener = NotificationListener(received.append)
        listener.start()
        try:
            await test(listener, received)
        finally:
            listener.close()

    asyncio.run(within())


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "run/.service").mkdir(parents=True, mode=0o700)
    (tmp_path / "run").chmod(0o700)
    return tmp_path / "run"


async def send(run_dir: Path, settings: Mapping[str, object] | None) -> int:
    (run_dir / ".service/notify.json").write_text(json.dumps(settings))
    process = await asyncio.create_subprocess_exec(*FAR, "notify", str(run_dir), env=dict(os.environ))
    return await process.wait()


def test_a_notification_names_its_host(run_dir: Path):
    async def test(listener: NotificationListener, received: list[str]) -> None:
        assert await send(run_dir, listener.settings(WIZARD)) == 0
        assert received == ["wizard"]

    listening(test)


def test_a_notification_with_another_key_is_ignored(run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    async def test(listener: NotificationListener, received: list[str]) -> None:
        settings = {**listener.settings(WIZARD), "key": "0" * 64}
        assert not await asyncio.to_thread(notifier._send_message, settings)
        assert received == []

    listening(test)


@pytest.mark.parametrize("sent", [b"\n", b"x" * 5000, b"\xff\xfe \n", b"0 {}\n", b""])
def test_noise_on_the_port_harms_nothing(sent: bytes):
    async def test(listener: NotificationListener, received: list[str]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(sent)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        assert received == []
        assert await asyncio.to_thread(notifier._send_message, listener.settings(WIZARD))
        assert received == ["wizard"]

    listening(test)


def test_changes_during_a_notification_start_exactly_one_more(run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    started: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda argv, **options: started.append(argv))
    layout = Layout(str(run_dir))
    (run_dir / ".service/notify.json").write_text(json.dumps({"how": "messages"}))
    notifier.notify(layout, ["1.1"])
    notifier.notify(layout, ["2.1"])
    assert len(started) == 1
    remove(notifier._pending(layout))  # the process begins to send
    notifier.notify(layout, ["3.1"])
    assert len(started) == 2


def test_without_tracking_nothing_is_started(run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subprocess, "Popen", lambda argv, **options: pytest.fail("a process was started"))
    (run_dir / ".service/notify.json").write_text("null")
    notifier.notify(Layout(str(run_dir)), ["1.1"])


def test_a_notification_by_ssh_is_one_command(run_dir: Path, tmp_path: Path):
    proof = tmp_path / "called"
    settings = {"how": "ssh", "command": ["sh", "-c", f"touch {proof}"]}
    assert asyncio.run(send(run_dir, settings)) == 0
    wait_for(proof.exists)


def test_the_command_by_ssh_polls_the_host_in_the_run_of_the_manager(tmp_path: Path):
    config = HostConfig("wizard", ("wizard",), manager_address="boss@citadel")
    command = ssh_settings(config, tmp_path / "run's")["command"]
    assert command[:3] == ["ssh", "-oBatchMode=yes", "-oConnectTimeout=10"]
    assert command[-2] == "boss@citadel"
    assert command[-1].endswith(f"""-m qcg.pilotjob.cli poll --path '{tmp_path}/run'"'"'s' --host wizard""")
    assert manager_address(config) == "citadel"


class SlowNetwork:
    """A clock, and a command that uses up its timeout: the manager does not respond."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, timeout: float) -> int:
        self.now += timeout
        raise subprocess.TimeoutExpired("ssh", timeout)


def test_an_unanswered_notification_is_given_up_within_a_minute(run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    network = SlowNetwork()
    process = SimpleNamespace(wait=lambda timeout=0.0: network.wait(timeout) if timeout else 0, kill=lambda: None)
    monkeypatch.setattr(notifier, "time", network)
    monkeypatch.setattr(subprocess, "Popen", lambda argv, **options: process)
    (run_dir / ".service/notify.json").write_text(json.dumps({"how": "ssh", "command": ["ssh", "citadel", "true"]}))
    assert notifier.main(str(run_dir)) == 0
    assert 30 < network.now < 60
