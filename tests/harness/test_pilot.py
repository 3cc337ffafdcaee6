"""Commands that tests start, when they hang."""

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


def test_a_command_that_hangs_tells_where_when_it_is_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(pilot.COMMANDS, "hangs", ["-c", HANGS])
    process = pilot.start("hangs")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGABRT)
    _, told = process.communicate()
    assert "in stand_still" in told
