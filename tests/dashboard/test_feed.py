"""One subscription for many browsers: each summary reaches every thread that waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from qcg.pilotjob.dashboard import feed as feed_module
from qcg.pilotjob.dashboard.feed import SummaryFeed
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.report.run_summary import RunSummary
from tests.support.waiting import wait_for

FIRST = RunSummary(
    run="r", directory="/d", at=1.0, alive=True, host="h", started=None, ended=None, jobs={}, iterations={}, units={},
    cores=1, used=0, gpus=0, gpus_used=0, running=0, nodes=(), more_nodes=0, rates=None, estimate=None, waiting=(),
    failed=(), history=None,
)  # fmt: skip


class Source:
    """A run whose summaries tests publish."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.current = FIRST
        self.problem = ""
        self.waits = 0
        self.asked = 0

    def publish(self, summary: RunSummary) -> None:
        with self.changed:
            self.current = summary
            self.changed.notify_all()

    def summary(self) -> RunSummary:
        self.asked += 1
        if self.problem:
            raise JournalError(self.problem)
        return self.current

    def wait(self, known: RunSummary, timeout: float) -> RunSummary:
        with self.changed:
            self.waits += 1
            self.changed.wait_for(lambda: self.current is not known, 0.05)
            return self.current


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def feed(source: Source) -> Iterator[SummaryFeed]:
    feed = SummaryFeed(source)  # type: ignore[arg-type]
    yield feed
    feed.close()


def test_the_source_is_not_queried_before_the_first_client(source: Source, feed: SummaryFeed):
    assert (source.asked, source.waits) == (0, 0)
    assert feed.latest()[0] == FIRST
    assert source.asked == 1


def test_all_threads_get_the_next_summary_from_one_query(source: Source, feed: SummaryFeed):
    feed.latest()
    found: list[float] = []
    threads = [threading.Thread(target=lambda: found.append(feed.next(1.0, 30.0)[0].at)) for _ in range(10)]  # type: ignore[index]
    for thread in threads:
        thread.start()
    source.publish(replace(FIRST, at=2.0))
    for thread in threads:
        thread.join()
    assert found == [2.0] * 10
    assert source.asked == 1


def test_a_wait_without_a_new_summary_returns_none(feed: SummaryFeed):
    feed.latest()
    assert feed.next(1.0, 0.1) is None


def test_closing_the_feed_wakes_a_waiting_thread(feed: SummaryFeed):
    feed.latest()
    found: list[object] = [1]
    thread = threading.Thread(target=lambda: found.append(feed.next(1.0, 60.0)))
    thread.start()
    feed.close()
    thread.join(10)
    assert found == [1, None]


def test_the_source_is_not_queried_without_clients(source: Source, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(feed_module, "IDLE", 0.2)
    feed = SummaryFeed(source)  # type: ignore[arg-type]
    feed.latest()
    wait_for(lambda: feed._thread is None, what="the end of the thread")
    source.publish(replace(FIRST, at=3.0))
    assert feed.latest()[0].at == 3.0
    feed.close()


def test_a_registry_that_cannot_be_read_is_an_error_until_it_can(source: Source, feed: SummaryFeed):
    source.problem = "It is broken."
    with pytest.raises(JournalError, match="It is broken."):
        feed.latest()
    source.problem = ""
    assert feed.next(0.0, 30.0) is not None
