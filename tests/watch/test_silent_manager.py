"""A manager that does not respond: displays show the registry."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.watch import open as open_module
from qcg.pilotjob.watch.open import FollowedRun, open_run
from qcg.pilotjob.watch.source import ActionRefused, JobQuery
from tests.support.pilot import job
from tests.support.serving import Served, served
from tests.support.waiting import wait_for

T = TypeVar("T")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    tmp_path.chmod(0o700)
    with served(tmp_path, "--nodes", "2") as service:
        service.submit(
            job("long", "sh", "-c", "echo started; sleep 1000", stdout="out"), job("next", "true", numCores=2)
        )
        service.wait("long", "EXECUTING")
        yield service


class Gate:
    """Blocks connections to the manager until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()
        self._connect = Manager.at
        monkeypatch.setattr(Manager, "at", self._at)

    def _at(self, *arguments: Any, **options: Any) -> Manager:
        self.reached.set()
        assert self.open.wait(60)
        return self._connect(*arguments, **options)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open.set()


def in_time(question: Callable[[], T]) -> T:
    """A reply that must come although the manager is silent."""
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(question()), daemon=True)
    thread.start()
    thread.join(30)
    assert found, "there was no answer"
    return found[0]


def test_queries_are_answered_while_the_manager_does_not_respond(service: Served, gate: Gate):
    with closing(open_run(service.wd)) as run:
        assert in_time(lambda: run.is_alive)
        assert gate.reached.wait(30)
        wait_for(lambda: in_time(lambda: run.jobs(JobQuery(states=("EXECUTING",)))).total, what="the job in the copy")
        assert in_time(lambda: run.summary()).alive
        assert in_time(lambda: run.job("long")).why.startswith("it runs on ")  # type: ignore[union-attr]
        wait_for(lambda: in_time(lambda: run.output("long", "stdout", 0)).text == "started\n", what="output")  # type: ignore[union-attr]
        assert in_time(lambda: run.graph("long", 1, 10)) is not None
        gate.open.set()
        wait_for(lambda: "it needs 2 cores" in run.job("next").why, what="the reason that the manager gives")  # type: ignore[union-attr]


def test_lists_and_output_need_no_manager(service: Served, gate: Gate):
    with closing(open_run(service.wd)) as run:
        in_time(lambda: run.jobs(JobQuery()))
        in_time(lambda: run.output("long", "stdout", 0))
        in_time(lambda: run.graph("long", 1, 10))
        assert not gate.reached.is_set()


def test_a_run_is_closed_while_the_manager_does_not_respond(service: Served, gate: Gate):
    run = open_run(service.wd)
    in_time(lambda: run.is_alive)
    assert gate.reached.wait(30)
    connecting = run._connecting
    assert connecting is not None
    in_time(lambda: [run.close()])  # type: ignore[func-returns-value]
    gate.open.set()
    connecting.join(30)
    assert not connecting.is_alive()


def test_actions_wait_for_the_connection(service: Served, gate: Gate):
    with closing(open_run(service.wd)) as run:
        in_time(lambda: run.is_alive)
        threading.Timer(0.8, gate.open.set).start()
        assert in_time(lambda: run.act("hold", ["next"])) == "1 job or iteration was held."


def test_a_stopped_manager_is_shown_from_its_registry_until_it_continues(
    service: Served, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(open_module, "REQUEST_TIMEOUT", 1.0)
    with closing(open_run(service.wd)) as run:
        wait_for(lambda: "it needs 2 cores" in why(run, "next"), what="the reason that the manager gives")
        service.process.send_signal(signal.SIGSTOP)
        assert "it waits to be started" in why(run, "next")
        with pytest.raises(ActionRefused, match="does not answer"):
            run.act("hold", ["next"])
        service.process.send_signal(signal.SIGCONT)
        wait_for(lambda: "it needs 2 cores" in why(run, "next"), what="the manager to be asked again")


def why(run: FollowedRun, name: str) -> str:
    found = run.job(name)
    return "" if found is None else found.why
