"""The commands that start agents on the nodes of an allocation.

For implementers of a batch system: `BatchSystem.agent_start` returns an `AgentStart`, whose `commands` are run by the
manager. Each command

- runs `AgentCommand.words` on each of its nodes, followed by `--name NODE`, or, where one command is for several
  nodes, by `--name-variable VARIABLE` with an environment variable that names the node in processes there;
- passes on the variables in `NEEDED_ON_NODES` (`env_words`, where the command carries no environment to the node), and
  those with which commands of the batch system find its allocation;
- adds `AgentCommand.outside_options` where the batch system does not end these agents itself at the end of the
  allocation, because it does not know their processes, as with `ssh`. `--outside` makes the agent start a watchdog,
  which asks `BatchSystem.state_of` while no manager is there and ends the agent when the allocation is over; `--until`
  is the end of the allocation, for a watchdog that gets no answer;
- keeps running until its agents have connected to the manager. A command that ends earlier has failed, and its agents
  are started again. Once all its agents have connected, the manager sends SIGKILL to the session of the command. Set
  `AgentStart.command_keeps_agents_alive` if that would end the agents.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.wire import descriptors


class StartMethod(Enum):
    """How agents are started on the nodes of an allocation: the values of `--nl-start-method`."""

    BATCH = "batch"
    """The native way of the batch system."""
    SSH = "ssh"

    @classmethod
    def of_option(cls, value: str) -> StartMethod:
        """The method that a value of the option means: everything but `ssh` is the native way, such as the name of the
        batch system in command lines and registries of earlier versions."""
        return cls.SSH if value == cls.SSH.value else cls.BATCH


class AgentCommand(Struct, frozen=True):
    """The command line of an agent, on its node."""

    run_dir: Path
    linger: float
    until: float | None = None
    """When the allocation ends, as far as is known, in seconds of the epoch."""
    allocation: AllocationRef = AllocationRef()
    logins: dict[str, str] = {}
    """The field of the same name of `cluster/base.py:Allocation`."""

    def words(self, replace_after: float | None) -> list[str]:
        """The command without the agent's name, which `--name` or `--name-variable` has to add.

        `replace_after`: an agent that is there already is ended first, if it does nothing at all for so many seconds.
        """
        command = [sys.executable, "-m", "qcg.pilotjob.agent", "--run-dir", str(self.run_dir), "--own-log"]
        command += ["--open-files", str(descriptors.GIVEN), "--linger", f"{self.linger:g}"]
        command += self.allocation.agent_options()
        return command if replace_after is None else [*command, "--replace-after", f"{replace_after:g}"]

    def outside_options(self) -> list[str]:
        """Options for an agent that the batch system does not end."""
        return ["--outside", *([] if self.until is None else ["--until", f"{self.until:.0f}"])]


def env_words(environ: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """`env` with the values of these variables: the beginning of a command on a node that has another environment."""
    return ["env", *(f"{name}={environ[name]}" for name in names if name in environ)]


class AgentStart(Protocol):
    """A way to start agents. The module docstring lists the requirements for its commands."""

    environ: dict[str, str]
    """The environment of the commands."""

    @property
    def command_keeps_agents_alive(self) -> bool:
        """Agents end when the command that started them is killed, so it is left running. True where you are not sure:
        `AgentCommand.outside_options` is about another question, whether the batch system ends the agents."""

    def commands(self, nodes: Sequence[str], replace_after: float | None = None) -> list[tuple[list[str], list[str]]]:
        """The nodes that each command is for, and the command. Together they are for all of `nodes`: all nodes of the
        allocation at first, one node for each restart. `replace_after`: see `AgentCommand.words`. Pure: it is called in
        the event loop of the manager, and a command that is asked here would stop the run while it does not answer."""


class SshStart:
    """Starts each agent with one `ssh`, for nodes on which the batch system starts no processes."""

    command_keeps_agents_alive = True

    def __init__(
        self,
        agent: AgentCommand,
        environ: Mapping[str, str],
        *,
        variables: Sequence[str] = (),
        node_variable: str = "",
    ) -> None:
        """`variables`: further variables that agents need there. `node_variable`: the variable that names the node, as
        the batch system would have set it."""
        self._agent = agent
        self._variables = (*NEEDED_ON_NODES, *variables)
        self._node_variable = node_variable
        self.environ = dict(environ)

    def commands(self, nodes: Sequence[str], replace_after: float | None = None) -> list[tuple[list[str], list[str]]]:
        options = ["ssh", "-n", "-oBatchMode=yes", "-oConnectTimeout=10"]
        return [
            ([node], [*options, self._agent.logins.get(node, node), self._remote_line(node, replace_after)])
            for node in nodes
        ]

    def _remote_line(self, node: str, replace_after: float | None) -> str:
        """The text for the shell on the node, which does not inherit the manager's environment."""
        of_node = {self._node_variable: node} if self._node_variable else {}
        words = env_words({**self.environ, **of_node}, dict.fromkeys((*self._variables, *of_node)))
        words += [*self._agent.words(replace_after), "--name", node, *self._agent.outside_options()]
        return "exec " + shlex.join(words)


NEEDED_ON_NODES = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "LANG")
"""Variables that agents need on their nodes. No others are added to command lines: everybody on both hosts can read
these, and some variables are secrets."""
