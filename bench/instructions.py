"""`python -m bench.instructions [CHECKOUT …]`: instructions of the manager for a job, counted by callgrind.

The count hardly depends on other work on the machine, so it shows what a change costs. With the root of other
checkouts, each with a `.venv` of its own, it also prints their counts and the ratios to them. Needs the Debian package
valgrind.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

from bench import pilot, processes
from bench.finding import BenchError

ROOT = Path(__file__).parents[1]
NODES, CORES = 1000, 128
FEW, MANY = 1000, 4000
"""Numbers of jobs of two runs. Their difference is without the start of Python."""
WAYS: dict[str, list[str]] = {"separate jobs": [], "one iterated job": ["--iterated"]}
_COUNT = re.compile(r"Collected : (\d+)")
_PROGRAM = """
import runpy
from qcg.pilotjob.manager import commits
commits.COMMIT_DELAY = 1e9  # one commit, at the end: the number of commits in between would depend on the time
runpy.run_module("bench.inside", run_name="__main__", alter_sys=True)
"""


def instructions_for_a_job(checkout: Path, way: list[str]) -> float:
    """Instructions for a job, from the text of its submission to its end in the report."""
    if shutil.which("valgrind") is None:
        raise BenchError("there is no valgrind; install the package valgrind")
    _run([], checkout, FEW, way)  # which compiles the modules
    return (_instructions(checkout, MANY, way) - _instructions(checkout, FEW, way)) / (MANY - FEW)


def _instructions(checkout: Path, jobs: int, way: list[str]) -> int:
    output = _run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"], checkout, jobs, way)
    found = _COUNT.search(output)
    if found is None:
        raise BenchError(f"valgrind did not count: {output[-2000:]}")
    return int(found[1])


def _run(under: list[str], checkout: Path, jobs: int, way: list[str]) -> str:
    """Run a manager in one process with so many jobs; returns what it wrote to stderr."""
    own = checkout / ".venv" / "bin" / "python"
    environment = {**pilot.ENVIRONMENT, "PYTHONHASHSEED": "0", "PYTHONPATH": f"{checkout / 'src'}:{checkout}"}
    with tempfile.TemporaryDirectory(prefix="bench-instructions-") as directory:
        command = [*under, str(own) if own.exists() else sys.executable, "-c", _PROGRAM, directory]
        command += ["--jobs", str(jobs), "--nodes", str(NODES), "--cores", str(CORES), *way]
        done = processes.run(command, processes.AT_ONCE, env=environment, cwd=checkout, **processes.CAPTURED)
    if done.returncode:
        raise BenchError(f"{checkout}: the measured program failed:\n{done.stderr[-2000:]}")
    return done.stderr


def main(others: list[str]) -> int:
    try:
        for what, way in WAYS.items():
            own = instructions_for_a_job(ROOT, way)
            print(f"{what}: {own:,.0f} instructions a job", flush=True)
            for other in others:
                count = instructions_for_a_job(Path(other).resolve(), way)
                print(f"  {other}: {count:,.0f}; here {own / count:.3f} times as many", flush=True)
    except BenchError as why:
        print(f"bench: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
