"""The check of files in the checkout, run on small test files in a pytest of their own."""

from __future__ import annotations

import pytest

from tests.support.project import ROOT


@pytest.fixture(params=["", "-n2"], ids=["one process", "workers"])
def run_checked(request: pytest.FixtureRequest, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Run a test file under the check, in one process and in workers."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    workers = ["-p", "xdist", request.param] if request.param else []

    def run(source: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        return pytester.runpytest_subprocess("-p", "tests.support.checkout", "-p", "no:cacheprovider", *workers)

    return run


def test_a_run_of_tests_that_leaves_files_fails_and_says_which(run_checked):
    result = run_checked("""
        from pathlib import Path

        def test_that_writes():
            Path("typed.out").touch()
            Path("results").mkdir()
    """)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*files left in the checkout*", "results, typed.out; give the test *"])


def test_caches_and_files_that_are_removed_may_be_written(run_checked, pytester: pytest.Pytester):
    (pytester.path / "mine").touch()
    result = run_checked("""
        from pathlib import Path

        def test_that_removes(tmp_path):
            Path("typed.out").touch()
            Path("typed.out").unlink()
            Path(".hypothesis").mkdir()
            (tmp_path / "file").touch()
    """)
    assert result.ret == pytest.ExitCode.OK
    assert "left in the checkout" not in result.stdout.str()


def test_this_very_run_is_checked(request: pytest.FixtureRequest):
    assert request.config.pluginmanager.has_plugin("tests.support.checkout")
