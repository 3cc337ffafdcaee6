"""Tests that mostly wait, such as for a node to count as lost: many of them run at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.slurm_cluster import Cluster, lent, running_cluster

CONCURRENCY = 5
"""Number of tests at the same time. On two cores, more of them slow one another down and end no sooner."""
TIMEOUT = 600
"""Seconds for all of them: the first of these tests waits for the ends of all."""

Body = Callable[[Cluster], None]
"""The function that a test author writes."""
Results = dict[Body, Future[None]]
Test = Callable[[Results], None]
"""The function that pytest calls: it returns the result of the body."""


class ConcurrentTest(NamedTuple):
    """How to run one test."""

    body: Body
    is_long: bool
    settings: dict[str, object]
    """The settings of its cluster."""


_tests: dict[Test, ConcurrentTest] = {}


def concurrent_test(body: Body) -> Test:
    """Make a test of a function that gets its own cluster: n1 to n4, as the fixture `cluster`."""
    return _make_test(body, is_long=False)


def long_concurrent_test(body: Body) -> Test:
    """As `concurrent_test`, for a long test: it starts before the short ones."""
    return _make_test(body, is_long=True)


def long_concurrent_test_on(**settings: object) -> Callable[[Body], Test]:
    """As `long_concurrent_test`, on another cluster; settings as for `running_cluster`."""
    return lambda body: _make_test(body, is_long=True, **settings)


def _make_test(body: Body, *, is_long: bool, **settings: object) -> Test:
    def test(results: Results) -> None:
        results[body].result()

    test.__name__ = body.__name__
    test.__doc__ = body.__doc__
    marked: Test = pytest.mark.worker_group("concurrent_slurm")(pytest.mark.timeout(TIMEOUT)(test))
    _tests[marked] = ConcurrentTest(body, is_long, settings)
    return marked


def run_all(items: Iterable[pytest.Item], directory_for: Callable[[str], Path]) -> Results:
    """Run the concurrent tests among these items, and return their results."""
    functions = [item.function for item in items if isinstance(item, pytest.Function)]
    tests = [_tests[function] for function in functions if function in _tests]
    tests.sort(key=lambda test: not test.is_long)
    with ThreadPoolExecutor(CONCURRENCY) as threads:
        return {test.body: threads.submit(_run, test, directory_for(test.body.__name__[:30])) for test in tests}


def _run(test: ConcurrentTest, directory: Path) -> None:
    with running_cluster(**test.settings) as cluster:
        for _ in lent(cluster, directory):
            test.body(cluster)
