"""Queries about a run whose manager has ended, answered from its registry."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from qcg.pilotjob.api.client_helpers import check_accepted, reply_data
from qcg.pilotjob.api.errors import ConnectionError
from qcg.pilotjob.api.queries import Queries
from qcg.pilotjob.api.waits import FINAL
from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.cli.explanations import MOST_EXPLAINED, after_state
from qcg.pilotjob.description import requests
from qcg.pilotjob.description.requests import Request, decode_request
from qcg.pilotjob.interfaces.handlers.job_info import job_info
from qcg.pilotjob.interfaces.handlers.job_status import job_status
from qcg.pilotjob.interfaces.handlers.list_jobs import list_jobs
from qcg.pilotjob.interfaces.handlers.status import counts
from qcg.pilotjob.interfaces.handlers.summary import recorded
from qcg.pilotjob.interfaces.handlers.why import why
from qcg.pilotjob.interfaces.registry_view import RegistryView
from qcg.pilotjob.interfaces.replies import Answer
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.registry_files import FILE_NAME

Handler = Callable[[Any, Any], Awaitable[Answer]]

_HANDLERS: dict[type[Request], Handler] = {
    requests.ListJobs: list_jobs,
    requests.JobStatus: job_status,
    requests.JobInfo: job_info,
    requests.Why: why,
    requests.Summary: recorded,
}


class RegistryClient(Queries):
    """Answers queries about a run without a manager from its registry, as the manager would have."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        try:
            self._view = RegistryView(run_dir)
        except JournalError as error:
            raise Refusal(str(error)) from None

    @property
    def run_dir(self) -> Path:
        return self._run_dir

    @property
    def unreadable(self) -> list[str]:
        """The parts of a damaged registry that cannot be read."""
        return self._view.unreadable

    def system_status(self) -> dict[str, dict[str, int]]:
        """Return the numbers of jobs and iterations by state, without `System` and `Resources`."""
        return counts(self._view)

    def _data(self, request: dict[str, Any]) -> dict[str, Any]:
        decoded = decode_request(request)
        handler = _HANDLERS.get(type(decoded))
        if handler is None:
            raise ConnectionError(f"no manager is at work in {self._run_dir}, so nobody can answer this request")
        try:
            answer = asyncio.run(self._answer(handler, decoded))
        except sqlite3.Error as error:
            raise Refusal(f"The registry {self._run_dir / FILE_NAME} could not be read: {error}.") from None
        return reply_data(request, check_accepted(answer.to_dict()))

    async def _answer(self, handler: Handler, request: Request) -> Answer:
        return await handler(self._view, request)

    def __enter__(self) -> RegistryClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self._view.close()


class Explanations(NamedTuple):
    """What the final states of jobs leave out."""

    sentences: dict[str, str]
    """The reason of each unsuccessful job, with the command that shows its last lines of output, if any."""
    iterations: Counter[str]
    """Numbers of iterations by state; empty for many jobs."""


def final_states(run_dir: Path, names: list[str] | None) -> tuple[dict[str, str], Explanations] | None:
    """Return the final states of these jobs and iterations, or of all jobs, with explanations.

    None when not all of them are final in the registry."""
    try:
        ended = RegistryClient(run_dir)
    except Refusal:
        return None
    with ended:
        wanted = list(ended.list()) if names is None else names
        entries = ended.status(wanted)["jobs"]
        known = {name: entry["data"]["status"] for name, entry in entries.items() if entry["status"] == 0}
        if len(known) < len(entries) or not FINAL.issuperset(known.values()):
            return None
        return known, explanations_of(ended, known)


def explanations_of(run: Queries, states: dict[str, str]) -> Explanations:
    """Explain final states with one request for a small number of jobs, whatever the number of states."""
    unsuccessful = [name for name, state in states.items() if state != "SUCCEED"][:MOST_EXPLAINED]
    are_few = len(states) <= MOST_EXPLAINED
    try:
        entries = run.why(list(states) if are_few else unsuccessful)["jobs"] if states else {}
    except ConnectionError:
        if unsuccessful:
            raise
        entries = {}  # the manager has ended meanwhile, and there is nothing to explain
    told = {name: entry["data"] for name, entry in entries.items() if entry["status"] == 0}
    iterations = Counter[str]()
    if are_few:
        for data in told.values():
            iterations.update(data.get("iterations", {}))
    return Explanations({name: _sentence(name, told[name]) for name in unsuccessful if name in told}, iterations)


def _sentence(name: str, told: dict[str, Any]) -> str:
    has_more = bool(told.get("first", told).get("lastLines"))
    sentence = after_state(told["sentence"])
    return f"{sentence}; see: qcg-pm why {name}" if has_more else sentence
