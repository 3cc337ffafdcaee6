"""Job names and patterns on the command line: `sim*`, `job:3` for an iteration, `job:3-7,9` and `job:*` for several."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

_RANGE = re.compile(r"(-?\d{1,18})-(-?\d{1,18})", re.ASCII)
_PATTERN = re.compile(r"[*?[]")


class NoSuchName(Exception):
    """No job or iteration matches; the message says which name was searched."""


class NameSource(Protocol):
    """The job names and iterations that patterns and ranges are compared with."""

    def matching(self, pattern: str) -> Collection[str]:
        """The names of the jobs that a pattern matches."""

    def indices(self, job: str) -> Sequence[int] | None:
        """The indices of a job's iterations; None without iterations. Raises NoSuchName when there is no such job."""


def expand(wanted: Iterable[str], source: NameSource, *, whole_jobs: bool = False) -> dict[str, bool]:
    """Every matching job and iteration once, in order, and whether it was named exactly, not by a pattern or a range.

    Exact names need not exist: the manager reports unknown names. `whole_jobs`: `job:*` stands for the job, which
    costs no more for a million iterations than for one.
    """
    found: dict[str, bool] = {}
    wanted = list(wanted)
    problems: dict[str, str] = {}
    for text in wanted:
        try:
            names = list(_names(text, source, whole_jobs=whole_jobs))
        except NoSuchName as problem:
            problems[text] = str(problem)
            continue
        exact = names == [text]
        for name in names:
            found[name] = found.get(name, False) or exact
    if problems:
        problems |= {text: f"there is no job {text!r}" for text in wanted if _is_unknown(text, source)}
        raise NoSuchName("; ".join([problems[text] for text in dict.fromkeys(wanted) if text in problems]))
    return found


def _is_unknown(text: str, source: NameSource) -> bool:
    """Whether a text is the exact name of a job that does not exist."""
    return ":" not in text and not is_pattern(text) and not source.matching(literal(text))


def is_pattern(text: str) -> bool:
    """Whether a text has wildcards."""
    return _PATTERN.search(text) is not None


def literal(name: str) -> str:
    """The pattern that matches this name alone."""
    return _PATTERN.sub(r"[\g<0>]", name)


def _names(text: str, source: NameSource, *, whole_jobs: bool) -> Iterable[str]:
    job, colon, suffix = text.partition(":")
    jobs = _jobs(job, source)
    if not colon:
        return jobs
    return (name for one in jobs for name in _iterations(one, suffix, source, named=one == job, whole_jobs=whole_jobs))


def _jobs(pattern: str, source: NameSource) -> list[str]:
    if not is_pattern(pattern):
        return [pattern]
    found = list(source.matching(pattern))
    if not found:
        raise NoSuchName(f"no job matches {pattern!r}")
    return found


def _iterations(job: str, suffix: str, source: NameSource, *, named: bool, whole_jobs: bool) -> Iterable[str]:
    for part in suffix.split(","):
        span = _RANGE.fullmatch(part)
        if span is None and part != "*":
            yield f"{job}:{part}"
            continue
        indices = source.indices(job)
        if indices is None:
            if named:
                raise NoSuchName(f"job {job!r} has no iterations, so {job}:{part} means nothing")
            continue
        if span is None:
            yield from [job] if whole_jobs else (f"{job}:{index}" for index in indices)
            continue
        first, last = int(span[1]), int(span[2])
        if last < first:
            raise NoSuchName(f"{job}:{part} ends before it begins; write {job}:{last}-{first}")
        within = [index for index in indices if first <= index <= last]
        if not within:
            raise NoSuchName(
                f"job {job!r} has no iterations from {first} to {last}, only {min(indices)} to {max(indices)}"
            )
        yield from (f"{job}:{index}" for index in within)
