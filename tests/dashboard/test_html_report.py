"""`qcg-pm report --html`: the page in one file, opened without a network."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.dashboard import report_data
from qcg.pilotjob.dashboard.html_report import html_report
from qcg.pilotjob.journal.aggregates import job_states
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.runs import rundir
from qcg.pilotjob.watch import first_summary
from tests.support.browser import open_page, show
from tests.support.pilot import WAIT, job, run, run_requests
from tests.support.waiting import wait_for
from tests.support.watched_run import running, waiting_job

HOSTILE = "<script>window.harmed=1</script>"


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wd = tmp_path_factory.mktemp("ended")
    line = "printf '</script><script>window.harmed=1</script>\\033[31m' >&2; exit 4"
    run_requests(
        wd,
        [
            job("prepare", "true"),
            job("sweep", "sh", "-c", "[ ${it} != 2 ]", iteration={"stop": 5}, after=["prepare"]),
            job(HOSTILE, "sh", "-c", line, stderr="hostile.err", after=["prepare"]),
        ],
        WAIT,
        options=("--nodes", "2x2"),
    )
    return wd


@pytest.fixture(scope="module")
def report(ended: Path) -> str:
    """The address of the page."""
    done = run("qcg-pm", "report", ended, "--html", ended / "report.html")
    assert (done.returncode, done.stdout) == (0, "")
    return (ended / "report.html").as_uri()


def data_of(file: Path) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="run-data">(.*?)</script>', file.read_text(), re.DOTALL)
    return dict(json.loads(text))


def test_the_report_shows_the_run_without_a_request(browser: Any, report: str):
    requests: list[str] = []
    with open_page(browser, report) as page:
        page.on("request", lambda request: requests.append(request.url))
        page.reload()
        page.wait_for_selector("#live-mark:text-is('run has ended')")
        assert page.inner_text("#done-percent") == "100 %"
        page.wait_for_selector(".legend [data-state=FAILED] b:text-is('2')")
        show(page, "timeline")
        page.click("summary:has-text('Attempts in this window: 7')")
        show(page, "nodes")
        assert page.locator(".node-card").count() == 2
        show(page, "jobs?state=FAILED")
        page.wait_for_selector("tbody tr:nth-child(2)")
        page.click("a:text-is('5 iterations')")
        page.wait_for_selector("tbody tr:nth-child(5)")
        page.click("a:text-is('sweep:2')")
        page.wait_for_selector("main .badge[data-state=FAILED]")
        page.wait_for_selector(".dependency-graph .node:has-text('prepare')")
        show(page, "allocations")
        page.wait_for_selector("text=This run has no allocations")
    assert requests == [report]


def test_hostile_text_does_nothing(browser: Any, report: str):
    with open_page(browser, report) as page:
        page.wait_for_selector(".last-lines:has-text('</script><script>window.harmed=1</script>\\\\x1b[31m')")
        show(page, "jobs")
        page.locator(".job-name", has_text="window.harmed").click()
        page.wait_for_selector(".output:has-text('\\\\x1b[31m')")
        assert page.inner_text("h2.job-title") == HOSTILE
        assert page.evaluate("window.harmed") is None


def test_nothing_can_be_changed(browser: Any, report: str):
    with open_page(browser, report, "job/prepare") as page:
        page.wait_for_selector("main .badge[data-state=SUCCEED]")
        assert page.locator("[data-action]").count() == 0


def stored_states(wd: Path) -> dict[State, int]:
    (registry,) = wd.glob(f"{rundir.PREFIX}*/{FILE_NAME}")
    with snapshot(registry, whole=False) as connection:
        return job_states(connection)


def test_a_run_that_crashed_is_shown(browser: Any, tmp_path: Path):
    with running(tmp_path, waiting_job("one", "never"), job("two", "true")) as process:
        wait_for(lambda: "SUCCEED" in run("qcg-pm", "jobs", "-p", tmp_path).stdout)
        wait_for(lambda: stored_states(tmp_path)[State.SUCCEED] == 1)
        process.kill()
        process.wait(30)
        assert run("qcg-pm", "report", tmp_path, "--html", tmp_path / "page.html").returncode == 0
        with open_page(browser, (tmp_path / "page.html").as_uri()) as page:
            assert page.inner_text("#live-mark") == "no manager"
            page.wait_for_selector(".legend [data-state=SUCCEED] b:text-is('1')")


def test_only_listed_jobs_are_in_a_page_about_many(ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(report_data, "MOST_LINES", 2)
    monkeypatch.setattr(report_data, "MOST_DETAILS", 1)
    (tmp_path / "page.html").write_bytes(html_report(ended))
    data = data_of(tmp_path / "page.html")
    assert data["jobs"]["total"] == 3
    assert {line["name"] for line in data["jobs"]["lines"]} == {"sweep", HOSTILE}
    assert data["iterations"]["sweep"]["total"] == 5
    assert data["iterations"]["sweep"]["lines"][0]["name"] == "sweep:2"
    assert [details["line"]["state"] for details in data["details"].values()] == ["FAILED"]


def test_a_page_about_a_large_run_has_the_whole_summary(ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Displays of a large run get a first summary, which has counts alone. Nothing follows it in a file."""
    monkeypatch.setattr(first_summary, "LARGE", 1)
    (tmp_path / "page.html").write_bytes(html_report(ended))
    summary = data_of(tmp_path / "page.html")["summary"]
    assert summary["history"] is not None
    assert summary["ended"] is not None
    assert [group["count"] for group in summary["failed"]] == [1, 1]


def test_an_old_page_is_replaced_and_a_bad_place_is_a_sentence(ended: Path, tmp_path: Path):
    file = tmp_path / "page.html"
    file.write_text("old")
    assert run("qcg-pm", "report", ended, "--html", file).returncode == 0
    assert file.read_text().startswith("<!DOCTYPE html>")
    done = run("qcg-pm", "report", ended, "--html", tmp_path / "missing" / "page.html")
    assert done.returncode == 2
    assert "could not be written: No such file or directory" in done.stderr


def test_a_directory_without_a_run_is_reported_in_one_sentence(tmp_path: Path):
    done = run("qcg-pm", "report", tmp_path, "--html", tmp_path / "page.html")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "page.html").exists()
