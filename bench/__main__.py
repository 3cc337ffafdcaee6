"""`python -m bench [NAMES]`: run benchmarks, print what they find, and, when all are run, write it into the docs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from bench import machine, page
from bench.finding import BenchError, Finding, Result, Setting
from bench.limit import clear
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
        peers=None if options.peers else [],
    )
    _warn_of_others()
    about = [*machine.describe(), f"Medians of {setting.rounds} rounds, in turns.{_before()}"]
    try:
        results = {name: _run(name, setting) for name in options.names}
    except BenchError as why:
        print(f"bench: {why}", file=sys.stderr)
        return 1
    finally:
        clear()
    about[-1] += f" Load averages after it: {machine.load()}."
    print("\n".join(about))
    for result in results.values():
        print_findings(result.findings)
        print("\n".join(result.missing), end="\n" if result.missing else "")
    if options.write or (len(results) == len(BENCHMARKS) and options.scale == 1):
        page.write(results.values(), about)
    return 0


def _warn_of_others() -> None:
    if os.getloadavg()[0] > len(os.sched_getaffinity(0)) / 2:
        print(f"this machine does other things too (load {machine.load()}): expect noise", file=sys.stderr, flush=True)


def _before() -> str:
    return f" Load averages (1, 5, 15 minutes) before it: {machine.load()}."


def _run(name: str, setting: Setting) -> Result:
    print(f"{name}: {BENCHMARKS[name]}", file=sys.stderr, flush=True)
    setting.directory.mkdir(parents=True, exist_ok=True)
    result: Result = import_module(f"bench.{name}").run(setting)
    return result


def print_findings(findings: Iterable[Finding]) -> None:
    for found in findings:
        verdict = {True: "reached", False: "MISSED", None: ""}[found.reached]
        told = f"{found.what:<64} {page.amount(found):>14}  {found.bar:<24} {verdict:<8} {found.note}"
        print(told.rstrip())


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(BENCHMARKS) + "; all without any")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contestant (%(default)s)")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full size, for a quick look")
    parser.add_argument("--parallel", type=int, default=len(os.sched_getaffinity(0)), help="processes at a time")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="for everything that is made")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="leave out what others do")
    parser.add_argument("--write", action="store_true", help=f"write {page.PAGE.name} although not all was measured")
    options = parser.parse_args(arguments)
    options.names = [name for given in options.names for name in given.split(",")] or list(BENCHMARKS)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
