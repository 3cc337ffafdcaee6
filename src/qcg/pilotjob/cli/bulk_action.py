"""What `cancel` and `remove` have in common: of what a pattern means, they take what they can be done with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from qcg.pilotjob.cli.console import many, say, tell
from qcg.pilotjob.cli.manager_lookup import Registry, with_suggestion
from qcg.pilotjob.cli.name_patterns import NoSuchName, expand
from qcg.pilotjob.cli.tables import show_json
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.core.job_states import State

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager


def end_jobs(
    manager: Manager,
    names: tuple[str, ...],
    do: Callable[[list[str]], dict[str, Any]],
    done: str,
    *,
    final: bool,
    as_json: bool,
) -> int:
    """`final`: the state of jobs that this can be done with. The exit code."""
    wanted = expand(names, Registry(manager))
    meant_by_pattern = [name for name, exact in wanted.items() if not exact]
    states = manager.status(meant_by_pattern)["jobs"] if meant_by_pattern else {}
    unfit = {name for name, entry in states.items() if _has_ended(entry) != final}
    chosen = [name for name in wanted if name not in unfit]
    if not chosen:
        why_not = "none has" if final else "all have"
        raise NoSuchName(f"none of {many(len(unfit), 'job')} can be {done}: {why_not} ended")
    answer = do(chosen)
    errors = answer.get("errors", {})
    if as_json:
        show_json(answer)
    else:
        say(f"{answer[done]} {done}")
        for sentence in errors.values():
            tell(printable(f"Error: {with_suggestion(manager, sentence)}"))
    return 1 if errors else 0


def _has_ended(entry: dict[str, Any]) -> bool:
    """By its entry of `jobStatus`."""
    return entry["status"] == 0 and State[entry["data"]["status"]].is_final
