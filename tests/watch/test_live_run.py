"""Replies of a manager in displays: other clocks, earlier versions, wrong replies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from qcg.pilotjob.api.errors import ConnectionError, InternalError, QCGPJMAError, RequestRefusedError
from qcg.pilotjob.report.run_summary import RunSummary
from qcg.pilotjob.watch.dependency_graph import DependencyGraph
from qcg.pilotjob.watch.live_run import LiveRun
from qcg.pilotjob.watch.open import open_run
from qcg.pilotjob.watch.registry import RunRegistry
from tests.support.pilot import job, run_requests


class StubManager:
    """A manager whose replies tests choose."""

    def __init__(self, summary: RunSummary) -> None:
        self.current = summary
        self.error: QCGPJMAError | None = None
        self._published: list[RunSummary] = []
        self._changed = threading.Condition()

    def publish(self, summary: RunSummary) -> None:
        with self._changed:
            self._published.append(summary)
            self._changed.notify_all()

    def summary(self) -> RunSummary:
        if self.error is not None:
            raise self.error
        return self.current

    def why(self, names: list[str]) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        return {"jobs": {name: {"status": 0, "data": {"sentence": "the manager knows"}} for name in names}}

    def listen(self, topic: str) -> StubManager:
        return self

    def wait(self, timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._published, timeout) != []

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        with self._changed:
            taken, self._published = self._published, []
        return [("SUM", {"summary": msgspec.to_builtins(summary)}) for summary in taken]

    def cleanup(self) -> None: ...

    def __enter__(self) -> StubManager:
        return self

    def __exit__(self, *exception: object) -> None: ...


@pytest.fixture
def recorded(tmp_path: Path) -> RunSummary:
    """The summary of a run with one job, as if a manager were still at work."""
    tmp_path.chmod(0o700)
    run_requests(tmp_path, [job("one", "true")])
    with closing(open_run(tmp_path)) as run:
        return replace(run.summary(), alive=True)


@pytest.fixture
def manager(recorded: RunSummary) -> StubManager:
    return StubManager(recorded)


@pytest.fixture
def live(manager: StubManager, recorded: RunSummary) -> Iterator[LiveRun]:
    run_dir = Path(recorded.directory)
    with closing(RunRegistry(run_dir)) as registry:
        live = LiveRun(run_dir, registry, DependencyGraph(), manager)  # type: ignore[arg-type]
        with closing(live):
            yield live


def test_a_summary_of_a_machine_whose_clock_is_behind_is_news(
    live: LiveRun, manager: StubManager, recorded: RunSummary
):
    behind = replace(recorded, at=recorded.at - 3600, running=7)
    manager.publish(behind)
    assert live.wait(recorded, 30.0) == behind
    further = replace(behind, at=behind.at + 1, running=8)
    manager.publish(further)
    assert live.wait(behind, 30.0) == further


def test_a_summary_is_not_followed_by_an_earlier_event(live: LiveRun, manager: StubManager, recorded: RunSummary):
    event = replace(recorded, at=recorded.at + 1)
    manager.publish(event)
    assert live.wait(recorded, 30.0) == event
    manager.current = replace(recorded, at=recorded.at + 2)
    known = live.summary()
    assert live.wait(known, 0.2) is known


@pytest.mark.parametrize("error", [RequestRefusedError("unknown request"), InternalError("no data")])
def test_without_a_reason_of_the_manager_the_registry_gives_one(
    live: LiveRun, manager: StubManager, recorded: RunSummary, error: QCGPJMAError
):
    found = live.job("one")
    assert found is not None
    assert found.why == "the manager knows"
    manager.error = error
    found = live.job("one")
    assert found is not None
    assert found.line.state == "SUCCEED"
    assert found.why not in ("", "the manager knows")
    assert live.summary().jobs == recorded.jobs


def test_a_manager_that_is_gone_is_an_error(live: LiveRun, manager: StubManager):
    manager.error = ConnectionError("gone")
    for question in (lambda: live.job("one"), live.summary):
        with pytest.raises(ConnectionError):
            question()
