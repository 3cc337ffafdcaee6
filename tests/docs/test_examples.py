"""Executes every example of the documents."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.output import DIRECTORY, same
from tests.docs.pages import CLUSTER_PAGES, HOST_PAGES, PAGES, ROOT, Block, blocks_of, commands_of
from tests.docs.running import PageDirectory
from tests.support.pilot import Run, run


@pytest.mark.any_worker
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page not in [*CLUSTER_PAGES, *HOST_PAGES]],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_every_example_of_a_page_prints_what_the_page_shows(page: Path, tmp_path: Path):
    directory = PageDirectory(tmp_path)
    for block in blocks_of(page):
        directory.execute(block)
    assert not directory.unused, f"no command uses {', '.join(directory.unused)} of {page.name}"


def test_the_example_of_make_run_approximates_pi(tmp_path: Path):
    arguments = ["run", "examples/quickstart.json", "--wd", "build/run", "--nodes", "2x4"]
    assert f"qcg-pm {' '.join(arguments)}\n" in (ROOT / "Makefile").read_text()
    arguments[3] = str(tmp_path)
    done = run("qcg-pm", *arguments, "--report-format", "json", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    report = Run(tmp_path, done).report
    assert {entry["state"] for entry in report.values()} == {"SUCCEED"}
    sizes = {name: report[name]["runtime"]["allocation"].count(":") + 1 for name in ("integral", "series", "throw:0")}
    assert sizes == {"integral": 4, "series": 4, "throw:0": 1}
    results = [float(line.split()[0]) for line in (tmp_path / "pi.txt").read_text().splitlines()]
    assert results == pytest.approx([3.14159] * 3, abs=0.003)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_existing_files(page: Path):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_with_anchors_lead_to_existing_headings(page: Path):
    for target, anchor in re.findall(r"\]\(([^)#]*)#([^)]*)\)", page.read_text()):
        if "://" not in target:
            there = page.parent / target if target else page
            assert anchor in anchors_of(there.read_text()), f"{page.name} links to {target}#{anchor}"


def test_the_picture_in_the_readme_shows_an_executed_example():
    page, heading = "docs/tutorials/first-run.md", "Continue after a crash"
    made = subprocess.run(
        [sys.executable, "scripts/terminal-picture", page, heading],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (ROOT / "docs/images/resume.svg").read_text() == made.stdout, (
        f"make it anew: scripts/terminal-picture {page} '{heading}' > docs/images/resume.svg"
    )


def anchors_of(text: str) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and the documentation site derive them."""
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_anchors_are_derived_from_headings():
    assert anchors_of("# A job: what?\n```\n# no heading\n```\n## `wait4`, 0.2\n") == {"a-job-what", "wait4-02"}


# The comparison itself.


def test_times_pids_and_run_names_may_differ():
    shown = f"Run {DIRECTORY}/.qcgpjm-service-laptop.1\nFrom 2026-01-02 03:04:05.678901, 0:00:01.234567\n\npid: 12"
    printed = "Run /tmp/x/.qcgpjm-service-vm.77\nFrom 2027-11-12 13:14:15.678901,  0:00:59.000000\npid: 4711\n"
    assert same(shown, printed, Path("/tmp/x"))


def test_the_order_of_slowest_jobs_may_differ():
    one, other, last = "a 0:00:00.2 SUCCEED n0[0]\n", "b 0:00:00.1 FAILED n0[1:2]\n", "the end\n"
    assert same(one + other + last, other + one + last, Path("/tmp/x"))
    assert not same(one + other + last, other + last + one, Path("/tmp/x"))
    assert not same(one + other, one.replace("n0[0]", "n0[3]") + other, Path("/tmp/x"))


@pytest.mark.parametrize("printed", ["a SUCCEED\n", "a FAILED\nb FAILED\n", "", "a FAILED: why\n"])
def test_all_other_text_must_match(printed: str):
    assert not same("a FAILED\n", printed, Path("/tmp/x"))


def test_three_dots_match_anything():
    assert same("first\n...\nlast ... word\n", "first\nsecond\nthird\nlast but one word\n", Path("/tmp/x"))
    assert not same("first\n...\nlast\n", "second\nlast\n", Path("/tmp/x"))


def test_a_backslash_continues_a_command():
    block = Block(ROOT, 1, "console", "$ one \\\n    two\nout\nput\n$ three\n", "", "")
    assert [(command.line, command.expected) for command in commands_of(block)] == [
        ("one \\\n    two\n", "out\nput\n"),
        ("three\n", ""),
    ]


@pytest.mark.parametrize(
    ("language", "text", "complaint"),
    [
        ("text", "a picture\n", "nothing checks this block"),
        ("console", "$ echo printed\nshown\n", "printed"),
        ("json", '{"name": "a", "exec": "true", "numCore": 1}\n', "schema refuses"),
        ("json", '[{"request": "submit", "jobs": [{"name": "a", "exec": "false"}]}]\n', "a FAILED: exit code 1"),
    ],
)
def test_a_wrong_example_is_detected(language: str, text: str, complaint: str, tmp_path: Path):
    with pytest.raises(AssertionError, match=complaint):
        PageDirectory(tmp_path).execute(Block(ROOT / "README.md", 1, language, text, "", ""))
