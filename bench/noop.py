"""Jobs that do nothing, with an output file each, from the request file to the report: against the limit and peers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench import pilot
from bench.finding import Finding, Result, Series, Setting, at_least, at_most
from bench.limit import fresh, limit_seconds
from bench.turns import Contestant, in_turns, medians, ratio

COUNT = 20_000
PROGRAM = "/bin/true"
SEPARATE = "separate jobs"
ITERATED = "one iterated job"
LIMIT = "limit in C"


def run(setting: Setting) -> Result:
    count = setting.count(COUNT, 200)
    folder = setting.directory / "noop"
    threads = sorted({1, setting.parallel})
    contestants: dict[str, Contestant] = {
        f"{LIMIT}, {number} threads": partial(_limit_rate, setting, count, number) for number in threads
    }
    contestants[SEPARATE] = partial(our_rate, folder, count, pilot.separate)
    contestants[ITERATED] = partial(our_rate, folder, count, pilot.iterated)
    rates = in_turns(contestants, setting.rounds)
    rates[LIMIT] = _best(rates, [name for name in rates if name.startswith(LIMIT)])
    return _result(rates)


def _result(rates: dict[str, list[float]]) -> Result:
    found = medians(rates)
    findings = [Finding(f"noop.{name}", f"{name}: no-op jobs", found[name], "jobs/s") for name in found]
    for ours in (SEPARATE, ITERATED):
        share = ratio(rates, ours, LIMIT)
        findings.append(at_least(f"noop.{ours} / limit", f"{ours} against the limit in C", share, 0.8))
    apart = ratio(rates, ITERATED, SEPARATE)
    findings.append(
        at_most("noop.apart", f"{ITERATED} and {SEPARATE}, how far apart", max(apart, 1 / apart), 1.1, note="ratio")
    )
    return Result(findings, [Series("No-op jobs on this machine", "jobs/s", found)])


def _best(rates: dict[str, list[float]], names: list[str]) -> list[float]:
    """Of the way that is faster on this machine."""
    found = medians({name: rates[name] for name in names})
    return rates[max(found, key=lambda name: found[name])]


def _limit_rate(setting: Setting, count: int, threads: int) -> float:
    return count / limit_seconds(setting.directory, count, setting.parallel, threads)


def our_rate(folder: Path, count: int, make: Callable[..., list[dict[str, Any]]], *options: str) -> float:
    """The whole command, from its start to its end: interpreter, agent, jobs, report."""
    requests = pilot.write_requests(fresh(folder) / "requests.json", make(count, PROGRAM))
    return count / pilot.run(folder, requests, *options)
