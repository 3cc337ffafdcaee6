"""Every end of a job reaches every client once: `wait4_any_job_finish` and `as_completed`."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.api.aio import AsyncManager
from qcg.pilotjob.api.errors import RequestRefusedError, ServiceError, TimeoutElapsed
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager, Manager
from tests.support.serving import Served, served
from tests.support.waiting import wait_for

NONE_LEFT = "every job has ended, so there is no next one to wait for"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("run"), "--nodes", "4") as service:
        yield service


@pytest.fixture
def manager(service: Served) -> Iterator[Manager]:
    with Manager.of_run(service.run_dir) as manager:
        yield manager
        names = list(manager.list())
        manager.cancel(names)
        manager.wait4all(60)
        manager.remove(names)


def gated(service: Served, name: str, code: int = 0) -> dict[str, Any]:
    """A job that ends after `open_gate`."""
    (service.wd / f"{name}.gate").unlink(missing_ok=True)
    return {"name": name, "script": f"until [ -e {service.wd}/{name}.gate ]; do sleep 0.02; done; exit {code}"}


def open_gate(service: Served, name: str) -> None:
    (service.wd / f"{name}.gate").touch()


def all_ends(manager: Manager) -> list[tuple[str, str]]:
    """The ends, until the manager reports that none can follow."""
    ends: list[tuple[str, str]] = []
    while True:
        try:
            ends.append(manager.wait4_any_job_finish(60))
        except ServiceError:
            return ends


@asynccontextmanager
async def connected(service: Served) -> AsyncIterator[AsyncManager]:
    async with AsyncManager(service.contact.address) as manager:
        yield manager


@pytest.fixture
def play(service: Served, manager: Manager, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run a scenario with an AsyncManager; the fixture `manager` removes the jobs."""
    monkeypatch.chdir(service.wd)

    async def run(scenario: Callable[[AsyncManager], Awaitable[None]]) -> None:
        async with connected(service) as manager:
            await scenario(manager)

    return lambda scenario: asyncio.run(run(scenario))


# -- wait4_any_job_finish -------------------------------------------------------------------------------------------


def test_ends_before_the_first_call_and_between_calls_are_returned_in_order(service: Served, manager: Manager):
    for name, code in (("a", 0), ("b", 3), ("c", 0)):
        manager.submit(Jobs().add(**gated(service, name, code)))
        open_gate(service, name)
        manager.wait4(name, 60)
    assert manager.wait4_any_job_finish(60) == ("a", "SUCCEED")
    manager.submit(Jobs().add(name="d", exec="true", iteration=3))
    manager.wait4("d", 60)
    expected = [("b", "FAILED"), ("c", "SUCCEED"), ("d", "SUCCEED")]
    assert [manager.wait4_any_job_finish(timeout=60) for _ in expected] == expected
    for timeout in (None, 0, 60):
        with pytest.raises(ServiceError, match=NONE_LEFT):
            manager.wait4_any_job_finish(timeout)


def test_an_end_during_the_call_is_returned(service: Served, manager: Manager):
    manager.submit(Jobs().add(**gated(service, "late", 3)))
    ask = manager._pool.ask
    asked = []

    def ask_and_go(body: bytes, timeout: float) -> dict[str, Any]:
        answer = ask(body, timeout)
        asked.append(json.loads(body)["request"])
        if len(asked) == 2:  # the call queries once before it subscribes, and once after
            open_gate(service, "late")
        return answer

    manager._pool.ask = ask_and_go  # type: ignore[method-assign]
    assert manager.wait4_any_job_finish(60) == ("late", "FAILED")
    assert asked == ["endedJobs"] * len(asked)


def test_a_job_that_was_removed_is_still_returned(manager: Manager):
    manager.submit(Jobs().add(name="a", exec="true").add(name="b", exec="true", after="a"))
    manager.wait4all(60)
    manager.remove(["a", "b"])
    assert all_ends(manager) == [("a", "SUCCEED"), ("b", "SUCCEED")]


def test_two_clients_get_every_end_of_their_own_and_each_others_jobs(service: Served, manager: Manager):
    with Manager.of_run(service.run_dir) as other:
        manager.submit(Jobs().add(name="mine", exec="true"))
        manager.wait4all(60)
        other.submit(Jobs().add(name="theirs", exec="false"))
        manager.wait4all(60)
        assert all_ends(manager) == all_ends(other) == [("mine", "SUCCEED"), ("theirs", "FAILED")]


def test_a_new_client_gets_only_the_ends_since_it_connected(service: Served, manager: Manager):
    manager.submit(Jobs().add(name="old", exec="true"))
    manager.wait4all(60)
    with Manager.of_run(service.run_dir) as other:
        with pytest.raises(ServiceError, match=NONE_LEFT):
            other.wait4_any_job_finish(60)
        other.submit(Jobs().add(name="new", exec="true"))
        assert other.wait4_any_job_finish(60) == ("new", "SUCCEED")


def test_threads_that_share_a_client_share_its_ends(manager: Manager):
    names = [f"job{number}" for number in range(60)]

    def collect(_: int) -> list[tuple[str, str]]:
        return all_ends(manager)

    with ThreadPoolExecutor(4) as threads:
        manager.submit(_many(names))
        collected = [end for ends in threads.map(collect, range(4)) for end in ends]
    assert Counter(collected) == Counter((name, "SUCCEED") for name in names)


def _many(names: list[str]) -> Jobs:
    jobs = Jobs()
    for name in names:
        jobs.add(name=name, exec="true")
    return jobs


def test_many_ends_come_in_few_replies(manager: Manager, service: Served):
    names = [f"job{number}" for number in range(2500)]
    manager.submit(_many(names))
    manager.wait4all(60)
    asked = []
    ask = manager._pool.ask

    def note(body: bytes, timeout: float) -> dict[str, Any]:
        asked.append(json.loads(body))
        return ask(body, timeout)

    manager._pool.ask = note  # type: ignore[method-assign]
    assert sorted(name for name, _ in all_ends(manager)) == sorted(names)
    assert len(asked) == 4  # three replies with ends, and one that no end can follow
    assert len(service.data("endedJobs", after=0)["ends"]) == 1000


def test_tasks_of_an_event_loop_miss_no_end(service: Served, play: Callable[..., None]):
    async def scenario(manager: AsyncManager) -> None:
        await manager.submit(_many(["a", "b"]).add(**gated(service, "c")))
        await manager.wait4(["a", "b"], 60)
        first = {await manager.wait4_any_job_finish(60), await manager.wait4_any_job_finish(timeout_secs=0)}
        assert first == {("a", "SUCCEED"), ("b", "SUCCEED")}
        with pytest.raises(TimeoutElapsed, match="after 0.1 s, no job has ended"):
            await manager.wait4_any_job_finish(0.1)
        waits = [asyncio.ensure_future(manager.wait4_any_job_finish(60)) for _ in range(2)]
        await asyncio.sleep(0)
        open_gate(service, "c")
        results = await asyncio.gather(*waits, return_exceptions=True)
        assert results.count(("c", "SUCCEED")) == 1
        assert [type(result) for result in results if result != ("c", "SUCCEED")] == [ServiceError]

    play(scenario)


def test_a_call_that_is_cancelled_loses_no_end(service: Served, play: Callable[..., None]):
    async def scenario(manager: AsyncManager) -> None:
        await manager.submit(_many([f"job{number}" for number in range(20)]))
        ends: list[tuple[str, str]] = []
        for attempt in itertools.count():
            call = asyncio.ensure_future(manager.wait4_any_job_finish(60))
            await asyncio.sleep(0.002 * (attempt % 50))  # some calls get an answer in time, some do not
            call.cancel()
            try:
                ends.append(await call)
            except asyncio.CancelledError:
                await manager.wait4all(60)
            if len(ends) == 20:
                break
        assert len(set(ends)) == 20

    play(scenario)


def test_an_own_manager_is_followed_from_its_first_end(tmp_path: Path):
    requests = tmp_path / "requests.json"
    requests.write_text('[{"request": "submit", "jobs": [{"name": "early", "exec": "true"}]}]')
    ended = tmp_path / "run/jobs.report"
    options = ["--wd", tmp_path / "run", "--id", "x", "--nodes", "1"]
    with LocalManager([*options, "--file-path", requests]) as first:
        assert first.wait4_any_job_finish(60) == ("early", "SUCCEED")
    assert "early (SUCCEED)" in ended.read_text()


@pytest.fixture
def crashing(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, "--nodes", "4") as service:
        yield service


def test_no_end_is_missed_or_returned_twice_when_the_manager_is_killed_and_resumed(crashing: Served):
    with Manager.of_run(crashing.run_dir, {"reconnect": 60}) as manager:
        manager.submit(_many(["a", "b", "c"]).add(**gated(crashing, "d")))
        manager.wait4(["a", "b", "c"], 60)
        ends = [manager.wait4_any_job_finish(60)]
        crashing.kill()  # right after the manager has answered
        open_gate(crashing, "d")  # jobs end while no manager runs
        crashing.resume()
        manager.submit(_many(["e"]))
        ends += all_ends(manager)
        assert Counter(ends) == Counter((name, "SUCCEED") for name in "abcde")
        with Manager.of_run(crashing.run_dir) as other, pytest.raises(ServiceError, match=NONE_LEFT):
            other.wait4_any_job_finish(60)


# -- as_completed ---------------------------------------------------------------------------------------------------


def test_jobs_and_iterations_are_yielded_as_they_end(service: Served, manager: Manager):
    manager.submit(
        Jobs().add(name="early", exec="false").add(**gated(service, "late")).add(**gated(service, "it"), iteration=2)
    )
    manager.wait4("early", 60)
    ends = manager.as_completed(["late", "it:1", "early", "early"])
    assert next(ends) == ("early", "FAILED")
    open_gate(service, "it")
    assert next(ends) == ("it:1", "SUCCEED")
    open_gate(service, "late")
    assert list(ends) == [("late", "SUCCEED")]
    assert list(manager.as_completed("it", 60)) == [("it", "SUCCEED")]
    assert list(manager.as_completed([])) == []


def test_a_program_that_is_slow_between_two_ends_gets_all_of_them(manager: Manager):
    names = [f"job{number}" for number in range(50)]
    manager.submit(_many(names))
    ends: list[tuple[str, str]] = []
    for name, state in manager.as_completed(names, 60):
        if not ends:
            manager.wait4all(60)
        ends.append((name, state))
    assert sorted(ends) == sorted((name, "SUCCEED") for name in names)


def test_the_timeout_of_as_completed_is_for_all_jobs_together(service: Served, manager: Manager):
    manager.submit(_many(["a"]).add(**gated(service, "b")))
    manager.wait4("a", 60)
    for timeout in (0, 0.3):
        ends = manager.as_completed(["a", "b"], timeout)
        assert next(ends) == ("a", "SUCCEED")
        with pytest.raises(TimeoutElapsed, match=f"after {timeout} s, 1 of 2 jobs has not ended: 'b'"):
            next(ends)
    with pytest.raises(RequestRefusedError, match="there is no job 'nobody'"):
        list(manager.as_completed(["a", "nobody"]))


def test_an_abandoned_iteration_leaves_no_connection(service: Served, manager: Manager):
    manager.submit(_many(["a"]).add(**gated(service, "b")))
    for _ in range(3):
        for name, _ in manager.as_completed(["a", "b"]):
            assert name == "a"
            break
    wait_for(lambda: not manager._pool._events, what="the connections to be closed")


def test_an_event_loop_iterates_over_ends(service: Served, play: Callable[..., None]):
    async def scenario(manager: AsyncManager) -> None:
        await manager.submit(_many(["a"]).add(**gated(service, "b")).add(**gated(service, "it"), iteration=2))
        await manager.wait4("a", 60)
        ends = []
        async for name, state in manager.as_completed(["it:1", "b", "a"]):
            ends.append((name, state))
            open_gate(service, "b" if name == "a" else "it")
        assert ends == [("a", "SUCCEED"), ("b", "SUCCEED"), ("it:1", "SUCCEED")]
        with pytest.raises(RequestRefusedError, match="there is no job 'nobody'"):
            _ = [end async for end in manager.as_completed("nobody")]

    play(scenario)


def test_an_asynchronous_iteration_ends_at_its_timeout_and_leaves_no_connection(
    service: Served, play: Callable[..., None]
):
    async def scenario(manager: AsyncManager) -> None:
        await manager.submit(_many(["a"]).add(**gated(service, "b")))
        await manager.wait4("a", 60)
        for timeout in (0, 0.3):
            ends = manager.as_completed(["a", "b"], timeout)
            assert await ends.__anext__() == ("a", "SUCCEED")
            with pytest.raises(TimeoutElapsed, match=f"after {timeout} s, 1 of 2 jobs has not ended: 'b'"):
                await ends.__anext__()
        given_up = manager.as_completed(["a", "b"])
        assert await given_up.__anext__() == ("a", "SUCCEED")
        await given_up.aclose()  # type: ignore[attr-defined]
        assert len(asyncio.all_tasks()) == 1
        assert not manager._events

    play(scenario)
