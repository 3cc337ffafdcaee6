"""Explanations for `why` about nodes that are away, drained or avoided."""

from __future__ import annotations

from typing import Any

from qcg.pilotjob.core.core_state import CoreState


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
