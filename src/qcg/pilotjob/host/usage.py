"""Resource usage of the processes of an attempt.

Python 3.6 reads this file.
"""

from typing import Any, Optional

from qcg.pilotjob.host.records import Usage

_BLOCK = 512
"""Bytes of the blocks in which the kernel counts input and output, whatever the file system."""


def usage_of(rusage: Any) -> Usage:
    """From the `struct_rusage` of `os.wait4`: the child, and its descendants that were waited for."""
    return Usage(
        int(rusage.ru_utime * 1e6 + 0.5),
        int(rusage.ru_stime * 1e6 + 0.5),
        rusage.ru_maxrss,
        rusage.ru_minflt,
        rusage.ru_majflt,
        rusage.ru_inblock * _BLOCK,
        rusage.ru_oublock * _BLOCK,
    )


def added(one: Usage, other: Optional[Usage]) -> Usage:
    """The usage of processes that ran at the same time, or one after another: everything but the peak is a sum."""
    if other is None:
        return one
    counts = [own + more for own, more in zip(one, other)]
    counts[2] = max(one.memory, other.memory)
    return Usage(*counts)


def bytes_text(count: float) -> str:
    """An amount of memory or data with its unit: `512 B`, `31.2 MiB`."""
    if count < 1024:
        return "%d B" % count
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1023.95:
            return "%.1f %s" % (count, unit)
    return "%.1f TiB" % (count / 1024)
