"""Renders the report on a run as text or JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import msgspec

from qcg.pilotjob.common.printable import printable, printable_json, printable_lines
from qcg.pilotjob.common.styled_lines import BOLD, Line, plain_text, table_lines
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.host.usage import bytes_text
from qcg.pilotjob.report.formats import duration, peak_text, timestamp
from qcg.pilotjob.report.run_report import Failure, RunReport, Statistics
from qcg.pilotjob.report.state_colours import colour_of
from qcg.pilotjob.report.tail import leading_to

WHY_NOT_FINAL = {
    True: "Jobs are not finished yet: the manager is still running.",
    False: "The manager ended before all jobs did.",
}
MOST_UNREADABLE = 20
"""Most lines about parts of the registry that could not be read."""
NODE_LOST = "node lost"
"""Prefix of the messages of jobs that failed because their node was lost."""


def render_json(report: RunReport, **more: Any) -> str:
    """The report as JSON. `more`: further keys."""
    whole = msgspec.json.encode({**msgspec.to_builtins(report), **more})
    return printable_json(msgspec.json.format(whole, indent=2)).decode() + "\n"


def render_text(report: RunReport) -> str:
    return plain_text(report_lines(report))


def report_lines(report: RunReport) -> list[Line]:
    """The report as text. Control characters of names and messages are escaped."""
    lines: list[Line] = []

    def say(line: str, style: str = "") -> None:
        lines.append(Line(printable_lines(line), style))

    say(f"Run {report.directory}", BOLD)
    if report.unreadable:
        say("The registry is damaged. All figures are without what could not be read:", "red")
        for line in report.unreadable[:MOST_UNREADABLE]:
            say(printable(f"    {line}"), "red")
        if len(report.unreadable) > MOST_UNREADABLE:
            say(f"    ... and {len(report.unreadable) - MOST_UNREADABLE} more (see --json)", "red")
    if report.started is None or report.ended is None:
        say("There are no jobs.")
        return lines
    elapsed = duration(report.ended - report.started)
    say(f"From {timestamp(report.started)} to {timestamp(report.ended)}, {elapsed}")
    if not report.finished:
        say(WHY_NOT_FINAL[report.at_work], "yellow")
    say("")
    lines += _states(report)
    say("")
    if report.queue_times is not None or report.run_times is not None:
        lines += _times(report)
        say("")
    say(_utilisation(report))
    if report.max_memory:
        say(_usage(report))
    if report.repeated:
        say(_repeated(report))
    if report.slowest:
        say("")
        lines += _slowest(report)
    for failure in report.failures:
        say("")
        say(_headline(failure), "red")
        for line in failure.last_lines:
            say(f"    {line}")
    if report.failed > len(report.failures):
        names = _pattern_of(report.unlisted)
        how_to_list = _how_to_list(report, State.FAILED, names)
        say(f"\n... and {report.failed - len(report.failures)} more failed; {how_to_list}")
        if report.iterations.get(State.FAILED.name) and not names:
            say("With 'NAME:*' behind it, it lists the failed iterations of job NAME.")
    if any(failure.message.startswith(NODE_LOST) for failure in report.failures):
        say("\nWith --on-lost rerun, jobs whose node is lost are started again.")
    if report.omitted:
        say("")
        for line in report.omitted:
            say(printable(line), "yellow")
        more = report.jobs.get("OMITTED", 0) - len(report.omitted)
        if more > 0:
            say(f"... and {more} more were omitted; {_how_to_list(report, State.OMITTED)}")
    if report.failed and report.finished and not report.at_work:
        again = f"qcg-pm run --resume {shlex.quote(report.directory)} --rerun failed"
        say(f"\nTo run failed jobs again: {again} (and --from FILE, if you have corrected FILE)")
    return lines


def _how_to_list(report: RunReport, state: State, names: str = "") -> str:
    jobs = f"jobs {shlex.quote(names)}" if names else "jobs"
    return f"list them with: qcg-pm {jobs} --state {state.name} --path {shlex.quote(report.directory)}"


def _pattern_of(job: str) -> str:
    """The pattern of all iterations of a job; empty where its name would be a pattern itself."""
    return "" if not job or any(character in job for character in "*?[:") else f"{job}:*"


def _states(report: RunReport) -> list[Line]:
    head = ["state", "jobs", *(["iterations"] if report.iterations else [])]
    rows = []
    for state in State:
        counts = [report.jobs.get(state.name, 0)]
        if report.iterations:
            counts.append(report.iterations.get(state.name, 0))
        if any(counts):
            rows.append([state.name, *counts])
    return table_lines(head, rows, head[1:], lambda cells: colour_of(cells[0]).style)


def _times(report: RunReport) -> list[Line]:
    return times_table([("in the queue", report.queue_times), ("running", report.run_times)])


def times_table(rows: Sequence[tuple[str, Statistics | None]]) -> list[Line]:
    """A table with statistics of times, one row for each name, without unknown times."""
    columns = ("least", "median", "mean", "95 %", "most")
    known = [[name, *_durations_of(statistics)] for name, statistics in rows if statistics is not None]
    return table_lines(["time", *columns], known, columns)


def _durations_of(statistics: Statistics) -> list[str]:
    values = (statistics.least, statistics.median, statistics.mean, statistics.percentile95, statistics.most)
    return [duration(value)[:-3] for value in values]


def _utilisation(report: RunReport) -> str:
    busy = f"{report.busy_core_seconds / 3600:.3f} core-hours used"
    if report.utilisation is None:
        return busy
    cores = pluralize(report.cores or 0, "core")
    if round(report.utilisation, 3) > 1:
        return f"{busy}, more than {cores} can give in that time: earlier managers of this run had others"
    return f"{busy}, {report.utilisation:.1%} of {cores} on {pluralize(report.nodes or 0, 'node')}"


def _usage(report: RunReport) -> str:
    """CPU efficiency, and the memory of the largest attempt against the memory asked for."""
    efficiency = "" if report.cpu_efficiency is None else f"CPU efficiency {report.cpu_efficiency:.1%}; "
    text = f"{efficiency}at most {bytes_text(report.max_memory)} of memory in one attempt"
    if report.memory_efficiency is None:
        return text
    return f"{text}; the largest share of its `mem` that an attempt used was {report.memory_efficiency:.1%}"


def _repeated(report: RunReport) -> str:
    number = pluralize(sum(report.repeated.values()), "attempt was repeated", "attempts were repeated")
    return f"{number}: {', '.join([f'{count} {cause}' for cause, count in report.repeated.items()])}"


def _slowest(report: RunReport) -> list[Line]:
    rows = []
    for slow in report.slowest:
        cpu = "" if slow.cpu_efficiency is None else f"{slow.cpu_efficiency:.1%}"
        memory = peak_text(slow.max_memory) if slow.max_memory else ""
        if memory and slow.requested_memory:
            memory += f" of {bytes_text(slow.requested_memory)}"
        rows.append([slow.name, duration(slow.seconds)[:-3], slow.state, cpu, memory, slow.allocation])
    columns = ("time", "state", "cpu", "memory", "cores")
    return table_lines(["slowest", *columns], rows, columns)


def _headline(failure: Failure) -> str:
    reason = failure.message or (f"exit code {failure.exit_code}" if failure.exit_code is not None else "")
    sentence = f"{failure.name} FAILED: {reason}"
    return printable(leading_to(sentence, failure.last_lines_of) if failure.last_lines else sentence)
