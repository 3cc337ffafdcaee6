"""With CI=true a skipped test fails the run."""

from __future__ import annotations

from pathlib import Path

import pytest

SOURCE = """
    import pytest

    def test_that_runs(): ...

    def test_that_skips():
        pytest.skip("no such program here")

    @pytest.mark.xfail(strict=True)
    def test_that_is_known_to_fail():
        assert False
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(source: str, ci: str) -> pytest.RunResult:
        monkeypatch.setenv("CI", ci)
        pytester.makepyfile(source)
        return pytester.runpytest_subprocess("-p", "tests.support.skips", "-p", "no:cacheprovider")

    return run


def test_a_skip_is_a_failure_in_ci(run):
    result = run(SOURCE, ci="true")
    result.assert_outcomes(passed=1, failed=1, xfailed=1)
    result.stdout.fnmatch_lines("*nothing may be skipped, and this was: *no such program here")
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_skip_is_a_skip_elsewhere(run):
    result = run(SOURCE, ci="")
    result.assert_outcomes(passed=1, skipped=1, xfailed=1)
    assert result.ret == pytest.ExitCode.OK


def test_a_skipped_module_is_an_error_in_ci(run):
    result = run("import pytest; pytest.skip('not today', allow_module_level=True)", ci="true")
    result.stdout.fnmatch_lines("*nothing may be skipped, and this was: *not today")
    assert result.ret != pytest.ExitCode.OK
