"""A plugin that splits the tests into two tiers: those of `make test`, and the long campaigns of `make test-long`.

- `@pytest.mark.long`: the test runs with `pytest --long` only.
- `@pytest.mark.sampled`: the test runs in both tiers, and tries more with `--long`. `per_tier(10, 200)` is how much.

A campaign that is `long` has a small part in the short tier, with a fixed seed: most often the same test with other
parameters.
"""

from __future__ import annotations

import pytest

_is_long = False


def per_tier(short: int, long: int) -> int:
    """The amount for the current tier: examples, seeds, rounds."""
    return long if _is_long else short


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long campaigns, and these only")


def pytest_configure(config: pytest.Config) -> None:
    global _is_long
    config.addinivalue_line("markers", "long: a campaign that runs with --long only")
    config.addinivalue_line("markers", "sampled: the test tries more with --long")
    _is_long = config.getoption("--long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _is_long:
        chosen = [item for item in items if item.get_closest_marker("long") or item.get_closest_marker("sampled")]
    else:
        chosen = [item for item in items if not item.get_closest_marker("long")]
    if len(chosen) < len(items):
        kept = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = chosen
