"""Tests that wait for most of their time, such as for a node to count as lost: many of them run at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.slurm_cluster import Cluster, lent, running_cluster

AT_ONCE = 5
"""More of them keep one another waiting, on two cores, and are no sooner done."""
SECONDS = 600
"""For all of them: whichever test comes first waits for them."""

Story = Callable[[Cluster], None]
Outcomes = dict[Story, Future[None]]
Test = Callable[[Outcomes], None]

_stories: dict[Test, tuple[Story, bool, dict[str, object]]] = {}
"""What a test tells, whether that takes long, and the settings of its cluster."""


def story(told: Story) -> Test:
    """Make a test of what is told, which has a cluster of its own: n1 to n4, as `cluster`."""
    return _made_of(told, is_long=False)


def long_story(told: Story) -> Test:
    """The same for one that takes long: it begins before the others, so that nobody waits for it alone."""
    return _made_of(told, is_long=True)


def long_story_on(**settings: object) -> Callable[[Story], Test]:
    """The same on another cluster; settings as for `running_cluster`."""
    return lambda told: _made_of(told, is_long=True, **settings)


def _made_of(told: Story, *, is_long: bool, **settings: object) -> Test:
    def test(outcomes: Outcomes) -> None:
        outcomes[told].result()

    test.__name__ = told.__name__
    test.__doc__ = told.__doc__
    marked: Test = pytest.mark.worker_group("stories")(pytest.mark.timeout(SECONDS)(test))
    _stories[marked] = told, is_long, settings
    return marked


def run_all(items: Iterable[pytest.Item], directory_for: Callable[[str], Path]) -> Outcomes:
    """What became of the stories among these tests."""
    functions = [item.function for item in items if isinstance(item, pytest.Function)]
    stories = [_stories[function] for function in functions if function in _stories]
    stories.sort(key=lambda story: not story[1])
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return {
            told: threads.submit(_run, told, directory_for(told.__name__[:30]), settings)
            for told, _, settings in stories
        }


def _run(told: Story, directory: Path, settings: dict[str, object]) -> None:
    with running_cluster(**settings) as cluster:
        for _ in lent(cluster, directory):
            told(cluster)
