"""Tracks which records of hosts are committed and can be acknowledged."""

from __future__ import annotations

from collections.abc import Container


class AckTracker:
    """Record numbers by host. The end of an attempt on several nodes is final only when all of these nodes have
    reported; until then its host keeps the record of the end and all later ones."""

    def __init__(self) -> None:
        self._handled: dict[str, int] = {}
        self._held: dict[str, tuple[str, int]] = {}
        """By attempt id: the host, and the number of the record of its end."""
        self._settled: dict[str, int] = {}

    def handled(self, host: str, number: int) -> None:
        """Every record up to this one was handled."""
        self._handled[host] = number

    def hold(self, host: str, number: int, attempt_id: str) -> None:
        """Do not acknowledge the record of this end while the attempt is cleaned up on its other nodes."""
        self._held.setdefault(attempt_id, (host, number))

    def settled(self, cleanups: Container[str]) -> dict[str, int]:
        """By host, the number up to which all its records can be acknowledged, for hosts where it has grown since the
        last call.

        `cleanups`: ids of the attempts that are still cleaned up, whose ends are held."""
        self._held = {attempt_id: record for attempt_id, record in self._held.items() if attempt_id in cleanups}
        settled = dict(self._handled)
        for host, number in self._held.values():
            settled[host] = min(settled[host], number - 1)
        news = {host: number for host, number in settled.items() if number > self._settled.get(host, 0)}
        self._settled.update(news)
        return news
