"""The CPUs of this machine that a process may use, in the order in which batch systems count them."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path("/sys/devices/system/cpu")


def usable_cpus(root: Path = ROOT) -> list[int]:
    """By socket, then by core, then by hardware thread; those that the kernel says nothing about by their number."""
    return sorted(os.sched_getaffinity(0), key=lambda cpu: (*_place(root / f"cpu{cpu}" / "topology"), cpu))


def _place(topology: Path) -> tuple[int, int]:
    try:
        socket = int((topology / "physical_package_id").read_text())
        core = int((topology / "core_id").read_text())
    except (OSError, ValueError):
        return 0, 0
    return socket, core
