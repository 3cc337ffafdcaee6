"""No-op jobs with an output file each, compared with the limit of the machine and with peers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import pilot
from bench.finding import Finding, Result, Series, Setting, at_least, at_most
from bench.limit import fresh, limit_seconds
from bench.peers import PEERS, Missing, Peer, set_up
from bench.turns import Rate, in_turns, medians, ratio, ratios

COUNT = 30_000
PROGRAM = "/bin/true"
SEPARATE = "separate jobs"
ITERATED = "one iterated job"
UNBOUND = "separate jobs, not bound to cores"
LIMIT = "limit in C"
OURS = (SEPARATE, ITERATED)


def run(setting: Setting) -> Result:
    count = setting.count(COUNT, 200)
    folder = setting.directory / "noop"
    rates = {
        f"{LIMIT}, {threads} thread{'s'[: threads - 1]}": Rate(count, _limit(setting, threads))
        for threads in sorted({1, setting.parallel})
    }
    rates[f"{LIMIT}, a thread bound to each core"] = Rate(count, _limit(setting, setting.parallel, bound=True))
    rates[SEPARATE] = Rate(count, _ours(folder, pilot.separate))
    rates[ITERATED] = Rate(count, _ours(folder, pilot.iterated))
    rates[UNBOUND] = Rate(count, _ours(folder, pilot.separate, *pilot.nodes(1, setting.parallel)))
    peers: dict[str, Peer] = {}
    versions: dict[str, str] = {}
    missing: list[str] = []
    for peer in PEERS:
        if setting.peers is not None and peer.name not in setting.peers:
            continue
        try:
            versions[peer.name] = set_up(peer, setting.directory)
        except Missing as why:
            missing.append(str(why))
        else:
            peers[peer.name] = peer
            rates[peer.name] = Rate(setting.count(peer.count, 20), _peer(setting, peer))
    measured = in_turns(rates, setting.rounds, optional=dict.fromkeys(peers, missing))
    best = _best(measured, [name for name in measured if name.startswith(LIMIT)])
    peers = {name: peer for name, peer in peers.items() if name in measured}
    findings = [*_values(measured, rates, peers, versions), *_bars(measured, best, peers)]
    return Result(findings, [Series("No-op jobs on this machine", "jobs/s", medians(measured), OURS)], missing)


def _values(
    measured: dict[str, list[float]], rates: dict[str, Rate], peers: dict[str, Peer], versions: dict[str, str]
) -> list[Finding]:
    findings = []
    for name, value in medians(measured).items():
        notes = [rates[name].cost]
        if name in peers:
            cost = "" if peers[name].orphans else rates[name].cost
            notes = [versions[name], cost, peers[name].less]
        note = "; ".join(filter(None, notes))
        findings.append(Finding(f"noop: {name}", f"no-op jobs, {name}", value, "jobs/s", note=note))
    return findings


def _bars(measured: dict[str, list[float]], limit: str, peers: dict[str, Peer]) -> list[Finding]:
    findings = []
    for ours in OURS:
        rounds = ratios(measured, ours, limit)
        note = f"{min(rounds):.2f} to {max(rounds):.2f} in single rounds; {limit}"
        findings.append(
            at_least(
                f"noop: {ours} / limit", f"{ours} against the {LIMIT}", ratio(measured, ours, limit), 0.8, note=note
            )
        )
    apart = ratio(measured, ITERATED, SEPARATE)
    findings.append(at_most("noop: apart", f"{ITERATED} and {SEPARATE}, ratio", max(apart, 1 / apart), 1.1))
    findings += [
        at_least(f"noop: ours / {name}", f"{SEPARATE} against {name}", ratio(measured, SEPARATE, name), 1)
        for name, peer in peers.items()
        if not peer.less
    ]
    return findings


def _best(measured: dict[str, list[float]], names: list[str]) -> str:
    """The fastest of these contestants."""
    found = medians({name: measured[name] for name in names})
    return max(found, key=lambda name: found[name])


def _limit(setting: Setting, threads: int, *, bound: bool = False) -> Callable[[int], float]:
    return lambda count: limit_seconds(setting.directory, count, setting.parallel, threads, bound=bound)


def _peer(setting: Setting, peer: Peer) -> Callable[[int], float]:
    return lambda count: peer.seconds(setting.directory, count, setting.parallel)


def _ours(folder: Path, make: Callable[..., list[dict[str, Any]]], *options: str) -> Callable[[int], float]:
    """The whole command, from its start to its end: interpreter, agent, jobs, report."""

    def seconds(count: int) -> float:
        directory = fresh(folder)
        return pilot.run(directory, pilot.write_requests(directory / "requests.json", make(count, PROGRAM)), *options)

    return seconds
