"""The common part of commands that change jobs. A pattern matches only jobs that the action applies to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from qcg.pilotjob.cli.console import echo, echo_err
from qcg.pilotjob.cli.json_records import in_seconds
from qcg.pilotjob.cli.manager_lookup import Registry, with_similar_name
from qcg.pilotjob.cli.name_patterns import NoSuchName, expand
from qcg.pilotjob.cli.tables import show_json
from qcg.pilotjob.common.exit_codes import FAILURE
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.core.job_states import State

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager


def apply_to_jobs(
    manager: Manager,
    names: tuple[str, ...],
    action: Callable[[list[str]], dict[str, Any]],
    participle: str,
    *,
    final: bool,
    as_json: bool,
    lenient: bool = False,
) -> int:
    """Apply an action to jobs and return the exit code.

    `participle`: such as `canceled`, which is also a key of the reply. `final`: the action applies to jobs that have
    ended; otherwise to jobs that have not. `lenient`: jobs that a pattern matches may refuse the action, unless all do.
    """
    wanted = expand(names, Registry(manager), whole_jobs=not final)
    matched = [name for name, exact in wanted.items() if not exact]
    states = manager.status(matched)["jobs"] if matched else {}
    excluded = {name for name, entry in states.items() if _has_ended(entry) != final}
    chosen = [name for name in wanted if name not in excluded]
    if not chosen:
        why_not = "none has" if final else "all have"
        raise NoSuchName(f"none of {pluralize(len(excluded), 'job')} can be {participle}: {why_not} ended")
    answer = action(chosen)
    errors = answer.get("errors", {})
    if lenient and answer[participle]:
        errors = {name: sentence for name, sentence in errors.items() if wanted.get(name, True)}
    if as_json:
        away = {host: in_seconds(entry) for host, entry in answer.get("unreachable", {}).items()}
        show_json({**answer, "unreachable": away} if away else answer)
    else:
        for line in _result_lines(answer, participle):
            echo(line)
        for warning in answer.get("warnings", ()):
            echo_err(printable(f"Note: {warning}"))
        for sentence in errors.values():
            echo_err(printable(f"Error: {with_similar_name(manager, sentence)}"))
    return FAILURE if errors else 0


def _result_lines(answer: dict[str, Any], participle: str) -> list[str]:
    """A sentence about the changed jobs, and the jobs that unreachable hosts have to end."""
    unreachable = answer.get("unreachable", {})
    untold = {name for host in unreachable.values() for name in host["jobs"]}
    done = answer[participle] - len(untold)
    lines = [f"{done} {participle}"] if done or not untold else []
    for host, entry in unreachable.items():
        lines.append(
            printable(
                f"canceling {pluralize(len(entry['jobs']), 'job')} on {host}: the host is unreachable since"
                f" {entry['since'][:19]}; the request is sent when it answers"
            )
        )
    return lines


def _has_ended(entry: dict[str, Any]) -> bool:
    """Whether a job has ended, by its entry of the `jobStatus` reply."""
    return entry["status"] == 0 and State[entry["data"]["status"]].is_final
