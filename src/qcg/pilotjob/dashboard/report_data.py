"""The data of a page in one file. Of a large run, the failed jobs and as many other jobs as fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from qcg.pilotjob.dashboard.allocations import AllocationLine, allocations_of
from qcg.pilotjob.report.launch_analysis import LaunchAnalysis, analyse_launches
from qcg.pilotjob.report.run_summary import RunSummary
from qcg.pilotjob.report.timeline import Level, Timeline, TimelineRow
from qcg.pilotjob.watch.dependency_graph import Graph
from qcg.pilotjob.watch.open import FollowedRun
from qcg.pilotjob.watch.source import JobDetails, JobLine, JobQuery, Output

MOST_LINES = 5000
"""Jobs that are listed, and iterations of all jobs together."""
BYTES_OF_LINES = 1_500_000
MOST_DETAILS = 400
"""Jobs and iterations with their attempts and the end of their output."""
BYTES_OF_DETAILS = 3_000_000
BYTES_OF_OUTPUT = 4000
SLOWEST = 200
PAGE = 1000
MOST_NODES_OF_GRAPH = 60
DEPTH_OF_GRAPH = 2
MOST_ATTEMPTS = 20_000
"""Most attempts, counted once for each of their cores, that the timeline lists one by one."""
MOST_BINS = 2000
MOST_CELLS = 250_000
"""Bins of all rows of the timeline together."""
FEWEST_BINS = 100
"""Least bins of a row; with fewer, rows of cores are left out."""
CELLS_AT_A_TIME = 30_000

T = TypeVar("T")


class Listed(Struct, frozen=True):
    """Lines of a list, and the length of the whole list."""

    total: int
    lines: tuple[JobLine, ...]


class TimelineData(Struct, frozen=True):
    first: float
    last: float
    core: tuple[TimelineRow, ...]
    node: tuple[TimelineRow, ...]


class ReportData(Struct, frozen=True):
    """The answers that the page needs. Answers about a job are stored by address."""

    summary: RunSummary
    jobs: Listed
    iterations: dict[str, Listed]
    details: dict[str, JobDetails]
    outputs: dict[str, dict[str, Output]]
    graphs: dict[str, Graph]
    timeline: TimelineData
    analysis: LaunchAnalysis
    allocations: dict[str, list[AllocationLine]]


def read_report_data(run: FollowedRun) -> ReportData:
    """Read a run for a page in one file. Raises JournalError."""
    summary = run.summary()
    jobs = _listed(run, JobQuery(), MOST_LINES)
    iterations = _iterations(run, jobs)
    details = _details(run, _most_interesting(jobs, iterations))
    return ReportData(
        summary,
        jobs,
        iterations,
        details,
        _outputs(run, details),
        _graphs(run, details),
        timeline_data(run.read_registry(Timeline.read, summary.at if summary.alive else None)),
        run.read_registry(analyse_launches),
        {"allocations": allocations_of(run)},
    )


# -- lists ----------------------------------------------------------------------------------------------------------


def _listed(run: FollowedRun, query: JobQuery, most: int) -> Listed:
    """All lines of a short list; else failed jobs, the slowest jobs, and as many others as fit."""
    total = run.jobs(replace(query, limit=1)).total
    chosen: dict[str, JobLine] = {}
    queries = [query]
    if total > most:
        slowest = replace(query, sort="duration", descending=True)
        queries = [replace(query, states=("FAILED",)), slowest, query]
    for one in queries:
        limit = min(SLOWEST, most) if one.sort == "duration" else most
        for line in _within(BYTES_OF_LINES, _pages(run, one, limit)):
            if len(chosen) >= most:
                break
            chosen.setdefault(line.name, line)
    lines = list(_within(BYTES_OF_LINES, chosen.values()))
    return Listed(total, tuple(sorted(lines, key=lambda line: line.submitted)))


def _pages(run: FollowedRun, query: JobQuery, limit: int) -> Iterator[JobLine]:
    for first in range(0, limit, PAGE):
        lines = run.jobs(replace(query, first=first, limit=min(PAGE, limit - first))).lines
        yield from lines
        if len(lines) < PAGE:
            return


def _iterations(run: FollowedRun, jobs: Listed) -> dict[str, Listed]:
    """Iterations of listed jobs, jobs with failures first."""
    found: dict[str, Listed] = {}
    left = MOST_LINES
    iterated = [line for line in jobs.lines if line.iterations]
    for line in sorted(iterated, key=lambda line: -line.iterations.get("FAILED", 0)):
        if left <= 0:
            break
        found[line.name] = _listed(run, JobQuery(job=line.name), left)
        left -= len(found[line.name].lines)
    return found


def _within(most: int, items: Iterable[T]) -> Iterator[T]:
    """The first items whose JSON fits into a number of bytes."""
    left = most
    for item in items:
        left -= len(msgspec.json.encode(item))
        if left < 0:
            return
        yield item


# -- details --------------------------------------------------------------------------------------------------------


def _most_interesting(jobs: Listed, iterations: dict[str, Listed]) -> list[str]:
    """Names of jobs and iterations, failed ones first."""
    lines = [*jobs.lines, *(line for listed in iterations.values() for line in listed.lines)]
    return [line.name for line in sorted(lines, key=lambda line: line.state != "FAILED")][:MOST_DETAILS]


def _details(run: FollowedRun, names: list[str]) -> dict[str, JobDetails]:
    found = (details for name in names if (details := run.job(name)) is not None)
    return {details.line.name: details for details in _within(BYTES_OF_DETAILS, found)}


def _outputs(run: FollowedRun, details: dict[str, JobDetails]) -> dict[str, dict[str, Output]]:
    ends = (
        (name, stream, output)
        for name, one in details.items()
        for stream in one.streams
        if (output := run.output(name, stream, -BYTES_OF_OUTPUT, BYTES_OF_OUTPUT)) is not None and output.size
    )
    found: dict[str, dict[str, Output]] = {}
    for name, stream, output in _within(BYTES_OF_DETAILS, ends):
        found.setdefault(name, {})[stream] = output
    return found


def _graphs(run: FollowedRun, details: dict[str, JobDetails]) -> dict[str, Graph]:
    jobs = dict.fromkeys(name.partition(":")[0] for name in details)
    graphs = (
        (name, graph)
        for name in jobs
        if (graph := run.graph(name, DEPTH_OF_GRAPH, MOST_NODES_OF_GRAPH)) is not None and graph.edges
    )
    return dict(_within(BYTES_OF_DETAILS // 3, graphs))


# -- timeline -------------------------------------------------------------------------------------------------------


def timeline_data(timeline: Timeline) -> TimelineData:
    """Rows of the whole run: attempts where they are few, else bins."""
    cores, nodes = timeline.lanes("core"), timeline.lanes("node")
    if timeline.attempts <= MOST_ATTEMPTS and (rows := _attempts(timeline, cores)) is not None:
        core = rows
    else:
        core = _bins(timeline, cores, "core") if cores * FEWEST_BINS <= MOST_CELLS else ()
    return TimelineData(timeline.first, timeline.last, core, _bins(timeline, nodes, "node"))


def _attempts(timeline: Timeline, lanes: int) -> tuple[TimelineRow, ...] | None:
    """Rows with all attempts; None if these are too many."""
    rows: list[TimelineRow] = []
    left = MOST_ATTEMPTS
    for lane in range(lanes):
        (row,) = timeline.rows(timeline.first, timeline.last, MOST_ATTEMPTS * 10, slice(lane, lane + 1), "core")
        left -= MOST_ATTEMPTS if row.attempts is None else len(row.attempts)
        if left < 0:
            return None
        rows.append(row)
    return tuple(rows)


def _bins(timeline: Timeline, lanes: int, level: Level) -> tuple[TimelineRow, ...]:
    bins = min(MOST_BINS, MOST_CELLS // max(lanes, 1))
    step = max(1, CELLS_AT_A_TIME // max(bins, 1))
    return tuple(
        row
        for first in range(0, lanes, step)
        for row in timeline.rows(timeline.first, timeline.last, bins, slice(first, first + step), level)
    )
