"""Instructions of the manager for a job, counted by callgrind."""

from __future__ import annotations

import shutil

import pytest

from bench.instructions import ROOT, WAYS, instructions_for_a_job

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("valgrind") is None, reason="no callgrind (package valgrind)"),
]


@pytest.mark.timeout(600)
def test_the_count_is_plausible_and_iterations_cost_less() -> None:
    separate, iterated = [instructions_for_a_job(ROOT, way) for way in WAYS.values()]
    assert 50_000 < iterated < separate < 1_000_000
