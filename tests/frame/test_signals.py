"""Commands that tests start heed signals, also where the tests run in the background."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

SOURCE = """
    import signal, subprocess, sys
    import pytest

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
    def test_a_command_ends(number):
        raises = f"import os; os.kill(os.getpid(), {number:d})"
        assert subprocess.run([sys.executable, "-c", raises]).returncode == -number
"""


@pytest.mark.parametrize("plugin", [True, False])
def test_signals_that_the_tests_ignore_are_heeded_by_commands(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, plugin: bool
):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(SOURCE)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)}
    try:
        result = pytester.runpytest_subprocess(*(["-p", "tests.support.signals"] if plugin else []))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    result.assert_outcomes(**({"passed": 2} if plugin else {"failed": 2}))
