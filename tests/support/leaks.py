"""A plugin that fails a test which leaves a process or an open descriptor behind.

Fixtures of wider scope may keep processes and descriptors open. Objects opened before a test do not count. The same
check runs around each module, so such fixtures must close everything at their end. Mark a test in which such a
fixture opens more with `@pytest.mark.leaves_open("why")`; as a `pytestmark` the marker excludes the whole module.
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
# A process or descriptor that disappears within this number of polls was ending already, such as a thread that closes
# its sockets. The limit counts polls, not seconds: a machine that is busy or suspended delays both.
POLLS = 300

# A killed process may have to wait for its disk before it is dead. An agent whose manager was killed notices that when
# it has loaded its modules, which takes long on a busy machine, and then waits a few seconds more.
POLLS_OF_ENDING = 6000

# pytest redirects these to its own files, and may redirect them at any time.
STANDARD_STREAMS = frozenset((0, 1, 2))

# A leaked descriptor is reported once, for its test and not again for its module. (A leaked process is ended.)
_reported: set[tuple[int, str]] = set()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "leaves_open(reason): objects opened by this test belong to a fixture of wider scope"
    )
    processes.adopt_orphans()


def pytest_collection_finish() -> None:
    """Exclude existing objects from garbage collection: a collection then takes a millisecond instead of 80 ms."""
    gc.freeze()
    gc.enable()


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
    left = _leftovers(before)
    if left.is_empty():
        return
    lines = [f"  process {process}" for process in sorted(left.processes)]
    lines += [f"  descriptor {number} -> {target}" for number, target in sorted(left.descriptors)]
    processes.end(left.processes)
    _reported.update(left.descriptors)
    pytest.fail("\n".join(["Left behind:", *lines]), pytrace=False)


class _Open:
    """The current processes and descriptors, without those of `before`."""

    def __init__(self, before: _Open | None = None) -> None:
        self.processes: set[Process] = processes.descendants()
        self.descriptors: set[tuple[int, str]] = _open_descriptors()
        if before:
            self.processes -= before.processes
            self.descriptors -= before.descriptors | _reported

    def is_empty(self) -> bool:
        return not self.processes and not self.descriptors


def _leftovers(before: _Open) -> _Open:
    left = _Open(before)
    if left.is_empty():
        return left
    gc.collect()  # a forgotten file or socket warns when it is collected, and a warning is an error
    for poll in range(POLLS_OF_ENDING):
        left = _Open(before)
        if left.is_empty() or (poll >= POLLS and (left.descriptors or not all(map(_is_ending, left.processes)))):
            break
        time.sleep(PAUSE)
    return left


def _is_ending(process: Process) -> bool:
    """Whether a process was killed, or is a prestarted agent without a run, or an agent whose manager is dead."""
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
            continue  # the descriptor of the listing itself
    return {(number, target) for number, target in found if number not in STANDARD_STREAMS}
