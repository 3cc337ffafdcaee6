"""The summary of a run as a table for notebooks."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from qcg.pilotjob.report.run_summary import Estimate, Rates, progress_of
from qcg.pilotjob.report.summary_html import summary_html, summary_text
from tests.report.test_metrics_text import summary
from tests.support.hostile_texts import HOSTILE, harm_in


class Page(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text: list[str] = []
        self.rows: list[list[str]] = []
        """The cells of the table."""
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attributes: object) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data


def test_the_table_has_the_states_with_jobs_or_iterations():
    html = summary_html(summary())
    assert Page(html).rows == [
        ["", "jobs", "iterations"],
        ["· QUEUED", "2", "57"],
        ["▸ EXECUTING", "1", ""],
        ["✓ SUCCEED", "", "40"],
        ["✗ FAILED", "", "3"],
    ]
    assert '<progress value="43" max="102"' in html
    assert not Page(html).open


def test_without_iterations_it_has_no_column_for_them():
    assert Page(summary_html(summary(iterations={}))).rows[0] == ["", "jobs"]


def test_cores_rates_and_the_expected_end_are_shown():
    html = summary_html(summary(rates=Rates(1.0, 2.5, 10.0), notices=("node n1 is away",)))
    for fact in ("5 of 8 cores used, 5 running", "0.5 of 2 GPUs used", "2.5 ends per second", "node n1 is away"):
        assert fact in html
    assert "expected end " in html
    assert ", as likely as not between " in html


def test_the_table_shows_that_no_manager_runs():
    assert "no manager runs" in summary_html(summary(alive=False))


def test_the_text_is_one_line():
    assert summary_text(summary(estimate=None)) == (
        "run wizard.1: 43 of 102 done, 3 not successful, 5 running, 5 of 8 cores used"
    )
    later = Estimate(1100.5 + 10 * 86400, 0.0, 0.0, "")
    assert ", expected end 1970-01-11 " in summary_text(summary(estimate=later))


def test_cancelled_jobs_are_not_called_failed():
    text = summary_text(summary(units={"SUCCEED": 1, "CANCELED": 3}))
    assert "4 of 4 done, 3 not successful" in text
    assert "failed" not in text


def test_jobs_that_ended_without_success_count_as_failed():
    units = {"SUCCEED": 1, "FAILED": 2, "CANCELED": 3, "OMITTED": 4, "EXECUTING": 5}
    assert progress_of(summary(units=units)) == (10, 9, 15)
    assert progress_of(summary(units={})) == (0, 0, 0)


@pytest.mark.parametrize("text", [*HOSTILE.values(), "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'])
def test_names_and_notices_are_not_interpreted_as_html(text: str):
    plain = Page(summary_html(summary(run="x", notices=("y",))))
    html = summary_html(summary(run=text, notices=(text,)))
    assert not harm_in(html)
    assert Page(html).tags == plain.tags
    assert not harm_in(summary_text(summary(run=text)))
