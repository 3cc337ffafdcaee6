"""Renders the report on a run as text or JSON."""

from __future__ import annotations

import io
import shlex
from typing import TYPE_CHECKING, Any

import msgspec

from qcg.pilotjob.common.printable import printable, printable_json, printable_lines
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.host.usage import bytes_text
from qcg.pilotjob.report.formats import duration, peak_text, timestamp
from qcg.pilotjob.report.run_report import Failure, RunReport, Statistics
from qcg.pilotjob.report.state_colours import colour_of
from qcg.pilotjob.report.tail import leading_to

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WHY_NOT_FINAL = {
    True: "Jobs are not finished yet: the manager is still running.",
    False: "The manager ended before all jobs did.",
}
MOST_UNREADABLE = 20
"""Most lines about parts of the registry that could not be read."""
NODE_LOST = "node lost"
"""How the messages of jobs begin that failed because their node was lost."""


def render_json(report: RunReport, **more: Any) -> str:
    """The report as JSON. `more`: further keys."""
    whole = msgspec.json.encode({**msgspec.to_builtins(report), **more})
    return printable_json(msgspec.json.format(whole, indent=2)).decode() + "\n"


def render_text(report: RunReport, width: int = 100) -> str:
    from rich.console import Console

    text = io.StringIO()
    print_report(report, Console(file=text, width=width, color_system=None, legacy_windows=False))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def print_report(report: RunReport, console: Console) -> None:
    """Print the report, in colours on a terminal. Control characters of names and messages are escaped."""
    from rich.text import Text

    def say(line: str, style: str = "") -> None:
        console.print(Text(printable_lines(line), style=style), soft_wrap=True)

    say(f"Run {report.directory}", "bold")
    if report.unreadable:
        say("The registry is damaged. All figures are without what could not be read:", "red")
        for line in report.unreadable[:MOST_UNREADABLE]:
            say(printable(f"    {line}"), "red")
        if len(report.unreadable) > MOST_UNREADABLE:
            say(f"    ... and {len(report.unreadable) - MOST_UNREADABLE} more (see --json)", "red")
    if report.started is None or report.ended is None:
        say("There are no jobs.")
        return
    elapsed = duration(report.ended - report.started)
    say(f"From {timestamp(report.started)} to {timestamp(report.ended)}, {elapsed}")
    if not report.finished:
        say(WHY_NOT_FINAL[report.at_work], "yellow")
    say("")
    console.print(_states(report))
    say("")
    if report.queue_times is not None or report.run_times is not None:
        console.print(_times(report))
        say("")
    say(_utilisation(report))
    if report.max_memory:
        say(_usage(report))
    if report.repeated:
        say(_repeated(report))
    if report.slowest:
        say("")
        console.print(_slowest(report))
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
        if report.finished and not report.at_work:
            say(f"Run failed jobs again with: qcg-pm run --resume {shlex.quote(report.directory)} --rerun failed")
    if any(failure.message.startswith(NODE_LOST) for failure in report.failures):
        say("\nWith --on-lost rerun, jobs whose node is lost are started again.")
    if report.omitted:
        say("")
        for line in report.omitted:
            say(printable(line), "yellow")
        more = report.jobs.get("OMITTED", 0) - len(report.omitted)
        if more > 0:
            say(f"... and {more} more were omitted; {_how_to_list(report, State.OMITTED)}")


def _how_to_list(report: RunReport, state: State, names: str = "") -> str:
    jobs = f"jobs {shlex.quote(names)}" if names else "jobs"
    return f"list them with: qcg-pm {jobs} --state {state.name} --path {shlex.quote(report.directory)}"


def _pattern_of(job: str) -> str:
    """The pattern of all iterations of a job; empty where its name would be a pattern itself."""
    return "" if not job or any(character in job for character in "*?[:") else f"{job}:*"


def _states(report: RunReport) -> Table:
    table = table_of("state", "jobs", *(["iterations"] if report.iterations else []))
    for state in State:
        counts = [report.jobs.get(state.name, 0)]
        if report.iterations:
            counts.append(report.iterations.get(state.name, 0))
        if any(counts):
            table.add_row(state.name, *map(str, counts), style=colour_of(state.name).style or None)
    return table


def _times(report: RunReport) -> Table:
    table = table_of("time", "least", "median", "mean", "95 %", "most")
    for name, statistics in (("in the queue", report.queue_times), ("running", report.run_times)):
        if statistics is not None:
            table.add_row(name, *durations_of(statistics))
    return table


def durations_of(statistics: Statistics) -> list[str]:
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


def _slowest(report: RunReport) -> Table:
    from rich.text import Text

    table = table_of("slowest", "time", "state", "cpu", "memory", "cores")
    for slow in report.slowest:
        cpu = "" if slow.cpu_efficiency is None else f"{slow.cpu_efficiency:.1%}"
        memory = peak_text(slow.max_memory) if slow.max_memory else ""
        if memory and slow.requested_memory:
            memory += f" of {bytes_text(slow.requested_memory)}"
        times = duration(slow.seconds)[:-3], slow.state, cpu, memory
        table.add_row(Text(printable(slow.name)), *times, Text(printable(slow.allocation)))
    return table


def _headline(failure: Failure) -> str:
    reason = failure.message or (f"exit code {failure.exit_code}" if failure.exit_code is not None else "")
    sentence = f"{failure.name} FAILED: {reason}"
    return printable(leading_to(sentence, failure.last_lines_of) if failure.last_lines else sentence)


def table_of(first: str, *others: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
