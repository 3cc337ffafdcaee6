"""Runs whose jobs wait for the test, and dashboards for them: real processes."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import processes
from tests.support.dashboard import Dashboard
from tests.support.pilot import WAIT, job, start, write_requests
from tests.support.waiting import wait_for


def waiting_job(name: str, file: str, *after: str, **more: Any) -> dict[str, Any]:
    """A job that waits until a file exists in the working directory, and then runs a line of the shell."""
    line = f"while [ ! -e {file} ]; do sleep 0.02; done; {'; '.join(after)}"
    return job(name, "sh", "-c", line, **more)


@contextmanager
def running(wd: Path, *jobs: dict[str, Any], nodes: str = "2x4") -> Iterator[subprocess.Popen[str]]:
    """A run of these jobs, for the duration of the test. A test may kill its manager; remaining jobs are killed."""
    requests = write_requests(wd / "requests.json", list(jobs), WAIT)
    process = start("qcg-pm", "run", requests, "--wd", wd, "--nodes", nodes)
    try:
        wait_for(lambda: list(wd.glob(".qcgpjm-service-*/*.sqlite*")) or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        yield process
    finally:
        for _ in range(2):  # the second signal kills jobs at once
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        _end_agents(wd)


def _end_agents(wd: Path) -> None:
    """End agents that have outlived their manager, with their jobs."""
    for path in wd.glob(".qcgpjm-service-*/agent-local.json"):
        agent = json.loads(path.read_bytes())["pid"]
        processes.end({one for pid in [agent] if (one := processes.identify(pid))} | processes.descendants(agent))


@contextmanager
def page_address(wd: Path, *options: str) -> Iterator[str]:
    """The address of the dashboard of a run, with its token."""
    with Dashboard(wd, *options) as shown:
        yield shown.address
