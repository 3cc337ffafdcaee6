"""The CPUs of this machine, in the order in which batch systems count them: by socket, core and hardware thread."""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import Path

ROOT = Path("/sys/devices/system/cpu")


def usable_cpus(root: Path = ROOT) -> list[int]:
    """Those that this process may use. Those that the kernel says nothing about come first, by their number."""
    return sorted(os.sched_getaffinity(0), key=lambda cpu: _place(root, cpu))


def cpus_of_cores(root: Path = ROOT) -> list[list[int]]:
    """All that the machine has, those of each core together; empty where the kernel does not tell."""
    places = sorted(_place(root, int(path.parent.name[3:])) for path in root.glob("cpu[0-9]*/topology"))
    return [[place[-1] for place in core] for _, core in groupby(places, key=lambda place: place[:-1])]


def _place(root: Path, cpu: int) -> tuple[int, int, int, int]:
    """Socket, die, core, and the number itself. Cores of the dies of a socket may have the same numbers."""
    topology = root / f"cpu{cpu}" / "topology"
    try:
        socket, core = (int((topology / name).read_text()) for name in ("physical_package_id", "core_id"))
    except (OSError, ValueError):
        return -1, -1, -1, cpu
    try:
        die = int((topology / "die_id").read_text())
    except (OSError, ValueError):  # older kernels do not know of dies
        die = 0
    return socket, die, core, cpu
