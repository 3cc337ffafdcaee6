"""Iteration schedulers: how `maximum-iters` and `split-into` divide the resources of a run among iterations."""

from __future__ import annotations

from qcg.pilotjob.description.errors import single_problem
from qcg.pilotjob.description.model import Amount


class MaximumIters:
    """The sizes of `count` iterations that use all of `total`, each at least `least`, in as few rounds as possible.

    Rounds and sizes are as equal as whole numbers allow: larger rounds come first, larger sizes come last in a round.
    So every size follows from a division, and no table is needed.
    """

    __slots__ = ("_larger_rounds", "_per_round", "_total", "count")

    def __init__(self, count: int, total: int, least: int = 1) -> None:
        if count < 1:
            raise single_problem("maximum-iters needs at least one iteration")
        at_once = total // least
        if at_once == 0:
            raise single_problem(
                f"maximum-iters with a minimum of {least} for each iteration does not fit: only {total} exist"
            )
        rounds = -(-count // at_once)
        self.count = count
        self._total = total
        self._per_round, self._larger_rounds = divmod(count, rounds)

    def size(self, position: int) -> int:
        """The size of the iteration at this position, counted from 0."""
        if not 0 <= position < self.count:
            raise IndexError(position)
        in_larger_rounds = self._larger_rounds * (self._per_round + 1)
        if position < in_larger_rounds:
            sharers = self._per_round + 1
            rank = position % sharers
        else:
            sharers = self._per_round
            rank = (position - in_larger_rounds) % sharers
        share, rest = divmod(self._total, sharers)
        return share + 1 if rank >= sharers - rest else share

    def next_of(self, size: int, position: int) -> int | None:
        """The first position from `position` on with this size, in constant time; None if there is none."""
        in_larger_rounds = self._larger_rounds * (self._per_round + 1)
        zones = (0, in_larger_rounds, self._per_round + 1), (in_larger_rounds, self.count, self._per_round)
        for begin, end, sharers in zones:
            share, rest = divmod(self._total, sharers) if end > begin else (0, 0)
            first, last = (0, sharers - rest) if size == share else (sharers - rest, sharers)
            if position >= end or size not in (share, share + 1) or first == last:
                continue
            rank = (max(position, begin) - begin) % sharers
            ahead = max(first - rank, 0) if rank < last else sharers - rank + first
            found = max(position, begin) + ahead
            if found < end:
                return found
        return None

    def sizes(self) -> tuple[int, ...]:
        """The distinct sizes in ascending order; at most four."""
        found: set[int] = set()
        for sharers in (self._per_round, self._per_round + 1 if self._larger_rounds else self._per_round):
            share, rest = divmod(self._total, sharers)
            found.add(share)
            if rest:
                found.add(share + 1)
        return tuple(sorted(found))


def split_into(total: int, parts: int, least: int = 1) -> Amount:
    """The amount from `least` to one of `parts` equal parts of `total`."""
    part = total // parts
    if part < 1:
        raise single_problem(f"split-into {parts} parts leaves nothing for each: only {total} exist")
    if part < least:
        raise single_problem(f"split-into {parts} parts of {total} gives {part} each, less than the minimum of {least}")
    return Amount(least=least, most=part)
