"""The distribution of tests over workers, and the leak check in each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run_in_workers(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Run test files in two workers, with the distribution and the leak check of this project."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(**sources: str) -> pytest.RunResult:
        pytester.makepyfile(**sources)
        plugins = ["xdist", "pytest_timeout", "tests.support.leaks", "tests.support.parallel", "no:cacheprovider"]
        options = [option for plugin in plugins for option in ("-p", plugin)]
        return pytester.runpytest_subprocess(*options, "-n", "2")

    return run


def test_groups_run_in_one_worker_and_files_do_too(run_in_workers, pytester: pytest.Pytester):
    source = """
        import os
        from pathlib import Path

        import pytest

        {marker}
        @pytest.mark.parametrize("number", range(3))
        def test_it(number):
            Path(f"{name}-{number}").write_text(os.environ["PYTEST_XDIST_WORKER"])
    """

    def file(name: str, marker: str = "") -> str:
        return source.replace("{name}", name).replace("{marker}", marker)

    grouped = '@pytest.mark.worker_group("lab")'
    result = run_in_workers(test_a=file("a"), test_b=file("b", grouped), test_c=file("c"), test_d=file("d", grouped))
    result.assert_outcomes(passed=12)

    def workers(name: str) -> set[str]:
        return {(pytester.path / f"{name}-{number}").read_text() for number in range(3)}

    assert len(workers("b") | workers("d")) == 1
    assert len(workers("a")) == len(workers("c")) == 1


def test_tests_for_any_worker_of_one_file_run_at_the_same_time(run_in_workers):
    meeting = """
        from pathlib import Path
        from time import sleep

        import pytest

        pytestmark = pytest.mark.any_worker

        def meet(mine, other):
            Path(mine).touch()
            while not Path(other).exists():
                sleep(0.01)

        def test_one():
            meet("one", "two")

        def test_two():
            meet("two", "one")

        def test_three(): ...

        def test_four(): ...
    """
    run_in_workers(test_meeting=meeting).assert_outcomes(passed=4)


def test_a_worker_sees_its_own_leaks_and_no_others(run_in_workers):
    """While one worker has a process and a descriptor open, the tests of the other pass."""
    leaky = """
        import subprocess
        from pathlib import Path
        from time import sleep

        def test_that_leaves_a_process():
            subprocess.Popen(["sleep", "60"])
            Path("leaked").touch()
            while not Path("seen").exists():
                sleep(0.01)
    """
    clean = """
        from pathlib import Path
        from time import sleep

        def test_that_leaves_nothing():
            while not Path("leaked").exists():
                sleep(0.01)

        def test_after_it():
            Path("seen").touch()
    """
    result = run_in_workers(test_leaky=leaky, test_clean=clean)
    # The call of the leaky test passes; its teardown is the error.
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["Left behind:", "  process * sleep 60"])


def test_a_timed_test_starts_after_another_one_and_runs_while_no_other_test_runs(
    run_in_workers, pytester: pytest.Pytester
):
    busy = """
        from pathlib import Path
        from time import sleep

        import pytest

        pytestmark = pytest.mark.any_worker

        @pytest.mark.parametrize("number", range(6))
        def test_that_works(number):
            mark = Path(f"works-{number}")
            mark.touch()
            sleep(0.1)
            mark.unlink()
            with Path("order").open("a") as order:
                order.write("works ")
    """
    timed = """
        from pathlib import Path
        from time import sleep

        import pytest

        pytestmark = pytest.mark.timed

        @pytest.mark.parametrize("number", range(3))
        def test_that_measures(number):
            for _ in range(20):
                assert not list(Path().glob("works-*"))
                sleep(0.01)
            with Path("order").open("a") as order:
                order.write("measures ")
    """
    run_in_workers(test_a_timed=timed, test_busy=busy).assert_outcomes(passed=9)
    order = (pytester.path / "order").read_text().split()
    assert order[0] == "works"
    assert sorted(order) == ["measures"] * 3 + ["works"] * 6


def test_time_limits_of_a_timed_test_begin_with_its_turn(run_in_workers):
    busy = """
        from time import sleep

        def test_that_works():
            sleep(2)
    """
    timed = """
        import pytest

        @pytest.mark.timed
        @pytest.mark.timeout(1)
        def test_that_measures(): ...
    """
    run_in_workers(test_busy=busy, test_timed=timed).assert_outcomes(passed=2)


def test_tests_that_wait_leave_workers_to_the_others(run_in_workers, pytester: pytest.Pytester):
    waiting = """
        from pathlib import Path
        from time import monotonic, sleep

        def test_that_waits():
            until = monotonic() + 60
            while not Path("computed").exists():
                assert monotonic() < until
                sleep(0.01)
    """
    computing = """
        from pathlib import Path

        def test_that_computes():
            Path("computed").touch()
    """
    files = {"tests/ssh/test_one": waiting, "tests/ssh/test_two": waiting, "tests/test_three": computing}
    for name in files:
        (pytester.path / name).parent.mkdir(parents=True, exist_ok=True)
    run_in_workers(**files).assert_outcomes(passed=3)
