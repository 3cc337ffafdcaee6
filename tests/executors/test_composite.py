"""Several executors as one: a composite passes on every call of both interfaces."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from qcg.pilotjob.executors.base import Executor, ExecutorObserver
from qcg.pilotjob.executors.composite import CompositeExecutor
from tests.executors.fake_agents import NotingObserver
from tests.support.memory_executor import MemoryExecutor


def members(interface: type) -> list[str]:
    return sorted(name for name in vars(interface) if not name.startswith("_"))


def calls_recorder(calls: list[tuple[str, tuple[Any, ...]]], result: object) -> ExecutorObserver:
    """An observer that records each call with its arguments, and returns `result`."""

    def method(name: str) -> Callable[..., object]:
        def note(self: object, *args: Any) -> object:
            calls.append((name, args))
            return result

        return note

    methods = {name: method(name) for name in members(ExecutorObserver)}
    observer: ExecutorObserver = type("Recorder", (ExecutorObserver,), methods)()
    return observer


def observer_of_children(observer: ExecutorObserver) -> ExecutorObserver:
    """The observer that a composite passes to its executors."""
    given: list[ExecutorObserver] = []

    def factory(host: str) -> Callable[[ExecutorObserver], Executor]:
        def make(observer: ExecutorObserver) -> Executor:
            given.append(observer)
            return MemoryExecutor(observer, {host: [host]}, [])

        return make

    CompositeExecutor(observer, [factory("one"), factory("two")])
    assert given[0] is given[1]
    return given[0]


# `scheduling_may_begin` is called once, when all executors have called it: tests/executors/test_contract.py.
FORWARDED = [name for name in members(ExecutorObserver) if name != "scheduling_may_begin"]


@pytest.mark.parametrize("name", FORWARDED)
def test_each_call_of_an_executor_reaches_the_observer_with_its_arguments_and_result(name: str):
    calls: list[tuple[str, tuple[Any, ...]]] = []
    result = object()
    forwarding = getattr(observer_of_children(calls_recorder(calls, result)), name)
    signature = inspect.signature(getattr(ExecutorObserver, name))
    args = tuple(object() for _ in list(signature.parameters)[1:])
    answer = forwarding(*args)
    assert calls == [(name, args)]
    assert signature.return_annotation == "None" or answer is result


@pytest.mark.parametrize("name", members(ExecutorObserver))
def test_the_observer_of_the_executors_has_the_signatures_of_the_interface(name: str):
    implemented = getattr(type(observer_of_children(NotingObserver())), name)
    assert inspect.signature(implemented) == inspect.signature(getattr(ExecutorObserver, name))


def test_a_composite_defines_every_method_of_an_executor():
    """A default of the interface, such as a host that needs no poll, would answer for all executors."""
    assert set(members(Executor)) <= vars(CompositeExecutor).keys()


def test_the_interfaces_are_read():
    assert {"records_received", "has_attempts"} <= set(FORWARDED)
    assert {"hosts", "poll", "launch"} <= set(members(Executor))
