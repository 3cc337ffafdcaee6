"""Memory limits that a real kernel enforces, with cgroups of version 2, in a virtual machine.

The kernel of the machine that runs the tests may have none, or others may use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.guest_init import PASSED
from tests.support.virtual_machine import run_in_vm


@pytest.mark.long
def test_the_kernel_enforces_memory_limits(tmp_path: Path) -> None:
    console = run_in_vm(tmp_path, "tests.host.real_cgroups")
    if PASSED not in console:
        # An assertion would cut the output short.
        pytest.fail(console, pytrace=False)
