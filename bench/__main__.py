"""`python -m bench [NAMES]`: run benchmarks and print what they find."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from bench.finding import Finding, Result, Setting
from bench.pilot import ENVIRONMENT, SOURCE

BENCHMARKS = {
    "noop": "no-op jobs against the limit in C and against peers",
    "manager": "manager, scheduler, journal, report and messages without processes",
    "growth": "what a job costs among ten thousand and among a million others",
    "memory": "bytes for a queued job and for an iteration",
    "latency": "how soon a job, the one after it, and the pilot itself start",
    "utilisation": "a mix of jobs against the same order without overhead",
    "idle": "what a service costs that has nothing to do",
}
DIRECTORY = Path(__file__).parents[1] / "build" / "bench"


def main() -> int:
    options = _parse(sys.argv[1:])
    # What is measured is this checkout, whatever is installed.
    sys.path.insert(0, str(SOURCE))
    os.environ["PYTHONPATH"] = ENVIRONMENT["PYTHONPATH"]
    setting = Setting(
        directory=options.directory.resolve(),
        rounds=options.rounds,
        scale=options.scale,
        parallel=options.parallel,
    )
    results = {name: _run(name, setting) for name in options.names}
    for result in results.values():
        print_findings(result.findings)
    return 0


def _run(name: str, setting: Setting) -> Result:
    print(f"{name}: {BENCHMARKS[name]}", file=sys.stderr, flush=True)
    result: Result = import_module(f"bench.{name}").run(setting)
    return result


def print_findings(findings: Iterable[Finding]) -> None:
    for found in findings:
        verdict = {True: "reached", False: "MISSED", None: ""}[found.reached]
        print(
            f"{found.what:<60} {found.value:>10,.4g} {found.unit:<7} {found.bar:<24} {verdict:<8} {found.note}".rstrip()
        )


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(BENCHMARKS) + "; all without any")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contestant (%(default)s)")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full size, for a quick look")
    parser.add_argument("--parallel", type=int, default=len(os.sched_getaffinity(0)), help="processes at a time")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="for everything that is made")
    options = parser.parse_args(arguments)
    options.names = [name for given in options.names for name in given.split(",")] or list(BENCHMARKS)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
