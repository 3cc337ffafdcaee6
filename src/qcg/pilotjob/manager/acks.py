"""How much of what agents have told they may forget."""

from __future__ import annotations

from collections.abc import Container


class Acknowledging:
    """Numbers of records, by agent. The end of a run that leaves several nodes is not in the books before all of them
    have told; until then its agent keeps that record, and all after it."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}
        self._held: dict[str, tuple[str, int]] = {}
        """By run, the record of its end."""
        self._settled: dict[str, int] = {}

    def told(self, agent: str, number: int) -> None:
        """Everything up to this record was handled."""
        self._told[agent] = number

    def hold(self, agent: str, number: int, attempt_id: str) -> None:
        self._held.setdefault(attempt_id, (agent, number))

    def settled(self, leaving: Container[str]) -> dict[str, int]:
        """What is in the books for good and was not when this was asked the last time. `leaving`: the runs whose ends
        are still held."""
        self._held = {attempt_id: place for attempt_id, place in self._held.items() if attempt_id in leaving}
        settled = dict(self._told)
        for agent, number in self._held.values():
            settled[agent] = min(settled[agent], number - 1)
        news = {agent: number for agent, number in settled.items() if number > self._settled.get(agent, 0)}
        self._settled.update(news)
        return news
