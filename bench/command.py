"""Run benchmarks and print their results. Results of all benchmarks together are written into the docs."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

from bench import machine, page
from bench.finding import ENOUGH_ROUNDS, BenchError, Benchmark, Finding, Result, Setting
from bench.kept import Kept, all_kept, keep
from bench.limit import clear
from bench.pilot import ENVIRONMENT
from qcg.pilotjob.cli.interrupts import reraise_lost_interrupt
from qcg.pilotjob.cli.signals import exit_on_signals

BENCHMARKS = {
    "noop": "no-op jobs against the limit in C and against peers",
    "manager": "manager, scheduler, journal, report and messages without processes",
    "growth": "cost of a job among ten thousand and among a million others",
    "memory": "bytes for a queued job and for an iteration",
    "latency": "latency of a job, of its dependent, and of the start of a manager",
    "questions": "answers to status, jobs and summary while half a million jobs start",
    "utilisation": "a mix of jobs against the same order without overhead",
    "backfill": "order of jobs on workload traces: patience, reservations and EASY, in simulated time",
    "dashboard": "jobs at full speed with a dashboard and ten browsers, and without",
    "idle": "CPU time of an idle manager and agent",
    "remote": "jobs on remote hosts against a bare loop there, logins and latencies",
}
DIRECTORY = Path(__file__).parents[1] / "build" / "bench"
UNUSABLE = 2


def prepare(arguments: list[str]) -> Callable[[], int]:
    """Import everything and start nothing. Returns a function that runs the benchmarks and returns the exit code."""
    options = _parse(arguments)
    os.environ["PYTHONPATH"] = ENVIRONMENT["PYTHONPATH"]
    try:
        _check_dependencies()
        _make(options.directory)
    except BenchError as why:
        print(f"bench: {why}", file=sys.stderr)
        sys.exit(UNUSABLE)
    setting = Setting(
        directory=options.directory.resolve(),
        rounds=options.rounds,
        scale=options.scale,
        parallel=len(os.sched_getaffinity(0)),
        peers=None if options.peers else [],
        cylc=options.cylc,
    )
    measures = {name: import_module(f"bench.{name}").run for name in options.names}
    return partial(_measure, setting, measures)


def _measure(setting: Setting, measures: Mapping[str, Benchmark]) -> int:
    exit_on_signals()
    reraise_lost_interrupt()
    _warn_about_load()
    on = machine.describe()
    kept = {}
    for_the_page = setting.can_judge and setting.peers is None
    try:
        for name, measure in measures.items():
            kept[name] = Kept(on, *_run(name, measure, setting))
            if for_the_page:
                keep(setting.directory, name, kept[name])
    except BenchError as why:
        print(f"bench: {why}", file=sys.stderr)
        return 1
    finally:
        clear()
    _print_results(on, list(kept.values()), setting)
    if for_the_page and _write_page(kept, on, setting.directory):
        print(f"written to {page.PAGE.name}", file=sys.stderr)
    return 0


def _write_page(kept: Mapping[str, Kept], on: list[str], directory: Path) -> bool:
    """Write sections of measured benchmarks, and the common tables once all other benchmarks are measured. Returns
    whether anything was written."""
    sections = [name for name in page.SECTIONS if name in kept and kept[name].result.findings]
    for name in sections:
        page.write_section(name, kept[name].result, on, kept[name].how)
    common = [name for name in BENCHMARKS if name not in page.SECTIONS]
    everything = all_kept(directory, common, on) if any(name in kept for name in common) else None
    if everything is not None:
        page.write([one.result for one in everything.values()], on, [one.how for one in everything.values()])
    return bool(sections) or everything is not None


def _print_results(on: list[str], kept: list[Kept], setting: Setting) -> None:
    print("\n".join([*on, *(one.how for one in kept)]))
    if setting.scale < 1:
        print(f"This is {setting.scale:g} of the full size: bars are in brackets, and are not checked.")
    elif not setting.can_judge:
        print(f"Bars are in brackets; they are checked from {ENOUGH_ROUNDS} rounds on.")
    print_findings([finding for one in kept for finding in one.result.findings])
    for why_not in [why_not for one in kept for why_not in one.result.missing]:
        print(why_not)


def _check_dependencies() -> None:
    try:
        import_module("qcg.pilotjob.manager.service")
    except ModuleNotFoundError as missing:
        raise BenchError(
            f"{sys.executable} has no module {missing.name!r}: call `make bench`, or, after `make setup`,"
            " `.venv/bin/python -m bench`"
        ) from None


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        raise BenchError(f"nothing can be made in {directory}: {error.strerror}; choose another --directory") from None


def _warn_about_load() -> None:
    if os.getloadavg()[0] > len(os.sched_getaffinity(0)) / 2:
        print(f"other processes use this machine (load {machine.load()}): expect noise", file=sys.stderr, flush=True)


def _run(name: str, measure: Benchmark, setting: Setting) -> tuple[str, Result]:
    """Run one benchmark. Returns how it was measured, and its result."""
    print(f"{name}: {BENCHMARKS[name]}", file=sys.stderr, flush=True)
    before = machine.load()
    result = measure(setting)
    rounds = f"{setting.rounds} round{'' if setting.rounds == 1 else 's'}"
    how = (
        f"`{name}`: {machine.moment()}; medians of {rounds}, in turns; load averages {before} before it,"
        f" {machine.load()} after it"
    )
    return how, result if setting.can_judge else _without_verdicts(result)


def _without_verdicts(result: Result) -> Result:
    return replace(result, findings=[replace(found, reached=None) for found in result.findings])


def print_findings(findings: Iterable[Finding]) -> None:
    findings = list(findings)
    longest = max((len(found.what) for found in findings), default=0)
    for found in findings:
        verdict = {True: "reached", False: "MISSED", None: ""}[found.reached]
        line = f"{found.what:<{longest}} {page.amount(found):>14}  {_bar(found):<24} {verdict:<8} {found.note}"
        print(line.rstrip())


def _bar(found: Finding) -> str:
    """The target value, in brackets when the result was not compared with it."""
    return f"({found.bar})" if found.bar and found.reached is None else found.bar


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(BENCHMARKS) + "; by default all")
    parser.add_argument("--rounds", type=_at_least_one, default=5, help="rounds of each contestant (%(default)s)")
    parser.add_argument("--scale", type=_part, default=1.0, help="part of the full size, for a quick test: 0.1")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="directory for all files")
    parser.add_argument(
        "--no-peers", dest="peers", action="store_false", help="leave out peers; the docs are not written"
    )
    parser.add_argument("--cylc", action="store_true", help="remote: compare with cylc-flow, which takes minutes")
    options = parser.parse_args(arguments)
    # `make bench ONLY="noop, latency"` may separate names by commas, blanks or both.
    options.names = [*dict.fromkeys(filter(None, re.split(r"[\s,]+", " ".join(options.names))))] or list(BENCHMARKS)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    return options


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of 1 or more")
    return int(text)


def _part(text: str) -> float:
    try:
        part = float(text)
    except ValueError:
        part = 0.0
    if not 0 < part <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no part of the full size: give a number above 0, at most 1")
    return part
