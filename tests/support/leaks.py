"""A plugin that fails a test which leaves a process or an open descriptor behind.

Fixtures of wider scope may keep things open: what they opened before the test is not counted, and the same check runs
around each module, so that they too must close it in the end. A test that makes such a fixture open more says so with
`@pytest.mark.leaves_open("why")`; as a `pytestmark` it takes the whole module out.
"""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support import processes
from tests.support.processes import Process

PAUSE = 0.005
# What ends by itself within so many looks was under way already, such as a thread that closes its sockets. Looks, not
# seconds: a machine that is busy, or stands still for a while, is slow with both.
LOOKS = 300

# A process that was killed is as good as dead, but may have to wait for its disk. An agent whose manager was killed
# notices it when it has loaded its modules, which takes its time on a busy machine, and then waits a few seconds more.
LOOKS_AT_GOING = 6000

# pytest points these at its own files, and somewhere else when it likes.
STANDARD_STREAMS = frozenset((0, 1, 2))

# A leaked descriptor is told once: the test is to blame, not also its module. (A leaked process is ended.)
_told: set[tuple[int, str]] = set()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "leaves_open(reason): what this test opens or starts belongs to a fixture of wider scope"
    )
    processes.adopt_orphans()


def pytest_collection_finish() -> None:
    """What is there now stays until the end: a look for garbage takes a millisecond without it, 80 ms with it."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _module_leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    with _nothing_left_behind(request):
        yield


@pytest.fixture(autouse=True)
def _test_leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    with _nothing_left_behind(request):
        yield


@contextmanager
def _nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("leaves_open"):
        yield
        return
    before = _Open()
    yield
    left = _what_stays(before)
    if left.is_empty():
        return
    lines = [f"  process {process}" for process in sorted(left.processes)]
    lines += [f"  descriptor {number} -> {target}" for number, target in sorted(left.descriptors)]
    processes.end(left.processes)
    _told.update(left.descriptors)
    pytest.fail("\n".join(["Left behind:", *lines]), pytrace=False)


class _Open:
    """The processes and descriptors there are now, without those of `before`."""

    def __init__(self, before: _Open | None = None) -> None:
        self.processes: set[Process] = processes.descendants()
        self.descriptors: set[tuple[int, str]] = _open_descriptors()
        if before:
            self.processes -= before.processes
            self.descriptors -= before.descriptors | _told

    def is_empty(self) -> bool:
        return not self.processes and not self.descriptors


def _what_stays(before: _Open) -> _Open:
    left = _Open(before)
    if left.is_empty():
        return left
    gc.collect()  # a forgotten file or socket warns when it is collected, and a warning is an error
    for look in range(LOOKS_AT_GOING):
        left = _Open(before)
        if left.is_empty() or (look >= LOOKS and (left.descriptors or not all(map(_is_going, left.processes)))):
            break
        time.sleep(PAUSE)
    return left


def _is_going(process: Process) -> bool:
    """It was killed; or it is an agent that was started before its manager knew whether it needs one, or whose manager
    is dead."""
    command = str(process)
    manager = re.search(r" -m qcg\.pilotjob\.agent .*--parent (\d+)", command)
    return (
        processes.is_killed(process.pid)
        or command.endswith((" -m qcg.pilotjob.agent --later", "(gone)"))
        or (manager is not None and processes.identify(int(manager[1])) is None)
    )


def _open_descriptors() -> set[tuple[int, str]]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add((int(name), os.readlink(f"/proc/self/fd/{name}")))
        except FileNotFoundError:
            continue  # the descriptor that the listing itself had open
    return {(number, target) for number, target in found if number not in STANDARD_STREAMS}
