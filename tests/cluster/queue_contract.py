"""Cases for the queue of every batch system, to be subclassed: see `test_contract.py`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.cluster import registry
from qcg.pilotjob.cluster.base import (
    AllocationQueue,
    Phase,
)
from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.cluster.spec import AllocationSpec

FIELDS_OF_SPECS: dict[str, Any] = {
    "nodes": "3",
    "cores": 4,
    "limit": "1h30m",
    "partition": "fast",
    "account": "me",
    "qos": "high",
    "gpus_per_node": "2",
    "gres": "thing:1",
    "mem": "4000M",
    "exclusive": True,
    "job_name": "mine",
    "output": "out/%j.txt",
}
"""A value of each field of an allocation spec that may become an option."""


def _is_set(spec: AllocationSpec, name: str) -> bool:
    return bool(getattr(spec, name) != getattr(AllocationSpec(), name))


class QueueContract:
    """Cases for an `AllocationQueue`. A subclass has the attributes `prefix` and `expected_options`, and the fixtures
    `queue`; `working`: an environment in which the queue answers, and knows allocations that were submitted or
    cancelled; `submissions`: a function that returns the words of each submission so far, as the batch system got them;
    `unreachable`: an environment in which the queue does not answer; and `inside`: all variables of the batch system in
    a process of an allocation.

    The options below are words that `further_options` returns: override them with options of the batch system."""

    prefix = ""
    """Begins each line with an option in a batch script."""
    expected_options: Sequence[tuple[AllocationSpec, list[str]]] = ()
    """What `options` returns for these specs, with the name `name` and the working directory `/wd`. Together they have
    every field of `FIELDS_OF_SPECS` except `missing_fields`."""
    missing_fields: tuple[str, ...] = ()
    """Fields of specs that the batch system refuses."""
    allocation_id = "7"
    """The form of an id."""
    other_id = "8"
    unknown_id = "999"
    """An id of this form that the batch system does not know."""

    option = "--thing=1"
    """A further option with a value."""
    same_option = "--thing=3"
    """The same option with another value."""
    other_option = "--other=2"
    """Another option with a value."""
    flag = "--flag"
    """An option without a value."""
    option_of_two_lines = "--thing=a\nrm -rf /"

    @pytest.fixture
    def script(self, tmp_path: Path, queue: AllocationQueue) -> Path:
        """A batch script."""
        path = tmp_path / "batch.sh"
        path.write_text("\n".join(["#!/bin/bash", *queue.directives(self.options(queue)), "exit 0", ""]))
        return path

    def options(self, queue: AllocationQueue, nodes: str = "2", *further: str) -> list[str]:
        return queue.options(AllocationSpec(nodes=nodes, extra_options=list(further)), "name", Path("/wd"))

    def _words(self, lines: list[str]) -> list[int]:
        """The number of words in each line."""
        return [len(shlex.split(line.removeprefix(self.prefix))) for line in lines]

    def test_each_field_of_a_spec_has_its_option(self, queue: AllocationQueue):
        for spec, expected in self.expected_options:
            assert queue.options(spec, "name", Path("/wd")) == expected
        used = {name for spec, _ in self.expected_options for name in FIELDS_OF_SPECS if _is_set(spec, name)}
        assert used == FIELDS_OF_SPECS.keys() - {*self.missing_fields}, "fields of `expected_options`"

    def test_a_field_that_the_batch_system_lacks_is_refused(self, queue: AllocationQueue):
        for name in self.missing_fields:
            spec = AllocationSpec(**{name: FIELDS_OF_SPECS[name]})
            with pytest.raises(BatchError):
                queue.options(spec, "name", Path("/wd"))

    def test_options_of_a_spec_become_lines_of_the_script(self, queue: AllocationQueue):
        options = self.options(queue, "2", self.option)
        assert all(option.startswith("-") for option in options)
        assert self.option in options
        lines = queue.directives(options)
        assert lines
        assert self.prefix.startswith("#")
        assert all(line.startswith(f"{self.prefix}-") and "\n" not in line for line in lines)
        with pytest.raises(BatchError):
            queue.directives([self.option_of_two_lines])

    @pytest.mark.parametrize("name", ["my jobs", "100% of 'them'", "-x", "größe"])
    def test_the_name_of_any_file_becomes_a_name_in_the_queue(self, queue: AllocationQueue, name: str):
        lines = queue.directives(queue.options(AllocationSpec(nodes="2"), name, Path("/wd")))
        plain = queue.directives(queue.options(AllocationSpec(nodes="2"), "name", Path("/wd")))
        assert self._words(lines) == self._words(plain), "a name is one word"

    def test_further_options_are_checked_and_kept_for_the_next_submission(self, queue: AllocationQueue):
        assert queue.further_options([self.option, self.flag]) == [self.option, self.flag]
        with pytest.raises(BatchError):
            queue.further_options(["word"])
        assert queue.options_kept([self.option, self.other_option], [self.same_option]) == [self.other_option]

    def test_commands_see_nothing_of_the_allocation_around_them(
        self, queue: AllocationQueue, inside: Mapping[str, str]
    ):
        assert registry.is_in_allocation(inside)
        assert len(inside) > 1, "there are more variables than the id"
        cleaned = queue.command_environment({**inside, "HOME": "/home/me"}, self.options(queue))
        assert not inside.keys() & cleaned.keys()
        assert cleaned["HOME"] == "/home/me"

    def test_an_unknown_size_is_not_refused(self, queue: AllocationQueue, unreachable: Mapping[str, str]):
        nodes = queue.largest_allocation(self.options(queue), unreachable)
        assert len(nodes) == 2
        assert all(node.cores for node in nodes)
        with pytest.raises(BatchError):
            queue.largest_allocation(self.options(queue, "many"), unreachable)

    def test_every_query_without_an_answer_is_a_batch_error(
        self, queue: AllocationQueue, unreachable: Mapping[str, str], script: Path
    ):
        with pytest.raises(BatchError):
            queue.submit(script, unreachable)
        with pytest.raises(BatchError):
            queue.view(self.allocation_id, unreachable, 5.0)
        with pytest.raises(BatchError):
            queue.cancel(self.allocation_id, unreachable)

    def test_an_allocation_that_was_submitted_is_known_until_it_is_forgotten(
        self, queue: AllocationQueue, working: Mapping[str, str], script: Path
    ):
        assert queue.view(self.unknown_id, working) is None
        first = queue.submit(script, working)
        seen = queue.view(first, working)
        assert seen is not None
        assert (seen.id, seen.phase) == (first, Phase.WAITING)

    def test_an_allocation_waits_for_the_one_that_it_follows(
        self,
        queue: AllocationQueue,
        working: Mapping[str, str],
        submissions: Callable[[], list[list[str]]],
        script: Path,
    ):
        first = queue.submit(script, working)
        assert queue.submit(script, working, after=first)
        alone, following = submissions()
        assert any(first in word for word in following if word not in alone)

    def test_a_cancelled_allocation_was_cancelled(
        self, queue: AllocationQueue, working: Mapping[str, str], script: Path
    ):
        first = queue.submit(script, working)
        for _ in range(2):  # one that is over may be cancelled again
            queue.cancel(first, working)
            seen = queue.view(first, working)
            assert seen is not None
            assert seen.was_cancelled

    def test_an_allocation_may_follow_one_that_is_over_or_forgotten(
        self, queue: AllocationQueue, working: Mapping[str, str], script: Path
    ):
        assert queue.submit(script, working, after=self.unknown_id)

    def test_the_command_for_users_cancels_every_allocation(self, queue: AllocationQueue):
        ids = [self.allocation_id, self.other_id]
        assert queue.cancel_command(*ids).split()[1:] == ids

    def test_cancelling_an_allocation_that_is_forgotten_is_no_error(
        self, queue: AllocationQueue, working: Mapping[str, str]
    ):
        queue.cancel(self.unknown_id, working)
