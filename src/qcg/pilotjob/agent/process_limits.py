"""How many more processes and threads this one may have, as far as anybody has set a limit."""

from __future__ import annotations

import contextlib
import math
import resource
from pathlib import Path, PurePosixPath


def room_for_processes(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """By the control groups that it is in, and by `ulimit -u`; infinite without limits."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    room = math.inf if soft == resource.RLIM_INFINITY else float(soft)
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or "pids" in controllers.split(","):
                top = groups / controllers if controllers else groups
                inside = PurePosixPath(path.lstrip("/"))
                room = min([room, *(_room_in(top / group) for group in (inside, *inside.parents))])
    return room


def _room_in(group: Path) -> float:
    try:
        return int((group / "pids.max").read_text()) - int((group / "pids.current").read_text())
    except (OSError, ValueError):  # no such group in sight, or "max"
        return math.inf
