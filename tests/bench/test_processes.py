"""Processes of a benchmark end when it fails or is interrupted."""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bench import processes
from bench.service import service
from qcg.pilotjob.cli.signals import signals_deferred
from tests.support.processes import descendants
from tests.support.waiting import wait_for


def test_a_process_has_time_to_end_its_children(tmp_path: Path):
    tidy = tmp_path / "tidy"
    script = f"trap 'sleep 0.5; echo > {tidy}; exit' INT; echo ready; while :; do read word; done"
    interrupt_once_ready(script)
    assert tidy.exists()


def test_a_process_that_ignores_sigterm_is_killed_with_its_children(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(processes, "PATIENCE", 0.05)
    before = descendants()
    interrupt_once_ready("trap '' INT TERM; sleep 1000 & echo ready; while :; do read word; done")
    wait_for(lambda: descendants() <= before, what="the end of the process and its child")


def interrupt_once_ready(script: str) -> None:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with suppress(KeyboardInterrupt), processes.started(["bash", "-c", script], **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        raise KeyboardInterrupt


def test_a_process_that_takes_too_long_is_ended():
    before = descendants()
    with pytest.raises(subprocess.TimeoutExpired):
        processes.run(["sleep", "1000"], timeout=0.05)
    assert descendants() <= before


def test_signals_are_deferred_until_a_process_has_started():
    done: list[str] = []

    def start() -> None:
        with signals_deferred():
            signal.raise_signal(signal.SIGINT)
            done.append("started")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert done == ["started"]


def test_a_service_that_is_measured_is_gone_after_an_interrupt(tmp_path: Path):
    before = descendants()
    with pytest.raises(KeyboardInterrupt), service(tmp_path, "--nodes", "2"):
        raise KeyboardInterrupt
    assert descendants() <= before
