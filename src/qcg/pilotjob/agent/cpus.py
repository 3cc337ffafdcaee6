"""The CPUs of this machine in the order used by batch systems: by socket, core and hardware thread."""

from __future__ import annotations

import os
from functools import cache
from itertools import groupby
from pathlib import Path

ROOT = Path("/sys/devices/system/cpu")


def usable_cpus(root: Path = ROOT) -> list[int]:
    """The CPUs that this process may use. CPUs of unknown topology come first, by number."""
    return sorted(os.sched_getaffinity(0), key=lambda cpu: _position(root, cpu))


def cpus_of_cores(root: Path = ROOT) -> list[list[int]]:
    """All CPUs of the machine, grouped by core; empty where the kernel does not report the topology."""
    positions = sorted(_position(root, int(path.parent.name[3:])) for path in root.glob("cpu[0-9]*/topology"))
    return [[position[-1] for position in core] for _, core in groupby(positions, key=lambda position: position[:-1])]


@cache
def _position(root: Path, cpu: int) -> tuple[int, int, int, int]:
    """The sort key of a CPU: socket, die, core, number. Cores on different dies of a socket may have equal numbers."""
    topology = root / f"cpu{cpu}" / "topology"
    try:
        socket, core = (int((topology / name).read_text()) for name in ("physical_package_id", "core_id"))
    except (OSError, ValueError):
        return -1, -1, -1, cpu
    try:
        die = int((topology / "die_id").read_text())
    except (OSError, ValueError):  # older kernels do not report dies
        die = 0
    return socket, die, core, cpu
