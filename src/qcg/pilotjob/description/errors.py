"""What is wrong with a description or a request: every problem with its place, as a sentence."""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import NamedTuple

SHOWN = 50
"""A message shows this many problems and counts the rest."""


class Problem(NamedTuple):
    path: str
    """Where it is, such as `jobs[3].execution.arg`; empty when there is no better place than the whole."""
    sentence: str

    def __str__(self) -> str:
        return f"{self.path}: {self.sentence}" if self.path else self.sentence


class DescriptionError(Exception):
    """All that was found wrong, in the order in which it stands in the input."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems)
        self.problems = problems

    def within(self, place: str) -> DescriptionError:
        """The same problems, of something that stands in a larger whole."""
        if not place:
            return self
        return DescriptionError(
            [Problem(f"{place}: {one.path}" if one.path else place, one.sentence) for one in self.problems]
        )

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"and {len(self.problems) - SHOWN} more")
        return "\n".join(lines)


class RequestError(DescriptionError):
    """The request around the descriptions is wrong."""


def refuse(sentence: str) -> DescriptionError:
    """The error for a single problem that has no place of its own."""
    return DescriptionError([Problem("", sentence)])


@lru_cache(maxsize=1024)
def suggestion(word: str, known: tuple[str, ...]) -> str:
    """`; did you mean "args"?` for the known word nearest to this one, or else the list of all that are known.

    Cached, because the same slip tends to stand in every job of a large file.
    """
    by_lower = {name.lower(): name for name in known}
    nearest = difflib.get_close_matches(word[:100].lower(), by_lower, n=1, cutoff=0.6)
    if nearest:
        return f'; did you mean "{by_lower[nearest[0]]}"?'
    return f"; known here: {', '.join(known)}" if known else ""


def shown(value: object) -> str:
    """A value of the user's inside a sentence: quoted, never longer than a line."""
    text = str(value)
    if len(text) > 60:
        text = text[:57] + "..."
    return '"' + "".join(character if character.isprintable() else "?" for character in text) + '"'
