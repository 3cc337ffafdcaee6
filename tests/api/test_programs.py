"""Programs of earlier manuals, and a current one, that run as jobs of a manager and submit jobs to it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.samples import VERSION_02, VERSION_03
from tests.support.serving import Served, served

TODAY = Path(__file__).parent / "programs/today.py"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, "--nodes", "4") as service:
        yield service


def run(service: Served, program: str) -> str:
    """The output of a program that runs as a job and finds its manager in its environment."""
    (service.wd / "program.py").write_text(program)
    service.submit(
        {
            "name": "controller",
            "execution": {
                "exec": sys.executable,
                "args": ["program.py"],
                "stdout": "printed",
                "stderr": "errors",
            },
        }
    )
    service.wait("controller", "SUCCEED")
    assert (service.wd / "errors").read_text() == ""
    return (service.wd / "printed").read_text()


@pytest.mark.parametrize("program", [VERSION_02, VERSION_03], ids=["0.2", "0.3"])
def test_the_example_of_an_earlier_manual_runs(service: Served, program: str):
    printed = run(service, program)
    resources, listed, details = map(ast.literal_eval, re.findall(r":\n(\{.*\})\n", printed))
    assert resources["totalCores"] == resources["total_cores"] == 4
    assert resources["usedCores"] == 1
    assert {"host", "env"} <= set(listed)
    assert {name: entry["data"]["status"] for name, entry in details["jobs"].items()} == {
        "host": "SUCCEED",
        "env": "SUCCEED",
    }
    assert (service.wd / "host.stdout").read_text().strip()
    assert "QCG_PM_NPROCS=2\n" in (service.wd / "env.stdout").read_text()
    assert "request submit" in (service.wd / ".qcgpjm-client/api.log").read_text()


def test_a_current_program_runs(service: Served):
    assert run(service, TODAY.read_text()).splitlines() == ["first SUCCEED 1 True", "second SUCCEED 1 True"]
