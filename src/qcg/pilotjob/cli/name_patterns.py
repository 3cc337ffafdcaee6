"""Names as people write them: `sim*` for many jobs, `job:3` for one iteration, `job:3-7,9` and `job:*` for several."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from typing import Protocol

_RANGE = re.compile(r"(-?\d{1,18})-(-?\d{1,18})", re.ASCII)
_PATTERN = re.compile(r"[*?[]")


class NoSuchName(Exception):
    """Nothing has such a name; the message says what was looked for."""


class Book(Protocol):
    """Where names are looked up, when they have to be."""

    def jobs(self) -> Collection[str]:
        """The names that patterns are compared with."""

    def indices(self, job: str) -> range | None:
        """Of its iterations; None for a job that has none. `NoSuchName` when there is no such job."""


def expand(wanted: Iterable[str], book: Book) -> dict[str, bool]:
    """Every job and iteration that is meant, once, in order; and whether it was named itself, not by a pattern or a
    range.

    What was named itself need not exist: whoever is asked about it says so.
    """
    found: dict[str, bool] = {}
    for text in wanted:
        names = list(_names(text, book))
        exact = names == [text]
        for name in names:
            found[name] = found.get(name, False) or exact
    return found


def _names(text: str, book: Book) -> Iterable[str]:
    job, colon, suffix = text.partition(":")
    jobs = _jobs(job, book)
    if not colon:
        return jobs
    return (name for one in jobs for name in _iterations(one, suffix, book, named=one == job))


def _jobs(pattern: str, book: Book) -> list[str]:
    if not _PATTERN.search(pattern):
        return [pattern]
    found = [name for name in book.jobs() if fnmatchcase(name, pattern)]
    if not found:
        raise NoSuchName(f"no job matches {pattern!r}")
    return found


def _iterations(job: str, suffix: str, book: Book, *, named: bool) -> Iterable[str]:
    for part in suffix.split(","):
        span = _RANGE.fullmatch(part)
        if span is None and part != "*":
            yield f"{job}:{part}"
            continue
        indices = book.indices(job)
        if indices is None:
            if named:
                raise NoSuchName(f"job {job!r} has no iterations, so {job}:{part} means nothing")
            continue
        first, last = (int(span[1]), int(span[2])) if span else (indices[0], indices[-1])
        if last < first:
            raise NoSuchName(f"{job}:{part} ends before it begins; write {job}:{last}-{first}")
        within = [index for index in indices if first <= index <= last]
        if not within:
            raise NoSuchName(
                f"job {job!r} has no iterations from {first} to {last}, only {indices[0]} to {indices[-1]}"
            )
        yield from (f"{job}:{index}" for index in within)
