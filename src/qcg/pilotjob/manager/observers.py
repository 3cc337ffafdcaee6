"""Observers notified of job state changes, besides the journal and the report."""

from __future__ import annotations

from collections.abc import Callable

from qcg.pilotjob.core.effects import Transition


class Observers:
    """Functions to call, by kind of event. A list that is empty costs nothing."""

    def __init__(self) -> None:
        self.transitions: list[Callable[[Transition], None]] = []
        """Every state change of a job or iteration."""
        self.failures: list[Callable[[Transition], None]] = []
        """Transitions to FAILED."""
        self.bulk_ends: list[Callable[[], None]] = []
        """Many iterations of a job ended before they were started, without a transition of each."""
        self.all_done: list[Callable[[], None]] = []
        """Every job is final."""
        self.notices: list[Callable[[str], None]] = []
        """Sentences for a user who watches the run."""
