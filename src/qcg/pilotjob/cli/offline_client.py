"""Questions to a run whose manager has ended: its registry answers them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from qcg.pilotjob.api.asking import accepted
from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.errors import ConnectionError
from qcg.pilotjob.cli.commands.wait import MOST_EXPLAINED
from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.description import requests
from qcg.pilotjob.description.requests import Request, decode_request
from qcg.pilotjob.interfaces.books import Books
from qcg.pilotjob.interfaces.handlers.job_info import job_info
from qcg.pilotjob.interfaces.handlers.job_status import job_status
from qcg.pilotjob.interfaces.handlers.list_jobs import list_jobs
from qcg.pilotjob.interfaces.handlers.status import counts
from qcg.pilotjob.interfaces.handlers.why import why
from qcg.pilotjob.interfaces.registry_view import EndedBooks
from qcg.pilotjob.interfaces.replies import Answer
from qcg.pilotjob.journal.errors import JournalError

_HANDLERS: dict[type[Request], Callable[[Books, Any], Awaitable[Answer]]] = {
    requests.ListJobs: list_jobs,
    requests.JobStatus: job_status,
    requests.JobInfo: job_info,
    requests.Why: why,
}


class EndedRun(Manager):
    """As a manager to commands that only look: the same calls and the same answers."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        try:
            self._books = EndedBooks(run_dir)
        except JournalError as error:
            raise Refusal(str(error)) from None

    @property
    def run_dir(self) -> Path:
        return self._run_dir

    @property
    def unreadable(self) -> list[str]:
        """What a damaged registry does not tell."""
        return self._books.unreadable

    def send_request(self, request: dict[str, Any]) -> dict[str, Any]:
        wanted = decode_request(request)
        if type(wanted) not in _HANDLERS:
            raise ConnectionError(f"no manager is at work in {self._run_dir}, so nobody can answer this request")
        return accepted(asyncio.run(self._answer(wanted)).to_dict())

    async def _answer(self, wanted: Request) -> Answer:
        return await _HANDLERS[type(wanted)](self._books, wanted)

    def counts(self) -> dict[str, dict[str, int]]:
        """Of jobs and iterations by state, as the answer to `status` has them."""
        return counts(self._books)

    def cleanup(self) -> None:
        self._books.close()


def final_states(run_dir: Path, names: list[str] | None) -> tuple[dict[str, str], dict[str, str]] | None:
    """Of these jobs and iterations, or of all jobs: how they ended, and sentences about those that did not succeed.
    None when the registry does not know how all of them ended."""
    try:
        ended = EndedRun(run_dir)
    except Refusal:
        return None
    with ended:
        wanted = list(ended.list()) if names is None else names
        entries = ended.status(wanted)["jobs"]
        known = {name: entry["data"]["status"] for name, entry in entries.items() if entry["status"] == 0}
        if len(known) < len(entries) or not all(map(ended.is_status_finished, known.values())):
            return None
        return known, sentences_of(ended, known)


def sentences_of(manager: Manager, states: dict[str, str]) -> dict[str, str]:
    """Why those that did not succeed did not, and how to see what they wrote to their errors, if they did."""
    names = [name for name, state in states.items() if state != "SUCCEED"][:MOST_EXPLAINED]
    entries = manager.why(names)["jobs"] if names else {}
    return {name: _sentence(name, entry["data"]) for name, entry in entries.items() if entry["status"] == 0}


def _sentence(name: str, told: dict[str, Any]) -> str:
    has_more = bool(told.get("first", told).get("lastLines"))
    return f"{told['sentence']}; see: qcg-pm why {name}" if has_more else told["sentence"]
