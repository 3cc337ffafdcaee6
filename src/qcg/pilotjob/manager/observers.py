"""Observers notified of job state changes, besides the journal and the report."""

from __future__ import annotations

from collections.abc import Callable

from qcg.pilotjob.core.effects import Transition


class RunObserver:
    """Receives the events of a run. A subclass overrides the methods that it needs; the others are never called."""

    def changed(self, transition: Transition) -> None:
        """A job or an iteration has entered a state."""

    def failed(self, transition: Transition) -> None:
        """A job or an iteration has entered the state FAILED."""

    def many_ended(self) -> None:
        """Many iterations of a job ended before they were started, without a transition of each."""

    def all_done(self) -> None:
        """Every job is final."""

    def notice(self, text: str) -> None:
        """A sentence for a user who watches the run."""

    def warning(self, text: str) -> None:
        """A warning about a probable mistake of the user."""


class Observers:
    """The subscribed observers, as the methods to call for each kind of event. An empty list costs nothing."""

    def __init__(self) -> None:
        self.changed: list[Callable[[Transition], None]] = []
        self.failed: list[Callable[[Transition], None]] = []
        self.many_ended: list[Callable[[], None]] = []
        self.all_done: list[Callable[[], None]] = []
        self.notice: list[Callable[[str], None]] = []
        self.warning: list[Callable[[str], None]] = []

    def subscribe(self, observer: RunObserver) -> None:
        for name, methods in vars(self).items():
            if getattr(type(observer), name) is not getattr(RunObserver, name):
                methods.append(getattr(observer, name))

    def unsubscribe(self, observer: RunObserver) -> None:
        """Undo `subscribe`. An observer that is not subscribed is ignored."""
        for name, methods in vars(self).items():
            if getattr(observer, name) in methods:
                methods.remove(getattr(observer, name))
