"""Writes results into the page on performance, between its markers, and draws the plot.

Some benchmarks have a section of their own, which is written whenever they are measured."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bench.finding import Finding, Result
from bench.plot import draw

DOCS = Path(__file__).parents[1] / "docs/explanation"
PAGE = DOCS / "performance.md"
PLOT = DOCS / "performance.svg"
BEGIN = "<!-- figures: written by make bench -->"
END = "<!-- end of figures -->"
SECTIONS = ("remote",)
"""The benchmarks with a section of their own."""
MOST_DIGITS = 6


class PageError(Exception):
    """The page has no markers."""


def write(results: Iterable[Result], on: list[str], how: list[str]) -> None:
    """Write the page and the plot. `on`: the machine; `how`: one line for each benchmark."""
    results = list(results)
    about = ["\n".join(on), "\n".join(f"- {line}" for line in how)]
    PAGE.write_text(put_between(PAGE.read_text(), figures(results, about)))
    PLOT.write_text(draw([series for result in results for series in result.series]))


def write_section(name: str, result: Result, on: list[str], how: str) -> None:
    """Write the section of one benchmark."""
    begin, end = markers_of(name)
    text = figures([result], ["\n".join(on), f"- {how}"], plot=False)
    PAGE.write_text(put_between(PAGE.read_text(), text, begin, end))


def markers_of(name: str) -> tuple[str, str]:
    """The markers around the section of a benchmark."""
    return f"<!-- figures of {name}: written by make bench -->", f"<!-- end of figures of {name} -->"


def put_between(page: str, text: str, begin: str = BEGIN, end: str = END) -> str:
    """The page with this text between its markers."""
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise PageError(f"{PAGE} has no markers {begin} and {end}, between which the figures are written")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def figures(results: list[Result], about: list[str], *, plot: bool = True) -> str:
    findings = [finding for result in results for finding in result.findings]
    bars = table(["what", "measured", "bar", "", "remark"], [_row(finding) for finding in findings if finding.bar])
    others = table(
        ["what", "measured", "remark"], [_row_without_bar(finding) for finding in findings if not finding.bar]
    )
    missing = [f"- not measured: {why}" for result in results for why in result.missing]
    picture = f"![Jobs a second, as bars]({PLOT.name})" if plot else ""
    return "\n\n".join(filter(None, [*about, bars, picture, others, "\n".join(missing)]))


def table(head: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines)


def _row(finding: Finding) -> list[str]:
    verdict = {True: "reached", False: "**missed**", None: ""}[finding.reached]
    return [finding.what, amount(finding), finding.bar, verdict, finding.note]


def _row_without_bar(finding: Finding) -> list[str]:
    return [finding.what, amount(finding), finding.note]


def amount(finding: Finding) -> str:
    """The value with enough digits to show on which side of its target it is."""
    value = finding.value
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 else 3
    while digits < MOST_DIGITS and _side(round(value, digits), finding.limit) != _side(value, finding.limit):
        digits += 1
    return f"{value:,.{digits}f} {finding.unit}".rstrip()


def _side(value: float, limit: float | None) -> int:
    return 0 if limit is None else (value > limit) - (value < limit)
