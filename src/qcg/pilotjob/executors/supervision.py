"""What a service asks of whatever looks after its agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class Supervision(Protocol):
    on_hopeless: Callable[[str], None]
    """Told when no agent can be had."""

    def start(self) -> None:
        """Find or start agents, and look after them from now on."""

    async def end(self, grace: float) -> None:
        """Tell all agents to end everything they run, and wait until they are gone."""

    def abandon(self) -> None:
        """Leave the agents alone: they keep their jobs, and wait for another manager."""


def raise_its_error(task: asyncio.Future[None]) -> None:
    """For tasks that nobody waits for: what went wrong in them is not lost."""
    if not task.cancelled():
        task.result()
