"""Pictures of the views, of a campaign with failures. `QCG_PM_PICTURES=1` puts them into the documents."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.browser import open_page, show
from tests.support.pilot import job
from tests.support.project import ROOT
from tests.support.recorded_chain import record_chain
from tests.support.watched_run import page_address, running, waiting_job

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
]

FOR_DOCUMENTS = os.environ.get("QCG_PM_PICTURES") == "1"
SAMPLES = 330 if FOR_DOCUMENTS else 40
PACE = 1.5 if FOR_DOCUMENTS else 0.1
"""Seconds of a typical job."""
HEIGHT = 820
LARGEST = 200_000
"""Bytes of a picture."""

PROGRAM = """echo "sample $1: reading parameters"
for step in 1 2 3 4; do sleep $2; echo "step $step  energy -3.2$step$1  force 1e-0$step"; done
case $3 in
diverges) echo "ValueError: energy diverged at step 4012" >&2; exit 1;;
crashes) echo "relax: cannot open potential.dat: Stale file handle" >&2; exit 3;;
esac
echo converged
"""


def campaign() -> list[dict[str, Any]]:
    chance = Random(14)

    def one(name: str, outcome: str = "converges", **more: Any) -> dict[str, Any]:
        seconds = f"{PACE * chance.lognormvariate(0, 0.5) / 4:.3f}"
        number = name.rpartition("-")[2]
        files = {"stdout": f"{name}.out", "stderr": f"{name}.err"}
        return job(name, "sh", "simulate.sh", number, seconds, outcome, **files, **more)

    outcomes = chance.choices(["converges", "diverges", "crashes"], [95, 4, 1], k=SAMPLES)
    analyses = range(SAMPLES // 10)
    return [
        one("prepare"),
        one("mesh", after=["prepare"]),
        *(one(f"relax-{number}", outcome, after=["mesh"]) for number, outcome in enumerate(outcomes)),
        *(one(f"analyse-{k}", numCores={"exact": 2 + k % 3}, after=["mesh"]) for k in analyses),
        *(one(f"collect-{k}", after=[f"analyse-{i}" for i in range(k * 3, k * 3 + 3)]) for k in range(SAMPLES // 30)),
        one("diverging", "diverges", after=["mesh"], retry=2),
        one("figure", after=["diverging", "mesh"]),
        one("publish", after=["figure"]),
    ]


@pytest.fixture
def take(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Takes a picture of the view that a page shows."""
    taken: list[Path] = []

    def picture(page: Any, name: str, height: int = 0) -> None:
        file = (ROOT / "docs/images" if FOR_DOCUMENTS else tmp_path) / f"dashboard-{name}.png"
        width = page.viewport_size["width"]
        page.set_viewport_size({"width": width, "height": height or page.evaluate("document.body.scrollHeight")})
        page.mouse.move(0, 0)
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        page.screenshot(path=file, animations="disabled")
        page.set_viewport_size({"width": width, "height": HEIGHT})
        taken.append(file)

    yield picture
    assert [file.name for file in taken if not 5_000 < file.stat().st_size < LARGEST] == []


@pytest.fixture
def wd(tmp_path: Path) -> Iterator[Path]:
    """The working directory, with a short path: pictures show it."""
    if not FOR_DOCUMENTS:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="lattice-") as directory:
        yield Path(directory)


def test_pictures_of_a_campaign(browser: Any, wd: Path, take: Callable[..., None]):
    (wd / "simulate.sh").write_text(PROGRAM)
    desk = {"width": 1080, "height": HEIGHT}
    phone = {"width": 360, "height": 740}
    with running(wd, *campaign(), nodes="4x6") as process, page_address(wd) as address:
        with open_page(browser, address, viewport=desk) as page:
            page.set_default_timeout(120_000)
            page.wait_for_selector("section[aria-label=Failures] .group")
            if FOR_DOCUMENTS:
                page.wait_for_selector(".hero-word")
                page.wait_for_timeout(12_000)
            take(page, "overview")
            page.emulate_media(color_scheme="dark")
            take(page, "overview-dark")
            show(page, "nodes")
            take(page, "nodes", 330)
            process.wait(120)
            page.wait_for_selector("#live-mark:text-is('run has ended')")
            page.emulate_media(color_scheme="light")
            for name, view, ready in [
                ("timeline", "timeline", "[data-ready=true] canvas"),
                ("timeline-nodes", "timeline?level=node", "[role=status]:has-text('by core')"),
                ("jobs", "jobs?sort=duration&descending=true", "tbody tr:nth-child(10)"),
                ("job", "job/diverging", ".dependency-graph"),
                ("analysis", "analysis", ".heat"),
            ]:
                show(page, view)
                page.wait_for_selector(ready)
                take(page, name, {"jobs": 700, "timeline-nodes": 450}.get(name, 0))
            page.emulate_media(color_scheme="dark")
            show(page, "timeline")
            page.wait_for_selector("[data-ready=true] canvas")
            for _ in range(2):
                page.keyboard.press("Tab")
                page.focus("canvas")
                page.keyboard.press("+")
            page.wait_for_selector("details summary")
            page.evaluate("document.activeElement.blur()")
            page.evaluate("scrollTo(0, 0)")
            take(page, "timeline-dark")
        (run_dir,) = wd.glob(".qcgpjm-service-*")
        record_chain(run_dir, "181204", "181377", "181502")
        with open_page(browser, address, "allocations", viewport=desk) as page:
            page.wait_for_selector("tbody tr:nth-child(3)")
            take(page, "allocations", 330)
        for name in ("overview", "jobs"):
            with open_page(browser, address, name, viewport=phone, device_scale_factor=2) as page:
                page.wait_for_selector("main .panel")
                page.wait_for_selector("tbody tr, .graph svg")
                take(page, f"phone-{name}", 740)


def test_pictures_of_a_job_that_can_be_changed(browser: Any, wd: Path, take: Callable[..., None]):
    relaxing = waiting_job("relax-17", "end")
    analysis = job("analyse-17", "true", after=["relax-17"])
    figure = job("figure", "true", after=["analyse-17"])
    desk = {"width": 1080, "height": HEIGHT}
    with (
        running(wd, relaxing, analysis, figure, nodes="4x6"),
        page_address(wd, "--control") as address,
        open_page(browser, address, "job/analyse-17", viewport=desk) as page,
    ):
        page.wait_for_selector(".dependency-graph")
        take(page, "control", 630)
        page.click("[data-action=hold]")
        page.wait_for_selector("dialog[open]")
        take(page, "control-question", 420)
        page.click("dialog button:text-is('No')")
        (wd / "end").touch()
