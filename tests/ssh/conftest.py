"""Fixtures for tests with remote hosts and real SSH servers. README.md explains how to write such tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.directory_scope import kept_for_directory
from tests.support.remote_run import CHANNELS
from tests.support.ssh_lab import Lab, lent, running_lab, why_impossible


@pytest.fixture
def running_hosts(request: pytest.FixtureRequest) -> Lab:
    reason = why_impossible()
    if reason is not None:
        pytest.skip(reason)
    return kept_for_directory(request.node, "hosts", running_lab)


@pytest.fixture
def lab(running_hosts: Lab) -> Iterator[Lab]:
    """The hosts citadel, wizard, wizard2, tower and keep: all up, with fresh homes and nothing running."""
    yield from lent(running_hosts)


@pytest.fixture(params=["serve", pytest.param("one-shot", marks=pytest.mark.long)])
def any_channel(request: pytest.FixtureRequest) -> str:
    """For tests of what does not depend on the channel: the other mode belongs to the long tier."""
    return str(request.param)


@pytest.fixture(params=CHANNELS)
def channel(request: pytest.FixtureRequest) -> str:
    """Both ways to talk to a host: one channel that stays open, and a connection for each command."""
    return str(request.param)
