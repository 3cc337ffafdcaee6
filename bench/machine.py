"""Description of the machine for the results."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import date
from pathlib import Path


def describe() -> list[str]:
    """Lines for the docs, without names of the machine or its owner."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return [
        f"{_processor()}, {cores} cores, {memory:.0f} GiB of memory, {_system()}, Linux {platform.release()}, Python"
        f" {platform.python_version()}.",
    ]


def moment() -> str:
    return f"{date.today().isoformat()}, commit {_commit()}"


def load() -> str:
    """Load averages over 1, 5 and 15 minutes."""
    return ", ".join(f"{value:.1f}" for value in os.getloadavg())


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()


def _commit() -> str:
    """The commit, with a `+` when files have changed."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
