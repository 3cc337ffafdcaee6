"""Whether agents survive the kill of the command that started them. No clock, no processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

AFTER_KILL = 2.0
"""Seconds after the kill in which the last message of an agent that ended with its command can still arrive."""
MOST_ENDED = 2
"""Agents of a node that may end with their start command. Then its start commands are kept running."""


class StartKills:
    """The killed start commands of each node, and how many agents ended with them."""

    def __init__(self) -> None:
        self._killed: dict[str, float] = {}
        """When the last start command of a node was killed."""
        self._ended: Counter[str] = Counter()

    def killed(self, nodes: Iterable[str], now: float) -> None:
        """The start command of these nodes was killed."""
        self._killed.update(dict.fromkeys(nodes, now))

    def restarted(self, node: str, active: float) -> bool:
        """The silent agent of a node is started again. Returns whether its start commands are kept running from now on.

        `active`: time of the last sign of life of the agent.
        """
        killed = self._killed.pop(node, None)
        if killed is None or active > killed + AFTER_KILL:
            return False
        self._ended[node] += 1
        return self._ended[node] == MOST_ENDED

    def may_kill(self, nodes: Iterable[str]) -> bool:
        """Whether the start command of these nodes may be killed."""
        return all(self._ended[node] < MOST_ENDED for node in nodes)
