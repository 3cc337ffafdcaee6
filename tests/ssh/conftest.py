"""Fixtures for tests with remote hosts and real SSH servers. README.md explains how to write such tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.remote_run import CHANNELS
from tests.support.ssh_lab import Lab, lent, running_lab, why_impossible


# Of module scope, although it takes a second to start: tests of a job host, which may run in the same process later,
# end every process below it.
@pytest.fixture(scope="module")
def running_hosts() -> Iterator[Lab]:
    reason = why_impossible()
    if reason is not None:
        pytest.skip(reason)
    with running_lab() as lab:
        yield lab


@pytest.fixture
def lab(running_hosts: Lab) -> Iterator[Lab]:
    """The hosts citadel, wizard, wizard2, tower and keep: all up, with fresh homes and nothing running."""
    yield from lent(running_hosts)


@pytest.fixture(params=CHANNELS)
def channel(request: pytest.FixtureRequest) -> str:
    """Both ways to talk to a host: one channel that stays open, and a connection for each command."""
    return str(request.param)
