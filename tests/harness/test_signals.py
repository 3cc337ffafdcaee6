"""Commands that tests start react to signals, even when the tests run in the background."""

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
def test_signals_that_the_tests_ignore_reach_their_commands(
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


def test_in_a_worker_only_the_main_thread_takes_signals_of_children(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile("""
        import os, re, signal
        from pathlib import Path

        def test_threads():
            status = {task.name: (task / "status").read_text() for task in Path("/proc/self/task").iterdir()}
            blocked = {task: int(re.search(r"SigBlk:\\s*(\\w+)", text)[1], 16) for task, text in status.items()}
            bit = 1 << signal.SIGCHLD - 1
            assert len(blocked) > 1
            assert [task for task, mask in blocked.items() if not mask & bit] == [str(os.getpid())]
    """)
    pytester.runpytest_subprocess("-p", "xdist", "-p", "tests.support.signals", "-n", "1").assert_outcomes(passed=1)
