"""Observers of a run: each gets the events for which it has methods, while it is subscribed."""

from __future__ import annotations

from qcg.pilotjob.manager.observers import Observers, RunObserver


class Notices(RunObserver):
    def __init__(self) -> None:
        self.noted: list[str] = []

    def notice(self, text: str) -> None:
        self.noted.append(text)


def test_an_observer_is_called_for_the_methods_that_it_overrides():
    observers, observer = Observers(), Notices()
    observers.subscribe(observer)
    for notify in observers.notice:
        notify("one host is slow")
    assert observer.noted == ["one host is slow"]
    assert (observers.changed, observers.failed, observers.many_ended, observers.all_done) == ([], [], [], [])


def test_an_observer_that_has_unsubscribed_is_not_called():
    observers, first, second = Observers(), Notices(), Notices()
    observers.subscribe(first)
    observers.subscribe(second)
    observers.unsubscribe(first)
    observers.unsubscribe(first)
    assert observers.notice == [second.notice]
