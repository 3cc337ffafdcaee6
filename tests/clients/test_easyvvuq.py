"""EasyVVUQ as it is published runs a campaign through its QCGPJPool, in a virtual environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    told = json.loads(done.stdout.splitlines()[-1])
    print(f"the campaign took {told['seconds']:.0f} s")
    assert len(told["rows"]) == 20
    assert [y for _, _, y in told["rows"]] == [pytest.approx(2 * a + b) for a, b, _ in told["rows"]]
    report = (run_dir / "jobs.report").read_text()
    assert report.count("(SUCCEED)") == 20
