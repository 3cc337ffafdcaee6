"""Hanging commands print their stack."""

from __future__ import annotations

import signal

import pytest

from tests.support import pilot

HANGS = """
import time

def stand_still():
    print("up", flush=True)
    time.sleep(1000)

stand_still()
"""


def test_a_hanging_command_prints_its_stack_at_sigabrt(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(pilot.COMMANDS, "hangs", ["-c", HANGS])
    process = pilot.start("hangs")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGABRT)
    _, stack = process.communicate()
    assert "in stand_still" in stack
