"""The number of further processes and threads that resource limits and control groups allow."""

from __future__ import annotations

import contextlib
import math
import resource
from pathlib import Path, PurePosixPath


def available_processes(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """By the control groups of this process, and by `ulimit -u`; infinite without limits."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    available = math.inf if soft == resource.RLIM_INFINITY else float(soft)
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or "pids" in controllers.split(","):
                top = groups / controllers if controllers else groups
                inside = PurePosixPath(path.lstrip("/"))
                available = min([available, *(_available_in(top / group) for group in (inside, *inside.parents))])
    return available


def _available_in(group: Path) -> float:
    try:
        return int((group / "pids.max").read_text()) - int((group / "pids.current").read_text())
    except (OSError, ValueError):  # the group is not visible, or "max"
        return math.inf
