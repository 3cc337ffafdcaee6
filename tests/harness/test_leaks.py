"""The leak check, run on small test files in a separate pytest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.processes import is_alive

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run_checked(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Run a test file under the leak check."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(source: str, *, patient: bool = True) -> pytest.RunResult:
        if not patient:
            pytester.makeconftest("from tests.support import leaks\n\nleaks.POLLS = 50")
        pytester.makepyfile(source)
        return pytester.runpytest_subprocess("-p", "tests.support.leaks", "-p", "no:cacheprovider", "-rA")

    return run


def test_tests_that_clean_up_after_themselves_pass(run_checked):
    result = run_checked("""
        import os, socket, subprocess, sys, threading
        import pytest

        @pytest.fixture
        def child():
            with subprocess.Popen(["sleep", "60"]) as process:
                yield process
                process.kill()

        def test_process(child): ...

        def test_orphan_that_has_ended():
            subprocess.run(["sh", "-c", "true & exit 0"])

        def test_descriptors():
            with open(__file__), socket.socket():
                pass

        def test_descriptor_that_a_thread_is_about_to_close():
            fd = os.open(__file__, os.O_RDONLY)
            threading.Timer(0.05, os.close, [fd]).start()
    """)
    result.assert_outcomes(passed=4)


def test_tests_that_leave_something_behind_fail_and_name_it(run_checked, pytester: pytest.Pytester):
    result = run_checked(
        """
        import os, socket, subprocess
        from pathlib import Path

        kept = []

        def wait_until_it_sleeps(number):
            # The shell knows its child before that has become another program.
            while not (len(pids := Path("pids").read_text().splitlines()) == number and is_sleeping(pids[-1])):
                pass

        def is_sleeping(pid):
            return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep")

        def test_child():
            kept.append(subprocess.Popen(["sleep", "61"]))

        def test_orphan_in_a_session_of_its_own():
            subprocess.run("setsid sleep 62 & echo $! >> pids", shell=True, check=True)
            wait_until_it_sleeps(1)

        def test_grandchild():
            kept.append(subprocess.Popen("sleep 63 & echo $! >> pids; wait", shell=True))
            wait_until_it_sleeps(2)

        def test_descriptor():
            os.open("/dev/zero", os.O_RDONLY)

        def test_socket():
            kept.append(socket.socket())

        def test_that_comes_after():
            pass
    """,
        patient=False,
    )
    result.assert_outcomes(passed=6, errors=5)
    result.stdout.fnmatch_lines_random(
        [
            "*process * sleep 61",
            "*process * sleep 62",
            "*process * sleep 63",
            "*descriptor * -> /dev/zero",
            "*descriptor * -> socket:*",
        ]
    )
    pids = [int(line) for line in (pytester.path / "pids").read_text().split()]
    assert len(pids) == 2
    assert not any(map(is_alive, pids))


def test_fixtures_of_wider_scope_may_stay_open_until_their_module_ends(run_checked):
    result = run_checked("""
        import os
        import pytest

        opened = []

        @pytest.fixture(scope="module")
        def shared():
            fd = os.open(__file__, os.O_RDONLY)
            yield opened
            os.close(fd)
            for more in opened:
                os.close(more)

        def test_first(shared): ...

        @pytest.mark.leaves_open("the fixture closes it")
        def test_that_opens_more(shared):
            shared.append(os.open(__file__, os.O_RDONLY))

        def test_last(shared): ...
    """)
    result.assert_outcomes(passed=3)


def test_fixtures_of_wider_scope_must_close_in_the_end(run_checked):
    result = run_checked(
        """
        import os
        import pytest

        @pytest.fixture(scope="module")
        def shared():
            os.open("/dev/zero", os.O_RDONLY)

        def test_that_uses_it(shared): ...
    """,
        patient=False,
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines("*descriptor * -> /dev/zero")


def test_this_test_run_is_checked_for_leaks(request: pytest.FixtureRequest):
    assert "_test_leaves_nothing_behind" in request.fixturenames


def test_a_process_that_was_not_waited_for_is_not_alive():
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(pid)
    os.waitpid(pid, 0)
    assert not is_alive(pid)
    assert is_alive(os.getpid())


def test_processes_that_are_set_apart_are_not_checked_and_others_are(run_checked):
    result = run_checked(
        """
        import os, subprocess
        import pytest
        from tests.support import processes

        @pytest.fixture(scope="session")
        def apart():
            process = subprocess.Popen(["sh", "-c", "read line; sleep 61 & wait"], stdin=subprocess.PIPE)
            processes.set_apart(processes.identify(process.pid))
            yield process
            processes.end({processes.identify(process.pid), *processes.children(process.pid)})
            process.stdin.close()
            process.wait()

        @pytest.mark.leaves_open("the pipe to the process")
        def test_that_starts_a_process_set_apart(apart): ...

        def test_that_starts_a_child_of_it(apart):
            os.write(apart.stdin.fileno(), b"go\\n")
            while not processes.children(apart.pid): ...

        def test_that_starts_another_process(apart):
            subprocess.Popen(["sleep", "62"])
    """,
        patient=False,
    )
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*Left behind:*", "*process * sleep 62"])
