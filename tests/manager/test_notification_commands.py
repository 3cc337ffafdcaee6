"""The commands of `--notify`: real processes, and a manager that never waits for them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.manager import notification_commands
from qcg.pilotjob.manager.notification_commands import Message, NotificationCommands
from tests.support.waiting import wait_for

HELLO = Message(b'{"event": "end"}\n', {"QCG_PM_NOTIFY_EVENT": "end"})


def messages(*names: str) -> list[Message]:
    return [Message(name.encode() + b"\n", {}) for name in names]


def deliver(
    commands: list[str],
    wd: Path,
    *sent: Message,
    last: Message | None = None,
    patience: float = 60.0,
    timeout: float = 60.0,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
    hurry: asyncio.Event | None = None,
) -> float:
    """Send messages and finish; returns the longest time in seconds for which the event loop was blocked."""

    async def run() -> float:
        runner = NotificationCommands(commands, str(wd), timeout)
        before = time.monotonic()
        for message in sent:
            runner.send(message)
        blocked = time.monotonic() - before
        if meanwhile is not None:
            await meanwhile()
        await runner.finish(last, patience, hurry or asyncio.Event())
        runner.abandon()
        return blocked

    return asyncio.run(run())


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_command_gets_the_document_and_the_variables(tmp_path: Path):
    deliver([f"sh -c 'cat > got; echo $QCG_PM_NOTIFY_EVENT in $PWD >> {tmp_path}/got'"], tmp_path, HELLO)
    assert (tmp_path / "got").read_text() == f'{{"event": "end"}}\nend in {tmp_path}\n'


def test_a_command_is_run_without_a_shell(tmp_path: Path):
    program = "import json, sys; json.dump(sys.argv[1:], open('got', 'w'))"
    deliver([f'{sys.executable} -c "{program}" $HOME ";" touch x "a b"'], tmp_path, HELLO)
    assert json.loads((tmp_path / "got").read_text()) == ["$HOME", ";", "touch", "x", "a b"]
    assert not (tmp_path / "x").exists()


def test_all_commands_run_for_each_notification_one_after_another(tmp_path: Path):
    one = "sh -c '[ ! -e busy ] && touch busy && sed s/^/first-/ >> got && rm busy'"
    two = "sh -c '[ ! -e busy ] && touch busy && sed s/^/second-/ >> got && rm busy'"
    deliver([one, two], tmp_path, *messages("a", "b"), last=messages("c")[0])
    lines = (tmp_path / "got").read_text().split()
    assert lines == ["first-a", "second-a", "first-b", "second-b", "first-c", "second-c"]


def test_the_output_of_a_command_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    deliver(["sh -c 'echo sent; echo trouble >&2'"], tmp_path, HELLO)
    assert "notified with sh:\nsent\ntrouble" in caplog.text


def test_long_output_is_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    deliver(["head -c 1000000 /dev/zero"], tmp_path, HELLO)
    assert len(caplog.text) < 2 * notification_commands.MOST_OUTPUT
    assert "…" in caplog.text


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("sh -c 'echo no route; exit 3'", "the command of --notify, sh, ended with exit code 3:\nno route"),
        ("/no/such/program", "the command of --notify, /no/such/program, could not be started"),
        ("sh -c 'kill -9 $$'", "the command of --notify, sh, ended with exit code -9"),
    ],
)
def test_a_command_that_fails_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture, command: str, said: str):
    deliver([command, "touch after"], tmp_path, HELLO)
    assert said in caplog.text
    assert (tmp_path / "after").exists()


def test_a_command_that_reads_no_input_and_one_that_leaves_a_process_behind_are_fine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    leaves = "sh -c 'sleep 1000 & echo $! > pid'"
    began = time.monotonic()
    deliver(["true", leaves], tmp_path, Message(b"x" * 200_000, {}))
    pid = int((tmp_path / "pid").read_text())
    assert is_alive(pid), "it was not asked to end"
    os.kill(pid, signal.SIGKILL)
    assert time.monotonic() - began < 30
    assert "warning" not in caplog.text.lower()


def test_a_command_that_takes_too_long_is_killed_with_all_that_it_started(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    script = "setsid sh -c 'echo $$ > apart; exec sleep 1000' & sleep 1000 & echo $! > child; echo $$ > pid; wait"
    (tmp_path / "hook").write_text(script)
    deliver(["sh hook"], tmp_path, HELLO, timeout=1.0)
    assert "sh, was killed after 1 s" in caplog.text
    for name in ("pid", "child", "apart"):
        pid = int((tmp_path / name).read_text())
        wait_for(lambda pid=pid: not is_alive(pid), what=name)  # type: ignore[misc]


def test_earlier_notifications_and_the_last_one_share_the_patience(tmp_path: Path):
    began = time.monotonic()
    deliver(["sleep 1000"], tmp_path, *messages("a"), last=HELLO, patience=4.0)
    assert time.monotonic() - began < 5.5, "they took 6 s when the last one had all of it"


def test_the_event_loop_does_not_wait(tmp_path: Path):
    async def is_not_delivered_yet() -> None:
        assert not (tmp_path / "done").exists()
        (tmp_path / "go").touch()

    script = "until [ -e go ]; do sleep 0.01; done; touch done"
    (tmp_path / "hook").write_text(script)
    deliver(["sh hook"], tmp_path, HELLO, meanwhile=is_not_delivered_yet)
    assert (tmp_path / "done").exists()


def test_only_a_few_notifications_wait_and_the_last_one_is_delivered(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    most = notification_commands.MOST_WAITING
    sent = messages(*[str(number) for number in range(most + 3)])

    async def go() -> None:
        (tmp_path / "go").touch()

    (tmp_path / "hook").write_text("until [ -e go ]; do sleep 0.01; done; cat >> got")
    deliver(["sh hook"], tmp_path, *sent, last=messages("last")[0], meanwhile=go)
    assert (tmp_path / "got").read_text().split() == [*map(str, range(most + 1)), "last"]
    assert caplog.text.count("a notification is dropped") == 2


def test_the_end_is_delivered_though_an_earlier_command_hangs(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "hook").write_text("read what; [ $what = last ] || sleep 1000; echo $what >> got")
    began = time.monotonic()
    deliver(["sh hook"], tmp_path, *messages("a", "b"), last=messages("last")[0], patience=4.0)
    assert (tmp_path / "got").read_text().split() == ["last"]
    assert time.monotonic() - began < 20


def test_the_manager_does_not_wait_forever_for_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    began = time.monotonic()
    deliver(["sh -c 'echo $$ > pid; exec sleep 1000'"], tmp_path, last=HELLO, patience=1.0)
    assert time.monotonic() - began < 20
    assert "does not wait any longer" in caplog.text
    pid = int((tmp_path / "pid").read_text())
    wait_for(lambda: not is_alive(pid), what="the end of the killed command")


def test_a_command_whose_start_hangs_blocks_nothing_and_is_killed_when_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    starts, go_on = threading.Event(), threading.Event()
    started: list[subprocess.Popen[bytes]] = []

    def hang(*given: Any, **options: Any) -> subprocess.Popen[bytes]:
        starts.set()
        go_on.wait(60)
        started.append(popen(*given, **options))
        return started[0]

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", hang)

    async def run() -> None:
        runner = NotificationCommands(["sleep 1000"], str(tmp_path))
        runner.send(HELLO)
        await asyncio.to_thread(starts.wait)
        began = time.monotonic()
        await runner.finish(None, 0.2, asyncio.Event())
        assert time.monotonic() - began < 30
        go_on.set()
        await asyncio.to_thread(wait_for, lambda: bool(started) and started[0].returncode == -signal.SIGKILL)

    try:
        asyncio.run(run())
    finally:
        go_on.set()


def test_an_event_ends_the_waiting(tmp_path: Path):
    hurry = asyncio.Event()

    async def hurry_later() -> None:
        await asyncio.to_thread(wait_for, (tmp_path / "runs").exists)
        asyncio.get_running_loop().call_later(0.1, hurry.set)

    (tmp_path / "hook").write_text("touch runs; sleep 1000")
    began = time.monotonic()
    deliver(["sh hook"], tmp_path, HELLO, patience=60.0, meanwhile=hurry_later, hurry=hurry)
    assert time.monotonic() - began < 30
