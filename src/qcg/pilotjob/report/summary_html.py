"""The summary of a run as a small table in HTML, and as a line of text, for notebooks."""

from __future__ import annotations

from html import escape

from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.report.formats import timestamp
from qcg.pilotjob.report.run_summary import Estimate, RunSummary, progress_of
from qcg.pilotjob.report.state_colours import colour_of

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
    """A table with the numbers by state, the cores, the expected end, and notices."""
    done, _, total = progress_of(summary)
    rows = [
        ("", "jobs", *(["iterations"] if summary.iterations else [])),
        *[_state_row(summary, state) for state in State if state.name in {**summary.jobs, **summary.iterations}],
    ]
    facts = [f"{summary.used} of {pluralize(summary.cores, 'core')} used, {summary.running} running"]
    if summary.gpus:
        facts.append(f"{summary.gpus_used:g} of {summary.gpus:g} GPUs used")
    if summary.rates is not None and summary.rates.ends:
        facts.append(f"{summary.rates.ends:.3g} ends per second")
    if summary.estimate is not None:
        facts.append(_expected(summary.estimate, summary.at))
    facts += [] if summary.alive else ["no manager runs"]
    facts += summary.notices[:MOST_NOTICES]
    cells = "".join(_row(row, "th" if number == 0 else "td") for number, row in enumerate(rows))
    bar = f'<progress value="{done}" max="{max(total, 1)}" style="width: 16em"></progress> {done:,} of {total:,} done'
    return (
        f'<div class="qcg-pm"><div><b>{_safe(summary.run)}</b></div><div>{bar}</div>'
        f"<table>{cells}</table>{''.join(f'<div>{_safe(fact)}</div>' for fact in facts)}</div>"
    )


def _state_row(summary: RunSummary, state: State) -> tuple[str, ...]:
    numbers = [summary.jobs.get(state.name, 0)]
    if summary.iterations:
        numbers.append(summary.iterations.get(state.name, 0))
    return f"{colour_of(state.name).symbol} {state.name}", *[f"{number:,}" if number else "" for number in numbers]


def _row(cells: tuple[str, ...], tag: str) -> str:
    aligned = [f'<{tag} style="text-align: {"right" if place else "left"}">' for place in range(len(cells))]
    return f"<tr>{''.join(f'{begin}{_safe(cell)}</{tag}>' for begin, cell in zip(aligned, cells, strict=True))}</tr>"


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
