"""A run with a live manager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.errors import ConnectionError, QCGPJMAError, RequestRefusedError
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.report.run_summary import RunSummary
from qcg.pilotjob.watch.dependency_graph import DependencyGraph
from qcg.pilotjob.watch.recorded_run import RecordedRun
from qcg.pilotjob.watch.registry import RunRegistry
from qcg.pilotjob.watch.source import Action, ActionRefused, JobDetails
from qcg.pilotjob.watch.summary_events import SummaryEvents

_PARTICIPLES: dict[Action, str] = {"cancel": "canceled", "rerun": "rerun", "hold": "held", "release": "released"}
"""Keys of the counts in the manager's replies, by action."""
_DONE: dict[Action, str] = {
    "cancel": "canceled",
    "rerun": "queued again",
    "hold": "held",
    "release": "released",
}
MOST_NAMED = 3
"""Errors that a sentence about an action has."""


class LiveRun:
    """The part of RunSource that needs a manager. Requests raise `api.errors.ConnectionError` when the manager
    is gone."""

    def __init__(self, run_dir: Path, registry: RunRegistry, graph: DependencyGraph, manager: Manager) -> None:
        self.run_dir = run_dir
        self._recorded = RecordedRun(run_dir, registry, graph, alive=True)
        self._manager = manager
        self._events = SummaryEvents(manager)

    def summary(self) -> RunSummary:
        try:
            found = self._manager.summary()
        except QCGPJMAError as error:
            _check_answered(error)
            return self._recorded.summary()
        self._events.receive(found)
        return found

    def wait(self, known: RunSummary, timeout: float) -> RunSummary:
        if not known.alive:
            return self.summary()
        return self._events.wait(known, timeout)

    def job(self, name: str) -> JobDetails | None:
        details = self._recorded.job(name)
        if details is None:
            return None
        try:
            entry = self._manager.why([name])["jobs"][name]
        except QCGPJMAError as error:
            _check_answered(error)
            return details
        return replace(details, why=entry["data"]["sentence"]) if entry["status"] == 0 else details

    def act(self, action: Action, names: list[str]) -> str:
        try:
            answer = self._ask(action, names)
        except RequestRefusedError as error:
            raise ActionRefused(f"{error.reason}.") from None
        except ConnectionError:
            raise
        except QCGPJMAError as error:
            raise ActionRefused(str(error)) from None
        return _sentence(action, answer)

    def _ask(self, action: Action, names: list[str]) -> dict[str, Any]:
        if action == "rerun":
            return self._manager.rerun(names)
        if action == "cancel":
            return self._manager.cancel(names)
        return self._manager.hold(names) if action == "hold" else self._manager.release(names)

    def close(self) -> None:
        self._recorded.close()
        self._events.close()
        self._manager.cleanup()


def _check_answered(error: QCGPJMAError) -> None:
    """Raise an error again unless it is about the answer of a manager of another version."""
    if isinstance(error, ConnectionError) and not isinstance(error, RequestRefusedError):
        raise error


def _sentence(action: Action, answer: dict[str, Any]) -> str:
    """A sentence about the changed jobs and the refusals. Raises ActionRefused when nothing was changed."""
    done: int = answer[_PARTICIPLES[action]]
    errors = list(answer.get("errors", {}).values())
    refused = "; ".join(errors[:MOST_NAMED])
    if len(errors) > MOST_NAMED:
        refused += f"; and {len(errors) - MOST_NAMED} more"
    if errors and not done:
        raise ActionRefused(f"Nothing was {_DONE[action]}: {refused}.")
    was = "job or iteration was" if done == 1 else "jobs and iterations were"
    sentence = f"{done} {was} {_DONE[action]}"
    for host, entry in answer.get("unreachable", {}).items():
        jobs = pluralize(len(entry["jobs"]), "job")
        sentence += f"; {host} is unreachable, and gets the order for {jobs} when it answers"
    return f"{sentence}; not so: {refused}." if errors else f"{sentence}."
