"""Who is told of what happens to jobs, besides the journal and the report."""

from __future__ import annotations

from collections.abc import Callable

from qcg.pilotjob.core.effects import Transition


class Followers:
    def __init__(self) -> None:
        self.changes: list[Callable[[Transition], None]] = []
        """Of every change of a job or iteration,"""
        self.failures: list[Callable[[Transition], None]] = []
        """of those that are FAILED,"""
        self.many_ended: list[Callable[[], None]] = []
        """of iterations that have ended before they began, many at once and without a change of each,"""
        self.all_done: list[Callable[[], None]] = []
        """that no job is left that is not final,"""
        self.notices: list[Callable[[str], None]] = []
        """and what a person who looks on should know."""
