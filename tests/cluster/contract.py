"""Test cases for every batch system, to be subclassed: see `test_contract.py`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

import msgspec
import pytest

from qcg.pilotjob.cluster import registry
from qcg.pilotjob.cluster.agent_start import AgentCommand, StartMethod
from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import AllocationQueue, AllocationState, BatchSystem, Phase
from qcg.pilotjob.cluster.errors import BatchError, ClusterError
from qcg.pilotjob.cluster.find import find_nodes
from qcg.pilotjob.cluster.remote_queue import RemoteQueue
from qcg.pilotjob.cluster.spec import AllocationSpec
from qcg.pilotjob.launch.site import MultiNode

AGENT = AgentCommand(Path("/runs/one"), 600.0, allocation=AllocationRef("7", "big", "any"))
ELSEWHERE = {"PATH": "/no/such/directory"}
"""An environment without an allocation, and without commands of a batch system."""


FIELDS_OF_DIRECTIVES = {
    *("name", "output", "error", "nodes", "whole_nodes", "cores", "gpus", "memory", "seconds", "minutes", "hms")
}


def fields(templates: list[str]) -> set[str]:
    """The names in braces."""
    return set(re.findall(r"\{(\w+)\}", " ".join(templates)))


def is_hidden(variable: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(variable, pattern) for pattern in patterns)


class Show(Protocol):
    """Makes the batch system show an allocation in a phase, or forget it for None, after it was queued again so many
    times. Returns an environment in which the batch system answers, of a process that the allocation has started."""

    def __call__(self, phase: Phase | None, restarts: int = 0) -> Mapping[str, str]: ...


class SystemContract:
    """Cases for a `BatchSystem`. A subclass has the fixture `system`, and, for a system with a `remote_queue`, lines of
    real output."""

    listed_line = ""
    """A line of `RemoteQueue.list_jobs` with a job that runs."""
    listed_job = ("7", "qcg-pm.a-1", "RUNNING")
    """Its id, its name and its state."""
    submitted_line = ""
    """A line of `RemoteQueue.submit` with the same id."""

    def test_outside_an_allocation_it_is_not_in_use(self, system: BatchSystem):
        assert system.current(ELSEWHERE) is None
        assert not system.is_on_node(ELSEWHERE)
        system.check_started_once(ELSEWHERE)
        with pytest.raises(ClusterError):
            system.find_allocation(ELSEWHERE)

    def test_an_allocation_that_cannot_be_queried_is_never_over(self, system: BatchSystem):
        try:
            state = system.state_of(AllocationRef("999", "another-cluster", system.name), ELSEWHERE)
        except ClusterError:
            return
        assert state is AllocationState.ACTIVE

    @pytest.mark.parametrize("method", StartMethod)
    def test_each_node_has_one_command_that_starts_its_agent(self, system: BatchSystem, method: StartMethod):
        start = system.agent_start(method, AGENT, ELSEWHERE)
        commands = start.commands(["n1", "n2", "n3"])
        assert [node for nodes, _ in commands for node in nodes] == ["n1", "n2", "n3"]
        for nodes, command in commands:
            words = " ".join(command)
            assert "qcg.pilotjob.agent" in words
            assert "--run-dir /runs/one" in words
            assert "--allocation 7 --cluster big --batch-system any" in words
            assert "--name" in words
            assert "--replace-after" not in words
            assert all(node in words for node in nodes)
        for _, command in start.commands(["n1", "n2"], replace_after=5.0):
            assert "--replace-after 5" in " ".join(command)

    def test_jobs_on_several_nodes_are_described(self, system: BatchSystem):
        assert isinstance(system.multi_node(), MultiNode)

    def test_variables_that_are_not_of_the_batch_system_are_not_hidden(self, system: BatchSystem):
        kept = ["HOME", "LD_LIBRARY_PATH", "PATH", "QCG_PM_X", "USER"]
        for hidden in (system.variables_to_hide(), system.variables_of_allocation(kept)):
            assert not [name for name in kept if is_hidden(name, hidden)]
            # The host takes no other patterns.
            assert all(re.fullmatch(r"\w+\*?", pattern, re.ASCII) for pattern in hidden)

    def test_the_variables_of_an_allocation_that_is_not_used_are_hidden(self, system: BatchSystem):
        (registration,) = (line for line in registry.SYSTEMS if line.name == system.name)
        hidden = system.variables_of_allocation([*registration.variables, "HOME"])
        assert all(is_hidden(name, hidden) for name in registration.variables)

    def test_commands_for_remote_hosts_are_complete(self, system: BatchSystem):
        queue = system.remote_queue()
        if queue is None:
            return
        assert (queue.name, queue.label) == (system.name, system.label)
        assert fields(queue.submit) <= {"script", "directory"}
        assert "{script}" in queue.submit
        assert fields(queue.list_jobs) == {"ids"}
        assert fields(queue.find_jobs) <= {"user", "names"}
        assert fields(queue.kill) == {"ids"}
        assert fields(queue.signal) <= {"ids", "signal"}
        assert fields(queue.directives) <= FIELDS_OF_DIRECTIVES
        assert {"name", "output", "error"} <= fields(queue.directives)
        assert queue.prefix.startswith("#")
        assert "id" in re.compile(queue.submitted).groupindex
        assert set(re.compile(queue.job_line).groupindex) == {"id", "name", "state"}
        assert not queue.list_ended or set(re.compile(queue.ended_line).groupindex) == {"id", "state"}
        assert not set(queue.waiting) & set(queue.over)
        assert 0 < queue.grace < queue.timeout
        for words in (queue.unknown, queue.unreachable):
            assert re.search(words, "") is None, "an empty answer means nothing"

    def test_real_output_of_commands_for_remote_hosts_is_understood(self, system: BatchSystem):
        queue = system.remote_queue()
        if queue is None or not self.listed_line:
            return
        match = re.search(queue.job_line, self.listed_line)
        assert match is not None
        assert match.group("id", "name", "state") == self.listed_job
        assert match["state"] not in {*queue.waiting, *queue.over}
        assert re.search(queue.job_line, "") is None
        answer = re.search(queue.submitted, self.submitted_line)
        assert answer is not None
        assert answer["id"] == self.listed_job[0]

    def test_commands_for_remote_hosts_travel_as_json(self, system: BatchSystem):
        queue = system.remote_queue()
        if queue is not None:
            assert msgspec.json.decode(msgspec.json.encode(queue), type=RemoteQueue) == queue

    def test_its_name_and_label_are_for_messages(self, system: BatchSystem):
        assert system.name == system.name.lower().strip()
        assert system.label


class StateContract:
    """Cases for the states of allocations, of a system with a queue. A subclass has the fixtures `system`; `show`, a
    `Show` for the allocation `allocation_id`; and `inside`: the variables of a process in that allocation."""

    cluster = ""
    """The cluster of the batch system."""
    allocation_id = "7"
    """The id of the allocation, in the form of the batch system."""
    missing_phases: tuple[Phase, ...] = ()
    """Phases that the batch system does not report."""

    @pytest.mark.parametrize(
        ("phase", "state"),
        [
            (Phase.STARTING, AllocationState.ACTIVE),
            (Phase.RUNNING, AllocationState.ACTIVE),
            (Phase.SUSPENDED, AllocationState.ACTIVE),
            (Phase.ENDING, AllocationState.ENDING),
            (Phase.WAITING, AllocationState.OVER),  # the allocation was queued again: its earlier run has ended
            (Phase.OVER, AllocationState.OVER),
        ],
    )
    def test_the_phase_of_an_allocation_shows_whether_its_processes_can_be_running(
        self, system: BatchSystem, show: Show, phase: Phase, state: AllocationState
    ):
        if phase in self.missing_phases:
            pytest.skip(f"{system.label} does not report {phase.name}")
        ref = AllocationRef(self.allocation_id, self.cluster, system.name)
        assert system.state_of(ref, show(phase)) is state

    def test_an_allocation_that_this_batch_system_cannot_know_is_not_over(self, system: BatchSystem, show: Show):
        environ = show(None)
        with pytest.raises(ClusterError):
            system.state_of(AllocationRef(self.allocation_id, "another-cluster", system.name), environ)

    @pytest.mark.parametrize("phase", Phase)
    def test_an_allocation_is_shown_in_each_phase(self, system: BatchSystem, show: Show, phase: Phase):
        if phase in self.missing_phases:
            pytest.skip(f"{system.label} does not report {phase.name}")
        assert system.queue is not None
        seen = system.queue.view(self.allocation_id, show(phase))
        assert seen is not None
        assert (seen.id, seen.phase) == (self.allocation_id, phase)
        assert seen.state

    def test_a_forgotten_allocation_has_no_view(self, system: BatchSystem, show: Show):
        assert system.queue is not None
        assert system.queue.view(self.allocation_id, show(None)) is None

    @pytest.mark.parametrize("restarts", [0, 1, 2])
    def test_an_allocation_and_its_processes_agree_on_how_often_it_was_queued_again(
        self, system: BatchSystem, show: Show, inside: Mapping[str, str], restarts: int
    ):
        assert system.queue is not None
        environ = {**show(Phase.RUNNING, restarts), **inside}
        seen = system.queue.view(self.allocation_id, environ)
        assert seen is not None
        assert (system.restarts(environ, 30.0), seen.restarts) == (restarts, restarts)

    def test_an_allocation_that_waits_again_was_queued_again(
        self, system: BatchSystem, show: Show, inside: Mapping[str, str]
    ):
        # Without this the allocation runner takes the SIGTERM of a requeue for a cancellation.
        assert system.queue is not None
        before = system.restarts({**show(Phase.RUNNING, 0), **inside}, 30.0)
        seen = system.queue.view(self.allocation_id, show(Phase.WAITING, 1))
        assert seen is not None
        assert seen.restarts > before

    @pytest.mark.parametrize("phase", [None, Phase.WAITING, Phase.OVER])
    def test_a_run_in_an_allocation_that_is_over_or_forgotten_does_not_use_this_machine(
        self,
        system: BatchSystem,
        show: Show,
        inside: Mapping[str, str],
        phase: Phase | None,
    ):
        environ = {**show(phase), **inside}
        assert registry.system_in_use(environ) is system
        with pytest.raises(ClusterError):
            find_nodes("auto", None, environ)


class QueueContract:
    """Cases for an `AllocationQueue`. A subclass has the fixtures `queue`; `working`: an environment in which the queue
    answers, and knows allocations that were submitted or cancelled; `submissions`: a function that returns the words
    of each submission so far, as the batch system got them; `unreachable`: an environment in which the queue does not
    answer; and `inside`: all variables of the batch system in a process of an allocation.

    The options below are words that `further_options` returns: override them with options of the batch system."""

    option = "--thing=1"
    """A further option with a value."""
    same_option = "--thing=3"
    """The same option with another value."""
    other_option = "--other=2"
    """Another option with a value."""
    flag = "--flag"
    """An option without a value."""
    option_of_two_lines = "--thing=a\nrm -rf /"

    def options(self, queue: AllocationQueue, nodes: str = "2", *further: str) -> list[str]:
        return queue.options(AllocationSpec(nodes=nodes, further=list(further)), "name", Path("/wd"))

    def test_options_of_a_spec_become_lines_of_the_script(self, queue: AllocationQueue):
        options = self.options(queue, "2", self.option)
        assert all(option.startswith("-") for option in options)
        assert self.option in options
        lines = queue.directives(options)
        assert lines
        assert all(line.startswith("#") and "\n" not in line for line in lines)
        with pytest.raises(BatchError):
            queue.directives([self.option_of_two_lines])

    @pytest.mark.parametrize("name", ["my jobs", "100% of 'them'", "-x", "größe"])
    def test_the_name_of_any_file_becomes_a_name_in_the_queue(self, queue: AllocationQueue, name: str):
        lines = queue.directives(queue.options(AllocationSpec(nodes="2"), name, Path("/wd")))
        plain = queue.directives(queue.options(AllocationSpec(nodes="2"), "name", Path("/wd")))
        words = [shlex.split(line[1:]) for line in lines]
        assert list(map(len, words)) == [len(shlex.split(line[1:])) for line in plain], "a name is one word"

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
        cleaned = queue.environment({**inside, "HOME": "/home/me"}, self.options(queue))
        assert not inside.keys() & cleaned.keys()
        assert cleaned["HOME"] == "/home/me"

    def test_an_unknown_size_is_not_refused(self, queue: AllocationQueue, unreachable: Mapping[str, str]):
        nodes = queue.largest_allocation(self.options(queue), unreachable)
        assert len(nodes) == 2
        assert all(node.cores for node in nodes)
        with pytest.raises(BatchError):
            queue.largest_allocation(self.options(queue, "many"), unreachable)

    def test_every_query_without_an_answer_is_a_batch_error(
        self, queue: AllocationQueue, unreachable: Mapping[str, str], tmp_path: Path
    ):
        with pytest.raises(BatchError):
            queue.submit(tmp_path / "batch.sh", unreachable)
        with pytest.raises(BatchError):
            queue.view("7", unreachable, 5.0)
        with pytest.raises(BatchError):
            queue.cancel("7", unreachable)

    def test_an_allocation_that_was_submitted_is_known_until_it_is_forgotten(
        self, queue: AllocationQueue, working: Mapping[str, str], tmp_path: Path
    ):
        assert queue.view("999", working) is None
        first = queue.submit(tmp_path / "batch.sh", working)
        seen = queue.view(first, working)
        assert seen is not None
        assert (seen.id, seen.phase) == (first, Phase.WAITING)

    def test_an_allocation_waits_for_the_one_that_it_follows(
        self,
        queue: AllocationQueue,
        working: Mapping[str, str],
        submissions: Callable[[], list[list[str]]],
        tmp_path: Path,
    ):
        first = queue.submit(tmp_path / "batch.sh", working)
        assert queue.submit(tmp_path / "batch.sh", working, after=first)
        alone, following = submissions()
        assert any(first in word for word in following if word not in alone)

    def test_a_cancelled_allocation_was_cancelled(
        self, queue: AllocationQueue, working: Mapping[str, str], tmp_path: Path
    ):
        first = queue.submit(tmp_path / "batch.sh", working)
        for _ in range(2):  # one that is over may be cancelled again
            queue.cancel(first, working)
            seen = queue.view(first, working)
            assert seen is not None
            assert seen.was_cancelled

    def test_an_allocation_may_follow_one_that_is_over_or_forgotten(
        self, queue: AllocationQueue, working: Mapping[str, str], tmp_path: Path
    ):
        assert queue.submit(tmp_path / "batch.sh", working, after="999")

    def test_the_command_for_users_cancels_every_allocation(self, queue: AllocationQueue):
        assert queue.cancel_command("7", "8").split()[1:] == ["7", "8"]

    def test_cancelling_an_allocation_that_is_forgotten_is_no_error(
        self, queue: AllocationQueue, working: Mapping[str, str]
    ):
        queue.cancel("999", working)
