"""The file interface: a JSON array of requests, or one request, run in order; the replies go to the log."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from qcg.pilotjob.description.errors import RequestError
from qcg.pilotjob.description.requests import decode_request_file
from qcg.pilotjob.host.safe_open import read_input
from qcg.pilotjob.interfaces.dispatch import attempt
from qcg.pilotjob.interfaces.replies import Answer, ManagerEnding
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.journal.metadata import (
    FILE_DIGEST,
    FILE_REQUESTS_DONE,
    FILE_REQUESTS_REFUSED,
    FILE_REQUESTS_TOTAL,
)
from qcg.pilotjob.manager.commits import RETRY_DELAY
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.manager.ports import FileProgress
from qcg.pilotjob.manager.submission import Counted
from qcg.pilotjob.report.errors import ReportError

log = logging.getLogger(__name__)

_STANDARD_INPUT = Path("-")


class FileError(Exception):
    """The request file as a whole is of no use; the message says why."""


def read_requests(path: Path) -> list[msgspec.Raw]:
    """`-`: of standard input."""
    try:
        return decode_request_file(sys.stdin.buffer.read() if path == _STANDARD_INPUT else read_input(path))
    except OSError as error:
        raise FileError(f"the request file {path} cannot be read: {error.strerror}") from None
    except RequestError as error:
        raise FileError(f"{path}: {error}") from None
    except MemoryError:
        raise FileError(f"the request file {path} does not fit into memory; split it into several submits") from None


def forget_file(journal: Journal) -> None:
    """Another file is to be run, from its beginning."""
    for counter in (FILE_REQUESTS_DONE, FILE_REQUESTS_TOTAL, FILE_REQUESTS_REFUSED):
        journal.set_metadata(counter, 0)
    journal.set_metadata(FILE_DIGEST, "")


def how_far(journal: Journal) -> tuple[int, int]:
    """How many requests of the file earlier managers have run, and how many it has, as far as that is known."""
    return journal.metadata(FILE_REQUESTS_DONE), journal.metadata(FILE_REQUESTS_TOTAL)


def is_file_done(journal: Journal) -> bool:
    """Whether an earlier manager has run all requests of the file: it is not needed any more."""
    done, in_all = how_far(journal)
    return in_all > 0 and done == in_all


def remember_file(journal: Journal, path: Path) -> None:
    """What the file held when this run began with it."""
    if not path.is_file():  # a pipe can be read only once
        return
    try:
        journal.set_metadata(FILE_DIGEST, _digest(path))
    except OSError as error:
        log.warning("whether %s changes before a resume will not be noticed: %s", path, error.strerror)


def check_unchanged(journal: Journal, path: Path) -> None:
    """Of a file that this run has begun with, the rest is run: it must be the same file."""
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


async def run_requests(manager: Manager, requests: list[msgspec.Raw]) -> FileProgress:
    """Run those that have not been run before, until a shutdown is requested."""
    journal = manager.engine.journal
    done = journal.metadata(FILE_REQUESTS_DONE)
    errors = journal.metadata(FILE_REQUESTS_REFUSED)
    refusals: list[str] = []
    if requests:
        # From here on, a manager that resumes the run knows of requests that were not carried out.
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
        text = msgspec.json.encode(reply.to_dict()).decode()
        if reply.code:
            log.error("request %d was refused:\n%s", number + 1, reply.message)
            refusals.append(reply.message or "")
        log.info("request %d answered: %s", number + 1, text if len(text) <= 2000 else text[:2000] + " …")
        await asyncio.sleep(0)  # agents and signals want to be heard between requests, too
    return FileProgress(errors, 0, refusals)


async def _answer(manager: Manager, request: msgspec.Raw, number: int) -> Answer | None:
    """Nobody is there to send the request again, so it waits for room on the disk. None when the end comes sooner."""
    waits = False
    while not manager.shutdown.is_made:
        try:
            # Jobs are stored in the same commit as the number of requests done: after a crash, the request is carried
            # out by the next manager, or it has been carried out.
            return await attempt(
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
