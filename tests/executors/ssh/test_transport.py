"""Requests to the far side, with a stub of ssh."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.executors.ssh import transport
from qcg.pilotjob.executors.ssh.commands import Control
from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.executors.ssh.errors import ConnectionProblem, SubCommandRefused
from qcg.pilotjob.executors.ssh.transport import OneShotTransport, RemoteError, ServeTransport
from qcg.pilotjob.executors.ssh.zipapp import far_program
from qcg.pilotjob.host.remote.serve import SILENCE as FAR_SILENCE
from tests.support.fake_ssh import FakeSsh

INIT = {"do": "remote-init", "instance": "i1", "uuid": "u1", "log": "log.x", "notify": None, "batch": None}


def test_both_ends_of_a_channel_agree_on_heartbeats():
    """A lost heartbeat ends no channel, and a manager closes a silent channel before its far side exits."""
    assert 2 * transport.BEAT_INTERVAL <= transport.SILENCE < FAR_SILENCE
    assert 3 * transport.BEAT_INTERVAL <= FAR_SILENCE


class Recorder:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.problems: list[ConnectionProblem] = []
        self.over = asyncio.Event()

    def event(self, event: dict[str, Any]) -> None:
        self.events.append(event)

    def ended(self, problem: ConnectionProblem) -> None:
        self.problems.append(problem)
        self.over.set()


@pytest.fixture
def far(tmp_path: Path) -> FakeSsh:
    return FakeSsh(tmp_path / "far")


def host(far: FakeSsh, **values: Any) -> HostConfig:
    return HostConfig("wizard", ("wizard",), ssh=tuple(far.command), **values)


def one_shot(far: FakeSsh, **values: Any) -> OneShotTransport:
    return OneShotTransport(host(far, **values), "wizard", "qcg-run/r", Control("no"))


def serve(far: FakeSsh, observer: Recorder, **values: Any) -> ServeTransport:
    return ServeTransport(host(far, **values), "wizard", "qcg-run/r", Control("no"), observer)


def test_the_far_program_is_the_same_for_the_same_sources_and_runs_alone(tmp_path):
    far_program.cache_clear()
    first = far_program()
    far_program.cache_clear()
    assert far_program() == first
    path = tmp_path / "far.pyz"
    path.write_bytes(first.content)
    shown = subprocess.run([sys.executable, "-IS", path], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "usage: qcg-pm-remote SUBCOMMAND RUN" in shown.stderr


def test_the_same_version_of_python_loads_the_far_program_from_its_bytecode(tmp_path: Path):
    sources, program = zipfile.ZipFile(io.BytesIO(far_program().content)), tmp_path / "program.pyz"
    with zipfile.ZipFile(program, "w") as writer:
        for name in sources.namelist():
            # Sources that cannot be compiled: only the bytecode can be used.
            writer.writestr(name, sources.read(name) if name.endswith(".pyc") else b"no python")
    usage = subprocess.run([sys.executable, "-IS", program], capture_output=True, text=True, timeout=60, check=False)
    assert (usage.returncode, usage.stderr[:22]) == (2, "usage: qcg-pm-remote S")


def test_another_version_of_python_loads_the_far_program_from_its_sources(tmp_path: Path):
    whole, program = zipfile.ZipFile(io.BytesIO(far_program().content)), tmp_path / "program.pyz"
    with zipfile.ZipFile(program, "w") as writer:
        for name in whole.namelist():
            content = whole.read(name)
            writer.writestr(name, b"\0\0" + content[2:] if name.endswith(".pyc") else content)
    usage = subprocess.run([sys.executable, "-IS", program], capture_output=True, text=True, timeout=60, check=False)
    assert (usage.returncode, usage.stderr[:22]) == (2, "usage: qcg-pm-remote S")


def test_a_command_sends_the_program_once_and_answers(far):
    async def scenario() -> None:
        transport = one_shot(far)
        first = await transport.call(INIT)
        assert first.head["run_dir"] == str(far.home / "qcg-run/r")
        kept = list((far.home / ".qcg-pm").iterdir())
        assert [path.name for path in kept] == [f"{far_program().digest}.pyz"]
        assert kept[0].stat().st_mode & 0o777 == 0o600
        written = kept[0].stat().st_ino
        second = await transport.call(INIT)
        assert second.head["epoch"] == first.head["epoch"] + 1
        assert kept[0].stat().st_ino == written

    asyncio.run(scenario())


def test_noise_of_login_scripts_before_the_answer_is_skipped(far):
    far.set_banner("Welcome!\n 12 0\n" + "x" * 100_000 + "\nno end of line")

    async def scenario() -> None:
        assert (await one_shot(far).call(INIT)).head["ok"]

    asyncio.run(scenario())


def test_a_login_shell_runs_the_same_commands(far):
    (far.home / ".bash_profile").write_text("echo hello from the profile\nexport FROM_PROFILE=1\n")

    async def scenario() -> None:
        assert (await one_shot(far, login_shell=True).call(INIT)).head["ok"]

    asyncio.run(scenario())


def test_an_error_has_the_sentence_of_the_far_side(far):
    async def scenario() -> None:
        await one_shot(far).call(INIT)
        with pytest.raises(RemoteError, match="belongs to another run") as error:
            await one_shot(far).call({**INIT, "instance": "i2"})
        assert error.value.code == "other-run"

    asyncio.run(scenario())


def test_a_host_that_is_down_is_reported_with_advice(far):
    far.go_down()

    async def scenario() -> None:
        with pytest.raises(ConnectionProblem, match="refuses connections.*qcg-pm hosts check wizard"):
            await one_shot(far).call(INIT)

    asyncio.run(scenario())


def test_a_host_without_python_is_reported_in_one_sentence(far):
    async def scenario() -> None:
        with pytest.raises(ConnectionProblem, match="wizard has no Python 'python9' \\(key `python`\\)"):
            await one_shot(far, python="python9").call(INIT)
        with pytest.raises(ConnectionProblem, match="wizard has no command '/opt/none' \\(key `command`\\)"):
            await one_shot(far, command=("/opt/none",)).call(INIT)

    asyncio.run(scenario())


def test_a_command_waits_for_a_session_that_is_being_closed(far, monkeypatch: pytest.MonkeyPatch):
    """With MaxSessions 1, the session of the command before may still exist on the host."""
    monkeypatch.setattr(transport, "SESSION_PAUSES", (0.0, 0.0))

    async def scenario() -> None:
        far.refuse_sessions(2)
        await one_shot(far).call(INIT)
        far.refuse_sessions(3)
        with pytest.raises(ConnectionProblem, match="no further session on a connection"):
            await one_shot(far).call(INIT)

    asyncio.run(scenario())
    assert far.called() == ["remote-init"] * 6


def test_a_program_that_cannot_be_started_here_is_reported_in_one_sentence(far):
    config = HostConfig("wizard", ("wizard",), ssh=("/nowhere/ssh",), source="hosts.toml")

    async def scenario() -> None:
        with pytest.raises(ConnectionProblem, match="'/nowhere/ssh' cannot be started on this machine"):
            await OneShotTransport(config, "wizard", "r", Control("no")).call(INIT)

    asyncio.run(scenario())


def test_a_gate_that_does_not_admit_a_command_is_recognised(far):
    far.refuse("remote-serve")

    async def scenario() -> None:
        with pytest.raises(SubCommandRefused, match="not admitted"):
            await serve(far, Recorder()).open()

    asyncio.run(scenario())


def test_a_channel_answers_many_requests_in_one_login(far):
    async def scenario() -> None:
        observer = Recorder()
        transport = serve(far, observer)
        await transport.open()
        epoch = (await transport.call(INIT)).head["epoch"]
        polls = [transport.call({"do": "jobs-poll", "acks": {}, "full": True, "epoch": epoch}) for _ in range(20)]
        assert all(frame.head["live"] == [] for frame in await asyncio.gather(*polls))
        transport.close()
        with pytest.raises(ConnectionProblem, match="was closed"):
            await transport.call(INIT)
        assert observer.problems == []
        assert far.called() == ["remote-serve"]

    asyncio.run(scenario())


def test_a_channel_that_is_cut_fails_requests_and_reports_it_once(far):
    async def scenario() -> None:
        observer = Recorder()
        transport = serve(far, observer)
        await transport.open()
        await transport.call(INIT)
        far.cut()
        await asyncio.wait_for(observer.over.wait(), 10)
        assert len(observer.problems) == 1
        with pytest.raises(ConnectionProblem):
            await transport.call({"do": "beat"})
        transport.close()

    asyncio.run(scenario())


FOLLOWED = """
import os, sys
from qcg.pilotjob.host.remote.frames import FrameReader, reply_frame
reader = FrameReader()
while data := os.read(0, 1 << 16):
    for request, _ in reader.feed(data):
        answer = reply_frame(request["marker"], {"n": request["n"], "ok": True})
        os.write(1, answer + reply_frame(request["marker"], {"event": "records"}))
"""


def test_a_reply_is_taken_before_events_that_the_host_has_sent_after_it(far):
    """A later record of an event must not make earlier records in the reply look like repetitions."""
    happened = []

    class Observer(Recorder):
        def event(self, event: dict[str, Any]) -> None:
            happened.append("event")

    async def scenario() -> None:
        (far.root / "far.py").write_text(FOLLOWED)
        transport = serve(far, Observer(), command=(sys.executable, str(far.root / "far.py")))
        await transport.open()
        for _ in range(3):
            await transport.call({"do": "jobs-poll"})
            happened.append("reply")
        await asyncio.sleep(0.05)
        transport.close()

    asyncio.run(scenario())
    assert happened == ["reply", "event"] * 3
