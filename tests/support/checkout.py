"""A plugin that fails a run of tests which leaves files in the root of the checkout."""

from __future__ import annotations

import os
from collections.abc import Set

import pytest

CACHES = frozenset(
    (
        ".cache",
        ".coverage",
        ".hypothesis",
        ".import_linter_cache",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        "__pycache__",
        "build",
    )
)
"""Names that tools create there."""

_BEFORE = pytest.StashKey[Set[str]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.stash[_BEFORE] = _names(session.config)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.OK and _left(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left = _left(config)
    if left:
        terminalreporter.section("files left in the checkout", red=True)
        terminalreporter.line(f"{', '.join(left)}; give the test a working directory of its own.")


def _left(config: pytest.Config) -> list[str]:
    """Names of new files."""
    names = _names(config)
    return sorted(names - config.stash.get(_BEFORE, names))


def _names(config: pytest.Config) -> Set[str]:
    return frozenset(os.listdir(config.rootpath)) - CACHES
