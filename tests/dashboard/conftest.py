"""A run that has ended, and a dashboard of it, for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dashboard import Dashboard
from tests.support.pilot import job, run_requests

HOSTILE = "<script>alert</script>"


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a run: successes, a failure with output, iterations, a dependency."""
    wd = tmp_path_factory.mktemp("ended")
    wd.chmod(0o700)
    jobs = [
        job("prep", "sh", "-c", "echo prepared; echo careful >&2", stdout="prep.out", stderr="prep.err"),
        job("sweep", "sh", "-c", "exit $((${it} == 3))", iteration={"stop": 6}, after=["prep"]),
        job("bad", "sh", "-c", "echo no luck >&2; exit 3"),
        job("after", "true", after=["sweep"]),
        job(HOSTILE, "printf", "<b>\\033[31mred"),
    ]
    done = run_requests(wd, jobs).done
    assert "FAILED sweep:3" in done.stdout, done
    return wd


@pytest.fixture(scope="module")
def dashboard(ended: Path) -> Iterator[Dashboard]:
    with Dashboard(ended) as dashboard:
        yield dashboard
