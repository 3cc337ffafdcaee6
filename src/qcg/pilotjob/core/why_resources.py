"""Clauses of `why` about resources: nodes that are away, drained or avoided, and counters of the run that are taken."""

from __future__ import annotations

from typing import Any

from qcg.pilotjob.core.core_state import CoreState, name_of
from qcg.pilotjob.description.model import ExtraResources

MAX_HOLDERS = 3
"""Holders of a counter that a sentence names; the details list all of them."""


def nodes_awaited(core: CoreState, missing: list[str]) -> tuple[str, dict[str, Any]]:
    """The nodes that a job waits for, in words and as details."""
    drained = [name for name in missing if name in core.health.drained]
    away = [name for name in missing if name not in drained]
    lost = [name for name in away if name in core.lost_nodes]
    state = "away" if not lost else "lost" if lost == away else "away, some of them lost"
    parts = [f"nodes that are {state} ({', '.join(away)})"] if away else []
    parts += [f"nodes that are drained ({', '.join(drained)})"] if drained else []
    details = {"away": away, "lost": lost}
    return " and ".join(parts), {**details, "drained": drained} if drained else details


def avoided_in_words(node: str, until: str) -> str:
    return f"{node}, where its last attempt failed; at {until} it stops avoiding {node}"


def short_counters(core: CoreState, extra: ExtraResources) -> tuple[str, dict[str, Any]] | None:
    """The counters of which less is free than requested, as a clause and as details; None if there is enough."""
    counters = core.pool.counters
    clauses, details = [], {}
    for name, number in extra.of_run:
        free, total = max(counters.free.get(name, 0), 0), counters.totals.get(name, 0)
        if number <= free:
            continue
        holders = _holders(core, name)
        some = f"all {total} of this run are" if not free else f"{total - free} of the {total} of this run are"
        taken = "the only one of this run is" if total == 1 else some
        clauses.append(f"it needs {number} {name}; {taken} taken by {_listed(holders)}")
        details[name] = {"wanted": number, "free": free, "total": total, "holders": holders}
    return ("; ".join(clauses), details) if clauses else None


def _holders(core: CoreState, counter: str) -> list[str]:
    """The names of the jobs whose attempts hold a counter, in order. Of a lane, only the first attempt holds it."""
    return [
        name_of(attempt.job, attempt.position)
        for attempt in core.attempts.values()
        if attempt.grant.extra is not None
        and counter in attempt.grant.extra.names_of_run
        and (attempt.lane is None or attempt.lane.first is attempt)
    ]


def _listed(names: list[str]) -> str:
    more = len(names) - MAX_HOLDERS
    named = [repr(name) for name in names[:MAX_HOLDERS]] + ([f"{more} more"] if more > 0 else [])
    if not named:
        return "attempts that are ending"
    return named[0] if len(named) == 1 else ", ".join(named[:-1]) + f" and {named[-1]}"
