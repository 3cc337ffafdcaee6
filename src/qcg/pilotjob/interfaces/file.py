"""The file interface: carries out the requests of a JSON file in order, and logs the replies."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from qcg.pilotjob.description.errors import RequestError
from qcg.pilotjob.description.requests import decode_request_file
from qcg.pilotjob.host.safe_open import read_input
from qcg.pilotjob.interfaces.dispatch import carry_out
from qcg.pilotjob.interfaces.replies import Answer, ManagerEnding
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.journal.metadata import (
    FILE_DIGEST,
    FILE_REQUESTS_DONE,
    FILE_REQUESTS_REFUSED,
    FILE_REQUESTS_TOTAL,
)
from qcg.pilotjob.manager.commits import RETRY_DELAY, Counted
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.manager.ports import FileProgress
from qcg.pilotjob.report.errors import ReportError

log = logging.getLogger(__name__)

MOST_LOGGED = 10
"""Names of jobs of one answer that are logged."""

_STANDARD_INPUT = Path("-")


class FileError(Exception):
    """The request file cannot be used; the message says why."""


def read_requests(path: Path) -> list[msgspec.Raw]:
    """Read a request file; `-` is the standard input."""
    try:
        return decode_request_file(sys.stdin.buffer.read() if path == _STANDARD_INPUT else read_input(path))
    except OSError as error:
        raise FileError(f"the request file {path} cannot be read: {error.strerror}") from None
    except RequestError as error:
        raise FileError(f"{path}: {error}") from None
    except MemoryError:
        raise FileError(f"the request file {path} does not fit into memory; split it into several submits") from None


def forget_file(journal: Journal) -> None:
    """Reset the progress, because another file is given."""
    for counter in (FILE_REQUESTS_DONE, FILE_REQUESTS_TOTAL, FILE_REQUESTS_REFUSED):
        journal.set_metadata(counter, 0)
    journal.set_metadata(FILE_DIGEST, "")


def how_far(journal: Journal) -> tuple[int, int]:
    """The number of requests of the file that earlier managers carried out, and their total, 0 when it is unknown."""
    return journal.metadata(FILE_REQUESTS_DONE), journal.metadata(FILE_REQUESTS_TOTAL)


def is_file_done(journal: Journal) -> bool:
    """Whether earlier managers carried out all requests of the file, which is not needed any more."""
    done, total = how_far(journal)
    return total > 0 and done == total


def remember_file(journal: Journal, path: Path) -> None:
    """Store the digest of the file, to detect changes before a resume."""
    if not path.is_file():  # a pipe can be read only once
        return
    try:
        journal.set_metadata(FILE_DIGEST, _digest(path))
    except OSError as error:
        log.warning("whether %s changes before a resume will not be noticed: %s", path, error.strerror)


def check_unchanged(journal: Journal, path: Path) -> None:
    """Raise FileError when the file has changed since this run carried out a part of it."""
    before = journal.metadata(FILE_DIGEST)
    try:
        changed = bool(before) and path.is_file() and _digest(path) != before
    except OSError as error:
        raise FileError(f"the request file {path} cannot be read: {error.strerror}") from None
    if changed:
        raise FileError(
            f"{path} was carried out in this run, or a part of it, and has changed since; give the new requests in"
            " another file, or start a new run"
        )


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def shortened(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer for the log: of a long list of jobs only the first names. Their number is in it, too."""
    data = answer.get("data")
    if not isinstance(data, dict):
        return answer
    jobs = data.get("jobs")
    if not isinstance(jobs, list) or len(jobs) <= MOST_LOGGED:
        return answer
    return {**answer, "data": {**data, "jobs": [*jobs[:MOST_LOGGED], "…"]}}


async def run_requests(manager: Manager, requests: list[msgspec.Raw]) -> FileProgress:
    """Carry out the requests that earlier managers have not, until a shutdown is requested."""
    journal = manager.engine.journal
    done = journal.metadata(FILE_REQUESTS_DONE)
    errors = journal.metadata(FILE_REQUESTS_REFUSED)
    refusals: list[str] = []
    if requests:
        # A manager that resumes the run knows from this number that requests are left.
        journal.set_metadata(FILE_REQUESTS_TOTAL, len(requests))
        manager.engine.commits.try_to_commit()
    for number, request in enumerate(requests[done:], done):
        reply = await _answer(manager, request, number)
        if reply is None:
            return FileProgress(errors, len(requests) - number, refusals)
        journal.set_metadata(FILE_REQUESTS_DONE, number + 1)
        if reply.code:
            errors += 1
            journal.set_metadata(FILE_REQUESTS_REFUSED, errors)
        manager.engine.commits.try_to_commit()
        text = msgspec.json.encode(shortened(reply.to_dict())).decode()
        if reply.code:
            log.error("request %d was refused:\n%s", number + 1, reply.message)
            refusals.append(reply.message or "")
        log.info("request %d answered: %s", number + 1, text if len(text) <= 2000 else text[:2000] + " …")
        await asyncio.sleep(0)  # let agents and signals be handled between requests
    return FileProgress(errors, 0, refusals)


async def _answer(manager: Manager, request: msgspec.Raw, number: int) -> Answer | None:
    """Carry out a request; with a full disk it waits, because no client would repeat it. None during a shutdown."""
    waits = False
    while not manager.shutdown.is_requested:
        try:
            # The effects of a request and the number of requests done are committed together: a request is carried out
            # exactly once, also after a crash.
            return await carry_out(
                manager, request, f"request {number + 1}", Counted(FILE_REQUESTS_DONE, number, number + 1)
            )
        except ManagerEnding:
            return None
        except (JournalError, ReportError) as problem:
            if not waits:
                log.error("request %d waits until it can be stored: %s", number + 1, problem)
                waits = True
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(manager.shutdown.wait(), RETRY_DELAY)
    return None
