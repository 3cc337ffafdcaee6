"""The summary of a run as a small table in HTML, and as a line of text, for notebooks.

A viewer that removes styles, for example of an untrusted notebook, shows a plain bar and the symbols of states.
"""

from __future__ import annotations

from html import escape

from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.report.formats import timestamp
from qcg.pilotjob.report.run_summary import Estimate, RunSummary, progress_of
from qcg.pilotjob.report.state_colours import colour_of
from qcg.pilotjob.report.summary_style import STYLE

MOST_NOTICES = 3


def summary_text(summary: RunSummary) -> str:
    """One line: `run x: 3 of 10 done, 1 failed, 4 running, 4 of 8 cores used`."""
    done, failed, total = progress_of(summary)
    parts = [f"{done} of {total} done"]
    if failed:
        parts.append(f"{failed} not successful")
    parts += [f"{summary.running} running", f"{summary.used} of {pluralize(summary.cores, 'core')} used"]
    if summary.estimate is not None:
        parts.append(f"expected end {_time(summary.estimate.at, summary.at)}")
    return printable(f"run {summary.run}: {', '.join(parts)}")


def summary_html(summary: RunSummary) -> str:
    """A panel with a bar, the numbers by state, the cores, the expected end, and notices."""
    done, _, total = progress_of(summary)
    facts = [f"{summary.used} of {pluralize(summary.cores, 'core')} used, {summary.running} running"]
    if summary.gpus:
        facts.append(f"{summary.gpus_used:g} of {summary.gpus:g} GPUs used")
    if summary.rates is not None and summary.rates.ends:
        facts.append(f"{summary.rates.ends:.3g} ends per second")
    if summary.estimate is not None:
        facts.append(_expected(summary.estimate, summary.at))
    facts += [] if summary.alive else ["no manager runs"]
    notices = [
        f'<div class="notice" data-state="CANCELED">{_safe(notice)}</div>' for notice in summary.notices[:MOST_NOTICES]
    ]
    return (
        f'<div class="qcg-pm"><style>{STYLE}</style>'
        f'<div class="head"><b>{_safe(summary.run)}</b> <span>{done:,} of {total:,} done</span></div>'
        f'{_bar(summary, done, total)}<div class="body">{_table(summary)}'
        f'<div class="facts">{"".join(f"<div>{_safe(fact)}</div>" for fact in facts)}</div></div>'
        f"{''.join(notices)}</div>"
    )


def _bar(summary: RunSummary, done: int, total: int) -> str:
    """A part for each state, in the order of the dashboard: ended ones first."""
    ended, others = [state for state in State if state.is_final], [state for state in State if not state.is_final]
    counts = [(state.name, summary.units.get(state.name, 0)) for state in (*ended, *reversed(others))]
    label = ", ".join(f"{number:,} {name}" for name, number in counts if number) or "no jobs"
    parts = [
        f'<span data-state="{name}" title="{number:,} {name}" style="flex-grow: {number}"></span>'
        for name, number in counts
        if number
    ]
    plain = f'<progress value="{done}" max="{max(total, 1)}"></progress>'
    return f'<div class="bar" role="img" aria-label="{label}">{plain}{"".join(parts)}</div>'


def _table(summary: RunSummary) -> str:
    counts = [summary.jobs, *([summary.iterations] if summary.iterations else [])]
    heads = "".join(f"<th>{name}</th>" for name in ("", "jobs", "iterations")[: len(counts) + 1])
    states = [state.name for state in State if state.name in {**summary.jobs, **summary.iterations}]
    rows = "".join(_row(name, [numbers.get(name, 0) for numbers in counts]) for name in states)
    return f"<table><tr>{heads}</tr>{rows}</table>"


def _row(state: str, numbers: list[int]) -> str:
    mark = f'<i class="mark" aria-hidden="true">{colour_of(state).symbol}</i>'
    cells = "".join(f"<td>{number:,}</td>" if number else "<td></td>" for number in numbers)
    return f'<tr data-state="{state}"><td>{mark} {state}</td>{cells}</tr>'


def _expected(expected: Estimate, now: float) -> str:
    earliest, latest = _time(expected.earliest, now), _time(expected.latest, now)
    between = f", as likely as not between {earliest} and {latest}" if earliest != latest else ""
    return f"expected end {_time(expected.at, now)}{between}"


def _time(at: float, now: float) -> str:
    """`16:02:27`, or `2018-01-11 16:02` on another day."""
    text, today = timestamp(at), timestamp(now)
    return text[11:19] if text[:10] == today[:10] else text[:16]


def _safe(text: str) -> str:
    return escape(printable(text))
