"""EASY backfill as published by Lifka (1995): a simulator of its own, which counts processors and nothing else.

The first job that does not fit gets a reservation at the time when enough processors will be free, by the wall times
of running jobs. A later job starts if it fits and either ends before that time or uses processors that are left then.
"""

from __future__ import annotations

import heapq

from bench.swf import TraceJob
from bench.traces import Trace


def starts(trace: Trace) -> dict[int, float]:
    """The start of each job, by its number."""
    found: dict[int, float] = {}
    waiting: list[TraceJob] = []
    running: dict[int, tuple[float, int]] = {}
    ends: list[tuple[float, int]] = []
    arrivals = list(reversed(trace.jobs))
    free = trace.cores
    while arrivals or ends:
        now = min([*[job.submitted for job in arrivals[-1:]], *[end for end, _ in ends[:1]]])
        while ends and ends[0][0] == now:
            _, number = heapq.heappop(ends)
            free += running.pop(number)[1]
        while arrivals and arrivals[-1].submitted == now:
            waiting.append(arrivals.pop())
        for job in _chosen(waiting, running, free, now):
            found[job.number] = now
            free -= job.cores
            running[job.number] = (now + job.limit, job.cores)
            heapq.heappush(ends, (now + job.seconds, job.number))
            waiting.remove(job)
    return found


def _chosen(waiting: list[TraceJob], running: dict[int, tuple[float, int]], free: int, now: float) -> list[TraceJob]:
    """The jobs that are started now."""
    chosen: list[TraceJob] = []
    position = 0
    while position < len(waiting) and waiting[position].cores <= free:
        chosen.append(waiting[position])
        free -= waiting[position].cores
        position += 1
    if position == len(waiting) or not free:
        return chosen
    first = waiting[position]
    expected = sorted([*running.values(), *[(now + job.limit, job.cores) for job in chosen]])
    at, then = now, free
    for end, cores in expected:
        at, then = max(end, now), then + cores
        if then >= first.cores:
            break
    left = then - first.cores
    for job in waiting[position + 1 :]:
        if job.cores > free:
            continue
        if now + job.limit <= at:
            chosen.append(job)
            free -= job.cores
        elif job.cores <= left:
            chosen.append(job)
            free -= job.cores
            left -= job.cores
        if not free:
            break
    return chosen
