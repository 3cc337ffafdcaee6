"""Errors in job descriptions and requests: a list of problems, each with its path and a message."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from qcg.pilotjob.common.similarity import nearest

MAX_SHOWN = 50
"""Problems that an error message lists; the others are only counted."""


class Problem(NamedTuple):
    """One thing that is wrong in a description or a request."""

    path: str
    """Position in the input, such as `jobs[3].execution.arg`; empty for the input as a whole."""
    sentence: str

    def __str__(self) -> str:
        return f"{self.path}: {self.sentence}" if self.path else self.sentence


class DescriptionError(Exception):
    """A description that is not valid, with all its problems in the order of the input."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems)
        self.problems = problems

    def within(self, path: str) -> DescriptionError:
        """The same problems, with `path` put before the path of each."""
        if not path:
            return self
        return DescriptionError(
            [Problem(f"{path}: {one.path}" if one.path else path, one.sentence) for one in self.problems]
        )

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems[:MAX_SHOWN]]
        if len(self.problems) > MAX_SHOWN:
            lines.append(f"and {len(self.problems) - MAX_SHOWN} more")
        return "\n".join(lines)


class RequestError(DescriptionError):
    """A request that is not valid, apart from the job descriptions in it."""


def single_problem(sentence: str) -> DescriptionError:
    """The error for one problem without a path."""
    return DescriptionError([Problem("", sentence)])


@lru_cache(maxsize=1024)
def suggestion(word: str, known: tuple[str, ...], cutoff: float = 0.6) -> str:
    """Return `; did you mean "args"?` with the known word closest to `word`, or a list of all known words.
    `cutoff`: the least similarity, from 0 to 1, of a word that is suggested.

    Cached, because a large file tends to repeat the same mistake in every job.
    """
    by_lower = {name.lower(): name for name in known}
    near = nearest(word[:100].lower(), by_lower, cutoff)
    if near is not None:
        return f'; did you mean "{by_lower[near]}"?'
    return f"; known here: {', '.join(known)}" if known else ""


def quoted(value: object) -> str:
    """A user's value for use in a message: in quotes, printable and at most 60 characters long."""
    text = str(value)
    if len(text) > 60:
        text = text[:57] + "..."
    return f'"{one_line(text)}"'


def one_line(text: str) -> str:
    """A user's text for use in a message without quotes: printable."""
    return "".join([character if character.isprintable() else "?" for character in text])


def join_path(path: str, key: str) -> str:
    """The path of a key inside the object at `path`; a long or unprintable key is shortened and escaped."""
    if not (key.isprintable() and 0 < len(key) <= 60):
        key = repr(key[:60])
    return f"{path}.{key}" if path else key
