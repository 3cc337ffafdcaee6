"""`python -m bench.outputs [COUNT] [ROUNDS]`: output in files of its own for each job, against an output stream.

Prints jobs a second, CPU time and the number of files of each way to keep the output of short jobs, in turns.
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
from bench.turns import Rate, in_turns

WAYS: dict[str, dict[str, Any]] = {
    "not kept": {},
    "stdout and stderr in files": {"stdout": "out/${it}.out", "stderr": "out/${it}.err"},
    "output stream": {"output": "stream"},
}


def main(count: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory(dir=".") as name:
        directory = Path(name).resolve()
        rates = {way: Rate(count, _run(directory / way, way)) for way in WAYS}
        for way, measured in in_turns(rates, rounds).items():
            files = sum(path.is_file() for path in (directory / way).rglob("*"))
            print(f"{way}: {median(measured):,.0f} jobs/s, {rates[way].cost}, {files:,} files")


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
