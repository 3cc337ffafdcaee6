"""A plugin that distributes tests over the worker processes of pytest-xdist (`pytest -n 4`).

The tests of one file run in one worker, one after another, so that a fixture of module scope is set up once. Markers
change that:

- `@pytest.mark.worker_group("NAME")`: tests with the same name run in one worker, whatever their files;
- `@pytest.mark.any_worker`: each of these tests may run in any worker. For files of long tests that share nothing;
- `@pytest.mark.timed`: the test measures time. These tests run in one worker, after the others, and while no other
  worker runs a test: each worker holds a lock while it runs a test, and for a timed test it holds the lock alone.

Some of the workers run tests of `WAITING` groups, as long as there are both kinds: tests that wait leave the
processors to those that compute.

The scheduler of pytest-xdist knows ids of tests only. So each worker writes the groups of its tests to a file, and the
scheduler reads it. (The own groups of xdist 3.8, `xdist_group`, do not work with pytest 9.2.)
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

WAITING = (
    "concurrent_slurm",
    "tests/slurm",
    "tests/ssh",
    "tests/executors",
    "tests/agent",
)
"""Groups, or prefixes of their names, whose tests wait most of the time."""
SHARE_OF_WAITING = 0.4
"""The part of the workers that run groups of `WAITING`, as long as there are others."""

LONGEST = (
    *WAITING,
    "tests/dashboard/test_page.py",
    "tests/dashboard/test_live.py",
    "tests/e2e",
    "tests/docs",
    "tests/bench",
    "tests/dashboard",
    "tests/network",
    "tests/cli",
    "tests/journal",
    "tests/host",
    "tests/core",
    "tests/api",
)
"""Groups, or prefixes of their names, that take longest. They start first, so that they are not the last ones to run.
Files of short tests fill the gaps."""

TIMED = "timed"
"""The group of tests that measure time."""

_DIRECTORY = pytest.StashKey["tempfile.TemporaryDirectory[str]"]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "worker_group(name): tests of one group run in one worker process")
    config.addinivalue_line(
        "markers", "any_worker: the test may run in another worker than the other tests of its file"
    )
    config.addinivalue_line("markers", "timed: the test measures time, and runs while no other worker runs a test")


def group_of(item: pytest.Item) -> str:
    if item.get_closest_marker(TIMED):
        return TIMED
    marker = item.get_closest_marker("worker_group")
    if marker is not None:
        return str(marker.args[0])
    return item.nodeid if item.get_closest_marker("any_worker") else item.nodeid.partition("::")[0]


def rank(group: str) -> int:
    """The position of a group in the order of starts."""
    if group == TIMED:
        return len(LONGEST) + 1
    return next((number for number, long in enumerate(LONGEST) if group.startswith(long)), len(LONGEST))


# -- in a worker


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank(group_of(item)))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the groups, before xdist reports the collected tests."""
    directory = getattr(session.config, "workerinput", {}).get("groups")
    if directory is None:
        return
    path = Path(directory, str(os.getpid()))
    path.write_text(json.dumps({item.nodeid: group_of(item) for item in session.items}))
    path.rename(Path(directory, "groups"))  # the last worker wins: all have collected the same tests


# The outermost hook: the timeout of a test begins when its turn has come.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    directory = getattr(item.config, "workerinput", {}).get("groups")
    if directory is None:
        return (yield)
    with _turn(Path(directory), alone=item.get_closest_marker(TIMED) is not None):
        return (yield)


@contextmanager
def _turn(directory: Path, *, alone: bool) -> Iterator[None]:
    """Wait until no other worker runs a test; or, without `alone`, until none runs a timed one."""
    descriptor = os.open(directory / "turns", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


# -- in the process that starts the workers


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    stash = node.config.stash
    if _DIRECTORY not in stash:
        stash[_DIRECTORY] = tempfile.TemporaryDirectory(prefix="pytest-groups-")
    node.workerinput["groups"] = stash[_DIRECTORY].name


def pytest_unconfigure(config: pytest.Config) -> None:
    if _DIRECTORY in config.stash:
        config.stash[_DIRECTORY].cleanup()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        """Distributes groups of tests, in the order in which the workers have collected them.

        A share of the workers gets the groups that wait, as long as there are other groups."""

        groups: dict[str, str]

        def schedule(self) -> None:
            if self.collection is None:
                self.groups = json.loads(Path(config.stash[_DIRECTORY].name, "groups").read_text())
            super().schedule()

        def _split_scope(self, nodeid: str) -> str:
            return self.groups[nodeid]

        def _assign_work_unit(self, node: Any) -> None:
            others = [units for one, units in self.assigned_work.items() if one is not node]
            wanted = sum(map(has_waiting, others)) < SHARE_OF_WAITING * len(self.nodes)
            untimed = (group for group in self.workqueue if group != TIMED)
            chosen = next((group for group in untimed if group.startswith(WAITING) == wanted), None)
            if chosen is not None:
                self.workqueue.move_to_end(chosen, last=False)
            super()._assign_work_unit(node)

    def has_waiting(units: dict[str, dict[str, bool]]) -> bool:
        return any(group.startswith(WAITING) and not all(ended.values()) for group, ended in units.items())

    config.option.loadscopereorder = False
    return Scheduling(config, log)
