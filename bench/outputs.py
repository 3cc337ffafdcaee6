"""`python -m bench.outputs [COUNT] [ROUNDS]`: ways to keep the output of short jobs, in turns.

Prints jobs a second, CPU time and the number of files of each way, and what it costs to capture output that no file is
named for, against jobs that write to /dev/null.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench import pilot
from bench.turns import Rate, in_turns, ratio

CAPTURED, DROPPED = "captured", "dropped"
BAR = 0.03
"""The largest part of additional CPU time; wall times of a shared machine differ by more than that."""
WAYS: dict[str, dict[str, Any]] = {
    DROPPED: {"stdout": "/dev/null", "stderr": "/dev/null"},
    CAPTURED: {},
    "stdout and stderr in files": {"stdout": "out/${it}.out", "stderr": "out/${it}.err"},
    "output stream": {"output": "stream"},
}


def main(count: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory(dir=".") as name:
        directory = Path(name).resolve()
        rates = {way: Rate(count, _run(directory / way, way)) for way in WAYS}
        measured = in_turns(rates, rounds)
        for way, values in measured.items():
            files = sum(path.is_file() for path in (directory / way).rglob("*"))
            print(f"{way}: {median(values):,.0f} jobs/s, {rates[way].cost}, {files:,} files")
        more_cpu = rates[CAPTURED].cpu / rates[DROPPED].cpu - 1
        more_time = ratio(measured, DROPPED, CAPTURED) - 1
        verdict = "reached" if more_cpu <= BAR else "MISSED"
        print(
            f"capturing: {more_time:+.1%} time in the median of {rounds} rounds,"
            f" {more_cpu:+.1%} CPU time (at most {BAR:.0%}: {verdict})"
        )


def _run(directory: Path, way: str) -> Callable[[int], float]:
    def seconds(count: int) -> float:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        one = {"name": "job", "exec": "echo", "args": ["${it}"], "iteration": count, **WAYS[way]}
        requests = pilot.write_requests(directory / "requests.json", [one])
        return pilot.run(directory, requests)

    return seconds


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000, int(sys.argv[2]) if len(sys.argv) > 2 else 3)
