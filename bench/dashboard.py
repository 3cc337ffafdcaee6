"""Jobs at full speed with a dashboard and ten browsers, against the same jobs without."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bench import pilot, processes
from bench.finding import BenchError, Finding, Result, Setting, at_least
from bench.limit import fresh
from bench.service import service
from bench.turns import Rate, in_turns, medians, ratio, ratios
from qcg.pilotjob.api.job import Jobs

COUNT = 100_000
BROWSERS = 10
BAR = 0.98
ALONE = "without a dashboard"
WATCHED = f"with {BROWSERS} browsers"
PAUSE = 2.0
"""Seconds between two questions of a page that shows jobs, or the timeline."""


def run(setting: Setting) -> Result:
    count = setting.count(COUNT, 200)
    used: list[float] = []
    rates = {
        ALONE: Rate(count, lambda count: _seconds(setting.directory / "dashboard", count, None)),
        WATCHED: Rate(count, lambda count: _seconds(setting.directory / "dashboard", count, used)),
    }
    measured = in_turns(rates, setting.rounds)
    findings = [
        Finding(f"dashboard: {name}", f"jobs at full speed, {name}", value, "jobs/s", note=rates[name].cost)
        for name, value in medians(measured).items()
    ]
    found = ratios(measured, WATCHED, ALONE)
    note = (
        f"{min(found):.2f} to {max(found):.2f} in single rounds; the dashboard used {100 * sum(used) / len(used):.1f} %"
        " of a core, on the machine of the jobs"
    )
    judged = at_least(
        "dashboard: ratio", f"{WATCHED} and {ALONE}, ratio", ratio(measured, WATCHED, ALONE), BAR, note=note
    )
    return Result([*findings, judged])


def _seconds(folder: Path, count: int, used: list[float] | None) -> float:
    """Seconds from the submission of jobs to the end of the last one. `used`: a dashboard shows them, and the part of
    a core that it used is added."""
    folder = fresh(folder)
    with service(folder) as manager, ExitStack() as stack:
        manager.submit(Jobs().add(name="first", exec="true"))
        manager.wait4("first")
        shown = None if used is None else stack.enter_context(_dashboard(Path(manager.qcgpm_conf["run_dir"])))
        before = 0.0 if shown is None else _cpu(shown)
        began = time.monotonic()
        manager.submit(Jobs().add(name="job", exec="/bin/true", iteration=count))
        manager.wait4all()
        seconds = time.monotonic() - began
        if shown is not None and used is not None:
            used.append((_cpu(shown) - before) / seconds)
        return seconds


@contextmanager
def _dashboard(run_dir: Path) -> Iterator[int]:
    """A dashboard with browsers that follow the run; yields its pid."""
    command = [*pilot.QCG_PM, "dashboard", str(run_dir)]
    with processes.started(command, env=pilot.ENVIRONMENT, **processes.CAPTURED) as process:
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().strip())
        if not address.netloc:
            raise BenchError(f"the dashboard did not start: {process.communicate()[1]}")
        browsers = [_Browser(address.netloc, address.query, number) for number in range(BROWSERS)]
        try:
            for browser in browsers:
                browser.ready.wait(60)
            yield process.pid
        finally:
            process.terminate()
            process.communicate()
            for browser in browsers:
                browser.thread.join()


class _Browser:
    """Reads events as they come. The first two also ask as pages do that show jobs, or the timeline."""

    def __init__(self, host: str, token: str, number: int) -> None:
        self._host = host
        self._question = {0: "/api/jobs?sort=started&descending=1", 1: "/api/timeline?width=1600"}.get(number, "")
        self._headers = {"Cookie": _cookie(host, token)}
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()

    def _look(self) -> None:
        try:
            connection = http.client.HTTPConnection(self._host, timeout=60)
            connection.request("GET", "/api/events", headers=self._headers)
            response = connection.getresponse()
            asked = 0.0
            while response.readline():
                self.ready.set()
                if self._question and time.monotonic() >= asked + PAUSE:
                    asked = time.monotonic()
                    self._ask()
            connection.close()
        except OSError:  # the dashboard has ended
            self.ready.set()

    def _ask(self) -> None:
        connection = http.client.HTTPConnection(self._host, timeout=60)
        connection.request("GET", self._question, headers=self._headers)
        connection.getresponse().read()
        connection.close()


def _cookie(host: str, token: str) -> str:
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", f"/?{token}")
    cookie = connection.getresponse().getheader("Set-Cookie", "")
    connection.close()
    return cookie.partition(";")[0]


def _cpu(pid: int) -> float:
    """Seconds of a processor that a process has had."""
    return time.clock_gettime((~pid << 3) | 2)  # the clock of another process
