"""Cases for every batch system, to be subclassed: see `test_contract.py`."""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
import pytest

from qcg.pilotjob.cluster import registry
from qcg.pilotjob.cluster.agent_start import NEEDED_ON_NODES, AgentCommand, StartMethod
from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import (
    AllocationState,
    BatchSystem,
)
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.remote_queue import RemoteQueue
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


def _split(text: str) -> list[str]:
    """The words of a text for a shell; itself when it is none."""
    try:
        return shlex.split(text)
    except ValueError:
        return [text]


def is_hidden(variable: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(variable, pattern) for pattern in patterns)


def registration_of(system: BatchSystem) -> registry.Registration:
    (registration,) = (line for line in registry.SYSTEMS if line.name == system.name)
    return registration


class SystemContract:
    """Cases for a `BatchSystem`. A subclass has the fixture `system`, and, for a system with a `remote_queue`, lines of
    real output."""

    passes_environment = False
    """The command of `StartMethod.BATCH` passes its environment to the nodes, as `srun` does."""
    misleading: tuple[str, ...] = ()
    """Variables of an agent that its jobs must not see."""
    of_the_site: tuple[str, ...] = ()
    """Variables of the batch system that users and sites set, and not an allocation."""
    listed_line = ""
    """A line of `RemoteQueue.list_jobs` with a job that runs."""
    listed_job = ("7", "qcg-pm.a-1", "RUNNING")
    """Its id, its name and its state."""
    submitted_line = ""
    """A line of `RemoteQueue.submit` with the same id."""

    def test_outside_an_allocation_it_is_not_in_use(self, system: BatchSystem):
        assert system.allocation_ref(ELSEWHERE) is None
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

    @pytest.mark.parametrize("method", StartMethod)
    def test_agents_get_the_variables_that_they_need(self, system: BatchSystem, method: StartMethod):
        needed = {name: f"value of {name}" for name in (*NEEDED_ON_NODES, *registration_of(system).variables)}
        start = system.agent_start(method, AGENT, {**needed, "A_SECRET": "value of A_SECRET"})
        passes = self.passes_environment and method is StartMethod.BATCH
        for _, command in start.commands(["n1", "n2"]):
            # `ssh` gives its words to a shell, which splits them again.
            words = {*command, *(word for part in command for word in _split(part))}
            carried = {f"{name}={value}" for name, value in start.environ.items()} if passes else words
            assert {f"{name}={value}" for name, value in needed.items()} <= carried
            assert not any("A_SECRET" in word for word in words), "everybody can read command lines"

    def test_with_ssh_the_batch_system_does_not_end_the_agents(self, system: BatchSystem):
        agent = msgspec.structs.replace(AGENT, until=1800000000.0, logins={"n2": "me@login-of-n2"})
        start = system.agent_start(StartMethod.SSH, agent, ELSEWHERE)
        for (node,), command in start.commands(["n1", "n2"]):
            assert command[0] == "ssh"
            assert agent.logins.get(node, node) in command
            assert "--outside --until 1800000000" in " ".join(command)

    def test_jobs_on_several_nodes_are_described(self, system: BatchSystem):
        assert isinstance(system.multi_node(), MultiNode)

    def test_variables_that_are_not_of_the_batch_system_are_not_hidden(self, system: BatchSystem):
        kept = ["HOME", "LD_LIBRARY_PATH", "PATH", "QCG_PM_X", "USER"]
        for hidden in (system.hidden_from_jobs(), system.hidden_outside_allocation(kept)):
            assert not [name for name in kept if is_hidden(name, hidden)]
            # The host takes no other patterns.
            assert all(re.fullmatch(r"\w+\*?", pattern, re.ASCII) for pattern in hidden)

    def test_variables_that_would_mislead_jobs_are_hidden(self, system: BatchSystem):
        hidden = system.hidden_from_jobs()
        assert [name for name in self.misleading if not is_hidden(name, hidden)] == []
        assert not hidden or self.misleading, "name some of the variables in `misleading`"

    def test_the_variables_of_an_allocation_that_is_not_used_are_hidden(self, system: BatchSystem):
        variables = registration_of(system).variables
        hidden = system.hidden_outside_allocation([*variables, *self.of_the_site, "HOME"])
        assert all(is_hidden(name, hidden) for name in variables)
        assert not any(is_hidden(name, hidden) for name in self.of_the_site)

    def test_commands_of_the_queue_get_the_variables_of_the_site(self, system: BatchSystem):
        if system.queue is None:
            return
        variables = dict.fromkeys(("HOME", "PATH", *self.of_the_site), "1")
        assert system.queue.command_environment(variables) == variables

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
