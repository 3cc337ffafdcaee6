"""Test cases for every executor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.executors.agents import AgentExecutor
from qcg.pilotjob.executors.base import Executor, ExecutorFactory, ExecutorObserver
from qcg.pilotjob.executors.composite import CompositeExecutor, composite, host_of
from qcg.pilotjob.executors.ssh import connection
from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.executors.ssh.connection import RunIdentity
from qcg.pilotjob.executors.ssh.executor import RemoteHost, SshExecutor
from qcg.pilotjob.host.records import Ended, Launch, Running, Started
from tests.agent.manager import launch as a_launch
from tests.executors.fake_agents import FakePort, NotingObserver, agent_executor
from tests.support.memory_executor import MemoryExecutor
from tests.support.memory_far_side import LEDGER, FarSide, MemoryTransport

ONE, TWO = {"one": ["n1", "n2"]}, {"two": ["n3"]}
HOSTS = {**ONE, **TWO}


class Hosts(Protocol):
    """The hosts of an executor, controlled by the test."""

    def connect(self, host: str, *live: Running) -> None: ...

    def disconnect(self, host: str) -> None: ...

    def report(self, host: str, *bodies: Started | Ended, first: int = 0) -> None: ...

    def report_swept(self, host: str, *attempt_ids: str) -> None: ...

    def lose(self, host: str, message: str) -> None: ...

    def fail(self, host: str, reason: str) -> None: ...

    def leave(self, host: str) -> None: ...


class AgentHosts(FakePort):
    """Agents in memory."""

    def __init__(self, sent: list[str]) -> None:
        super().__init__()
        self.executor: Executor
        self.observer: ExecutorObserver
        self._lines = sent
        self._last_record = dict.fromkeys(HOSTS, 0)

    def connect(self, host: str, *live: Running) -> None:
        self.hello(host)
        self.say(host, protocol.Report([], list(live)))

    def disconnect(self, host: str) -> None:
        self.executor.gone(host)  # type: ignore[attr-defined]

    def report(self, host: str, *bodies: Started | Ended, first: int = 0) -> None:
        if not first:
            first = self._last_record[host] + 1
            self._last_record[host] += len(bodies)
        self.say(host, protocol.News([protocol.record(number, body) for number, body in enumerate(bodies, first)]))

    def report_swept(self, host: str, *attempt_ids: str) -> None:
        self.say(host, protocol.Swept(list(attempt_ids)))

    def lose(self, host: str, message: str) -> None:
        self.observer.nodes_lost(HOSTS[host], message)  # as a supervisor does

    def fail(self, host: str, reason: str) -> None:
        self.observer.executor_failed(reason)

    def leave(self, host: str) -> None:
        self.say(host, protocol.Bye())

    def send(self, frames: list[bytes]) -> None:
        super().send(frames)
        peer, message = self.sent[-1]
        self._lines += _lines(peer, message)


def _lines(peer: str, message: protocol.FromManager) -> Iterator[str]:
    if isinstance(message, protocol.Start):
        yield from (f"launch {launch.id}" for launch in message.launches)
    elif isinstance(message, protocol.Kill):
        yield from (f"kill {id} {message.reason} {message.message}".rstrip() for id in message.ids)
    elif isinstance(message, protocol.Retract):
        yield from (f"retract {id}" for id in message.ids)
    elif isinstance(message, protocol.Sweep):
        yield from (f"sweep {id} on {peer}" for id in message.ids)
    elif isinstance(message, protocol.Signal):
        yield from (f"signal {message.number} {id}" for id in message.ids)
    elif isinstance(message, protocol.Ack):
        yield f"acknowledge {message.number}"
    elif isinstance(message, protocol.Exit):
        yield f"exit {message.grace:g} {message.reason}"


class Routed:
    """The hosts of several executors."""

    def __init__(self, by_host: dict[str, Hosts]) -> None:
        self._by_host = by_host

    def connect(self, host: str, *live: Running) -> None:
        self._by_host[host].connect(host, *live)

    def disconnect(self, host: str) -> None:
        self._by_host[host].disconnect(host)

    def report(self, host: str, *bodies: Started | Ended, first: int = 0) -> None:
        self._by_host[host].report(host, *bodies, first=first)

    def report_swept(self, host: str, *attempt_ids: str) -> None:
        self._by_host[host].report_swept(host, *attempt_ids)

    def lose(self, host: str, message: str) -> None:
        self._by_host[host].lose(host, message)

    def fail(self, host: str, reason: str) -> None:
        self._by_host[host].fail(host, reason)

    def leave(self, host: str) -> None:
        self._by_host[host].leave(host)


Made = tuple[Executor, Hosts]


class MemoryHosts(MemoryExecutor):
    """Hosts in memory that can be lost."""

    def lose(self, host: str, message: str) -> None:
        self._observer.nodes_lost(self._hosts[host], message)

    def fail(self, host: str, reason: str) -> None:
        self._observer.executor_failed(reason)


class RemoteHosts:
    """Remote hosts in memory. Each is one node."""

    def __init__(self, observer: ExecutorObserver, executor: Executor, far_sides: dict[str, FarSide]) -> None:
        self._observer = observer
        self._executor = executor
        self._far_sides = far_sides

    def connect(self, host: str, *live: Running) -> None:
        self._far_sides[host].live = list(live)
        self._far_sides[host].reachable.set()

    def disconnect(self, host: str) -> None:
        self._far_sides[host].cut()

    def report(self, host: str, *bodies: Started | Ended, first: int = 0) -> None:
        self._far_sides[host].report(*bodies, first=first)

    def report_swept(self, host: str, *attempt_ids: str) -> None:
        raise AssertionError("a remote host has one node")

    def lose(self, host: str, message: str) -> None:
        self._observer.nodes_lost([host], message)  # as for a host that a user has given up

    def fail(self, host: str, reason: str) -> None:
        self._observer.executor_failed(reason)

    def leave(self, host: str) -> None:
        far = self._far_sides[host]
        far.report(*(ended(running.id) for running in far.live))
        self._executor.acknowledge({f"{host}/{LEDGER}": far.last_record})


class Place(NamedTuple):
    """The arguments with which an executor is made."""

    observer: ExecutorObserver
    sent: list[str]
    """Gets a line for each message to a host."""
    directory: Path
    patch: pytest.MonkeyPatch


def in_memory(place: Place, hosts: dict[str, list[str]] = HOSTS) -> Made:
    executor = MemoryHosts(place.observer, hosts, place.sent)
    return executor, executor


def with_agents(place: Place, hosts: dict[str, list[str]] = HOSTS) -> Made:
    agents = AgentHosts(place.sent)
    agents.observer = place.observer
    agents.executor = agent_executor(place.observer, hosts, agents)
    return agents.executor, agents


def with_ssh(place: Place, hosts: Iterable[str] = HOSTS) -> Made:
    far_sides = {host: FarSide(place.sent) for host in hosts}
    place.patch.setattr(connection, "ServeTransport", type("Channel", (MemoryTransport,), {"far_sides": far_sides}))
    place.patch.setenv("HOME", str(place.directory))
    run = RunIdentity.of("r1", "0123456789abcdef", place.directory, place.directory, "20180418T025047Z")
    remote = [RemoteHost(HostConfig(host, (host,), channel="serve")) for host in hosts]
    executor = SshExecutor(place.observer, remote, run, {})
    return executor, RemoteHosts(place.observer, executor, far_sides)


def joined(place: Place, first: Callable[[Place], Made], second: Callable[[Place], Made]) -> Made:
    """A composite. The first executor has host one, the second one has host two."""
    by_host: dict[str, Hosts] = {}

    def factory(host: str, make: Callable[[Place], Made]) -> ExecutorFactory:
        def made(observer: ExecutorObserver) -> Executor:
            executor, by_host[host] = make(place._replace(observer=observer))
            return executor

        return made

    executor = composite([factory("one", first), factory("two", second)])(place.observer)
    assert isinstance(executor, CompositeExecutor)
    return executor, Routed(by_host)


def with_both(place: Place) -> Made:
    return joined(place, lambda place: in_memory(place, ONE), lambda place: with_agents(place, TWO))


def with_agents_and_ssh(place: Place) -> Made:
    return joined(place, lambda place: with_agents(place, ONE), lambda place: with_ssh(place, TWO))


class Observer(NotingObserver):
    def has_attempts(self, node: str) -> bool:
        """An executor then connects to each of its hosts at once."""
        return True


class Case:
    def __init__(self, make: Callable[[Place], Made], directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.observer = Observer()
        self.sent: list[str] = []
        self.executor, self.hosts = make(Place(self.observer, self.sent, directory, patch))
        self.nodes = {host: list(nodes) for host, nodes in self.executor.hosts.items()}
        self.first, self.second = self.nodes["one"][0], self.nodes["one"][-1]
        """Nodes of host one: the same one where it has only one."""
        self.other = self.nodes["two"][0]

    async def begin(self, **live: Running) -> None:
        """Connect both hosts with these attempts; no other event has happened."""
        self.executor.start()
        for host in HOSTS:
            self.hosts.connect(host, *([live[host]] if host in live else []))
        await self.until(lambda: len(self.observer.noted("ready")) == 2)
        self.observer.seen.clear()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a message or report of an executor has arrived."""
        for _ in range(500):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"sent: {self.sent}, seen: {self.observer.seen}")

    async def settle(self) -> None:
        """Wait until all messages sent so far have arrived."""
        for _ in range(50):
            await asyncio.sleep(0)

    @property
    def records(self) -> list[tuple[str, list[tuple[int, str]]]]:
        """The reported records, with the host in place of the ledger."""
        return [(host_of(name), records) for name, records in self.observer.noted("records")]

    def ledger(self, host: str) -> str:
        """The name under which a host has reported records."""
        return next(name for name, _ in self.observer.noted("records") if host_of(name) == host)


Run = Callable[[Callable[[Case], Awaitable[None]]], None]
Make = Callable[[Place], Made]


def runner(make: Make, directory: Path, patch: pytest.MonkeyPatch) -> Run:
    def run(test: Callable[[Case], Awaitable[None]]) -> None:
        async def within() -> None:
            await asyncio.wait_for(test(Case(make, directory, patch)), 100)

        asyncio.run(within())

    return run


# Every executor of a manager, in the combinations in which managers have them.
EXECUTORS: list[Make] = [in_memory, with_agents, with_ssh, with_both, with_agents_and_ssh]


@pytest.fixture(params=EXECUTORS)
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a test with each executor."""
    return runner(request.param, tmp_path, monkeypatch)


@pytest.fixture(params=[make for make in EXECUTORS if make not in (with_ssh, with_agents_and_ssh)])
def run_with_several_nodes(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a test with each executor whose hosts may have several nodes."""
    return runner(request.param, tmp_path, monkeypatch)


def test_each_class_of_executors_is_tested():
    def classes(base: type[Any]) -> set[type[Any]]:
        return {base}.union(*map(classes, base.__subclasses__()))

    ours = {found for found in classes(Executor) if found.__module__.startswith("qcg.pilotjob.")} - {Executor}
    assert ours == {AgentExecutor, SshExecutor, CompositeExecutor}


def a(id: str) -> Launch:
    return a_launch(id, "true", wd=Path("/"))


def started(id: str) -> Started:
    return Started(id, 7, 1.0, [("n1", (0,), ())])


def ended(id: str) -> Ended:
    return Ended(id, 2.0, 0, "exit", "", 7, 1.0)


def running(id: str) -> Running:
    return Running(id, 7, 1.0, [("n1", (0,), ())])


def test_an_executor_reports_nothing_before_its_start_and_gathers_once(run: Run):
    async def test(case: Case) -> None:
        assert case.observer.seen == []
        case.executor.start()
        assert case.observer.seen == [("gathered",)]
        assert case.nodes.keys() == HOSTS.keys()

    run(test)


def test_launches_are_sent_to_the_host_of_the_node_when_they_are_flushed(run: Run):
    async def test(case: Case) -> None:
        await case.begin()
        case.executor.launch(case.second, a("1.1"))
        case.executor.launch(case.other, a("2.1"))
        await case.settle()
        assert case.sent == []
        case.executor.flush()
        await case.until(lambda: sorted(case.sent) == ["launch 1.1", "launch 2.1"])
        case.executor.flush()
        await case.settle()
        assert len(case.sent) == 2, "nothing is sent twice"

    run(test)


def test_messages_to_a_host_that_is_not_ready_are_dropped(run: Run):
    async def test(case: Case) -> None:
        case.executor.start()
        case.hosts.connect("two")
        case.executor.launch(case.first, a("1.1"))
        case.executor.kill(case.first, "1.1")
        case.executor.flush()
        case.hosts.connect("one")
        await case.until(lambda: len(case.observer.noted("ready")) == 2)
        case.executor.flush()
        await case.settle()
        assert case.sent == []

    run(test)


def test_a_launch_to_a_host_that_is_not_ready_is_dropped_or_reported_by_the_host(run: Run):
    async def test(case: Case) -> None:
        case.executor.start()
        case.executor.launch(case.first, a("1.1"))
        case.executor.flush()
        case.hosts.connect("one")
        await case.until(lambda: len(case.observer.noted("ready")) == 1)
        await case.settle()
        ((_, _, live),) = case.observer.noted("ready")
        assert case.sent == [f"launch {id}" for id in live]

    run(test)


def test_launches_are_retracted_before_attempts_are_killed(run: Run):
    async def test(case: Case) -> None:
        await case.begin()
        case.executor.kill(case.first, "1.1", "lost", "the node is needed")
        case.executor.retract(case.first, ["2.1", "3.1"])
        case.executor.flush()
        await case.until(lambda: len(case.sent) >= 3)
        assert case.sent == ["retract 2.1", "retract 3.1", "kill 1.1 lost the node is needed"]

    run(test)


def test_the_nodes_of_one_host_need_no_sweep(run: Run):
    async def test(case: Case) -> None:
        assert case.executor.same_host(case.first, case.second)
        assert not case.executor.same_host(case.first, case.other)

    run(test)


def test_a_sweep_goes_to_the_host_of_the_node_and_its_end_is_reported(run_with_several_nodes: Run):
    async def test(case: Case) -> None:
        await case.begin()
        case.executor.sweep("n3", "1.1")
        case.executor.flush()
        assert case.sent == ["sweep 1.1 on two"]
        case.hosts.report_swept("two", "1.1")
        assert case.observer.seen == [("swept", "two", ["n3"], ["1.1"])]

    run_with_several_nodes(test)


def test_signals_are_sent_without_a_flush(run: Run):
    async def test(case: Case) -> None:
        await case.begin()
        case.executor.signal({case.first: ["1.1"], case.other: ["2.1", "3.1"]}, 10)
        await case.until(lambda: sorted(case.sent) == ["signal 10 1.1", "signal 10 2.1", "signal 10 3.1"])

    run(test)


def test_records_are_reported_with_their_numbers_and_acknowledged_by_host(run: Run):
    async def test(case: Case) -> None:
        await case.begin()
        case.hosts.report("one", started("1.1"), ended("1.1"))
        case.hosts.report("two", started("2.1"))
        case.hosts.report("one", started("3.1"))
        assert case.records == [
            ("one", [(1, "1.1"), (2, "1.1")]),
            ("two", [(1, "2.1")]),
            ("one", [(3, "3.1")]),
        ]
        case.executor.acknowledge({case.ledger("one"): 3})
        await case.until(lambda: case.sent == ["acknowledge 3"])
        case.executor.acknowledge({case.ledger("one"): 3, case.ledger("two"): 1})
        await case.until(lambda: case.sent[-1] == "acknowledge 1")

    run(test)


def test_a_host_reports_its_live_attempts_when_it_connects_and_is_away_when_it_is_gone(run: Run):
    async def test(case: Case) -> None:
        case.executor.start()
        case.observer.seen.clear()
        case.hosts.connect("one", running("1.1"))
        await case.until(lambda: case.observer.seen == [("ready", "one", case.nodes["one"], ["1.1"])])
        case.hosts.disconnect("one")
        await case.until(lambda: bool(case.observer.noted("away")))
        assert [away[:2] for away in case.observer.noted("away")] == [("one", case.nodes["one"])]
        case.executor.launch(case.first, a("2.1"))
        case.executor.flush()
        await case.settle()
        assert case.sent == []

    run(test)


def test_a_shutdown_lasts_until_the_last_host_has_left_and_can_be_hurried(run: Run):
    async def test(case: Case) -> None:
        await case.begin(one=running("1.1"), two=running("2.1"))
        ending = asyncio.ensure_future(case.executor.shut_down(5.0, "closed"))
        await case.until(lambda: case.sent == ["exit 5 closed"] * 2)
        case.executor.hurry()
        await case.until(lambda: case.sent[2:] == ["exit 0 closed"] * 2)
        case.hosts.leave("one")
        await case.settle()
        assert not ending.done()
        case.hosts.leave("two")
        await ending
        case.executor.close()

    run(test)


def test_a_hurry_before_the_shutdown_is_remembered(run: Run):
    async def test(case: Case) -> None:
        await case.begin(one=running("1.1"), two=running("2.1"))
        case.executor.hurry()
        await case.settle()
        assert case.sent == []
        ending = asyncio.ensure_future(case.executor.shut_down(5.0, "closed"))
        await case.until(lambda: case.sent == ["exit 0 closed"] * 2)
        case.hosts.leave("one")
        case.hosts.leave("two")
        await ending

    run(test)


def test_an_executor_is_closed_before_its_start_and_more_than_once(run: Run):
    async def test(case: Case) -> None:
        case.executor.close()
        case.executor.close()
        await case.settle()
        assert (case.sent, case.observer.seen) == ([], [])

    run(test)


def test_a_closed_executor_ends_no_attempt(run: Run):
    async def test(case: Case) -> None:
        await case.begin(one=running("1.1"))
        case.executor.close()
        await case.settle()
        assert (case.sent, case.observer.seen) == ([], [])

    run(test)


def test_each_record_is_reported_once_and_never_an_empty_list(run: Run):
    async def test(case: Case) -> None:
        await case.begin()
        case.hosts.report("one", started("1.1"))
        case.hosts.report("one", started("1.1"), first=1)
        case.hosts.report("one", started("1.1"), ended("1.1"), first=1)
        case.hosts.report("one", first=3)
        assert case.records == [("one", [(1, "1.1")]), ("one", [(2, "1.1")])]

    run(test)


def test_lost_nodes_and_a_failure_are_reported(run: Run):
    async def test(case: Case) -> None:
        await case.begin()
        case.hosts.lose("two", "its machine is gone")
        case.hosts.fail("one", "no host can be reached")
        assert case.observer.seen == [("lost", case.nodes["two"]), ("failed", "no host can be reached")]

    run(test)


class FailingExecutor(MemoryExecutor):
    async def shut_down(self, grace: float, reason: str) -> None:
        raise OSError("the connection is broken")


def test_the_others_are_shut_down_before_the_error_of_one_is_raised():
    async def test() -> None:
        made: list[MemoryExecutor] = []

        def working(observer: ExecutorObserver) -> Executor:
            made.append(MemoryExecutor(observer, TWO, []))
            return made[0]

        executor = composite([lambda observer: FailingExecutor(observer, ONE, []), working])(NotingObserver())
        executor.start()
        made[0].connect("two")
        ending = asyncio.ensure_future(executor.shut_down(5.0, "closed"))
        await asyncio.sleep(0.01)
        assert not ending.done(), "the other one has not ended yet"
        made[0].leave("two")
        with pytest.raises(OSError, match="the connection is broken"):
            await ending

    asyncio.run(test())


def test_a_single_executor_is_used_without_a_composite():
    observer, sent = NotingObserver(), list[str]()

    async def test() -> None:
        executor = composite([lambda observer: MemoryExecutor(observer, HOSTS, sent)])(observer)
        assert isinstance(executor, MemoryExecutor)

    asyncio.run(test())


def test_two_executors_with_the_same_node_are_refused():
    async def test() -> None:
        factories = [
            lambda observer: MemoryExecutor(observer, {"one": ["n1"]}, []),
            lambda observer: MemoryExecutor(observer, {"two": ["n1"]}, []),
        ]
        with pytest.raises(ValueError, match="node of the same name"):
            composite(factories)(NotingObserver())

    asyncio.run(test())


def test_attempts_are_started_when_all_executors_of_a_composite_have_gathered():
    observer = NotingObserver()

    async def test() -> None:
        observers: list[ExecutorObserver] = []

        def make(host: str) -> Callable[[ExecutorObserver], Executor]:
            def factory(observer: ExecutorObserver) -> Executor:
                observers.append(observer)
                return MemoryExecutor(observer, {host: [host]}, [])

            return factory

        composite([make("one"), make("two")])(observer)
        observers[0].scheduling_may_begin(["one is slow"])
        assert observer.seen == []
        observers[1].scheduling_may_begin(["two is slower"])
        assert observer.seen == [("gathered", "one is slow", "two is slower")]

    asyncio.run(test())


def test_acknowledgements_for_one_of_several_ledgers_of_a_host_reach_its_executor():
    class Acknowledged(MemoryExecutor):
        def acknowledge(self, numbers: Mapping[str, int]) -> None:
            self.sent.append(f"{', '.join(self.hosts)} gets {dict(numbers)}")

    async def test() -> None:
        sent: list[str] = []
        executor = composite([lambda seen: Acknowledged(seen, ONE, sent), lambda seen: Acknowledged(seen, TWO, sent)])(
            NotingObserver()
        )
        executor.acknowledge({"two/login1": 7, "one": 3, "two/login2": 8})
        assert sent == ["one gets {'one': 3}", "two gets {'two/login1': 7, 'two/login2': 8}"]

    asyncio.run(test())


def test_the_reason_for_which_a_host_is_away_is_passed_on():
    observer = NotingObserver()

    async def test() -> None:
        children: list[ExecutorObserver] = []

        def make(seen: ExecutorObserver) -> Executor:
            children.append(seen)
            return MemoryExecutor(seen, {f"h{len(children)}": [f"n{len(children)}"]}, [])

        composite([make, make])(observer)
        children[1].host_away("h2", ["n2"], "Connection refused")
        assert observer.noted("away") == [("h2", ["n2"], "Connection refused")]

    asyncio.run(test())
