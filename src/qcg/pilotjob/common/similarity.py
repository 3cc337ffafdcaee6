"""The known words that are most similar to a mistyped one."""

from __future__ import annotations

from collections.abc import Iterable

LEAST_SIMILARITY = 0.6


def nearest(word: str, known: Iterable[str], cutoff: float = LEAST_SIMILARITY) -> str | None:
    """The known word that is most similar. `cutoff`: the least similarity of a word, from 0 to 1."""
    return next(iter(similar(word, known, cutoff, limit=1)), None)


def similar(word: str, known: Iterable[str], cutoff: float = LEAST_SIMILARITY, limit: int = 3) -> list[str]:
    """The known words that are similar, the most similar one first."""
    from difflib import get_close_matches  # here: most commands contain no mistake

    return get_close_matches(word, list(known), n=limit, cutoff=cutoff)
