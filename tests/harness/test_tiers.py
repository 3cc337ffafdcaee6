"""The tests of the short tier, and of the tier of --long."""

from __future__ import annotations

from pathlib import Path

import pytest

SOURCE = """
    import pytest
    from tests.support.tiers import per_tier

    def test_short(): ...

    @pytest.mark.long
    def test_campaign():
        print(f"{per_tier(1, 100)} in the campaign")

    @pytest.mark.sampled
    def test_sample():
        print(f"{per_tier(1, 100)} in the sample")
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(*options: str) -> pytest.RunResult:
        pytester.makepyfile(SOURCE)
        plugins = ["-p", "tests.support.tiers", "-p", "no:cacheprovider", "-p", "xdist"]
        return pytester.runpytest_subprocess(*plugins, "-rP", *options)

    return run


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["one process", "a worker"])
def test_campaigns_are_left_out_and_samples_are_small(run, workers: list[str]):
    result = run(*workers)
    result.assert_outcomes(passed=2, deselected=0 if workers else 1)
    result.stdout.fnmatch_lines("1 in the sample")


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["one process", "a worker"])
def test_with_long_only_campaigns_and_large_samples_run(run, workers: list[str]):
    result = run("--long", *workers)
    result.assert_outcomes(passed=2, deselected=0 if workers else 1)
    result.stdout.fnmatch_lines(["100 in the campaign", "100 in the sample"])
