"""EasyVVUQ as it is published runs a campaign through its QCGPJPool, in a virtual environment of its own.

The short tier makes the calls of the pool without EasyVVUQ, whose environment takes minutes to install.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.executor_api.qcgpj_executor import QCGPJExecutor
from qcg.pilotjob.executor_api.templates.qcgpj_template import QCGPJTemplate
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def venv() -> Path:
    """Kept from one run of the tests to the next."""
    path = ROOT / "build/easyvvuq"
    path.parent.mkdir(exist_ok=True)
    environment = {"PYTHON": sys.executable, **os.environ}
    made = subprocess.run([HERE / "easyvvuq-venv", path], capture_output=True, text=True, env=environment, check=False)
    if made.returncode != 0:
        pytest.skip(f"EasyVVUQ runs no campaign here: it could not be installed: {made.stderr.strip()[-500:]}")
    return path


class PoolTemplate(QCGPJTemplate):
    """The keys that the default template of the pool fills in."""

    @staticmethod
    def template() -> tuple[str, dict[str, Any]]:
        keys = ["'exec': '${exec}'", "'args': ${args}", "'stdout': '${stdout}'", "'stderr': '${stderr}'"]
        keys += ["'venv': '${venv}'", "'modules': ${modules}", "'model': '${model}'", "'model_opts': ${model_opts}"]
        text = f"{{'name': '${{name}}', 'execution': {{{', '.join(keys)}}}}}"
        return text, {"venv": "", "modules": [], "model": "default", "model_opts": {}}


def test_the_calls_of_its_pool_run_samples_that_are_named_by_numbers(run_dir: Path):
    program = "import os, sys; open('result_' + os.environ['QCG_PM_EXEC_API_JOB_ID'], 'w').write(sys.argv[1])"
    executor = QCGPJExecutor()
    futures = [
        executor.submit(
            PoolTemplate().template,
            None,
            exec="python3",
            name=number,
            stdout=f"{run_dir}/stdout_{number}",
            stderr=f"{run_dir}/stderr_{number}",
            args=["-c", program.replace("'", '"'), str(2 * number)],
        )
        for number in range(1, 4)
    ]
    wait_for(lambda: all(future.done() for future in futures), what="the ends of all samples")
    assert [future.result() for future in futures] == [{str(number): "SUCCEED"} for number in range(1, 4)]
    assert [(run_dir / f"result_{number}").read_text() for number in range(1, 4)] == ["2", "4", "6"]
    executor.shutdown()


@pytest.mark.long
@pytest.mark.timeout(900)  # the first time includes the installation
def test_easyvvuq_runs_twenty_samples_through_its_default_pool(run_dir: Path, venv: Path):
    environment = {
        **os.environ,
        "PATH": f"{venv}/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
    }
    campaign = HERE / "easyvvuq_campaign/campaign.py"
    done = subprocess.run(
        [venv / "bin/python", campaign], capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    print(f"the campaign took {result['seconds']:.0f} s")
    assert len(result["rows"]) == 20
    assert [y for _, _, y in result["rows"]] == [pytest.approx(2 * a + b) for a, b, _ in result["rows"]]
    report = (run_dir / "jobs.report").read_text()
    assert report.count("(SUCCEED)") == 20
