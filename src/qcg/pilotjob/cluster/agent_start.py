"""The commands that start agents on the nodes of an allocation."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.wire import descriptors


class StartMethod(Enum):
    """How agents get to the nodes of an allocation; the values are those of `--nl-start-method`."""

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
    """When the allocation ends, as far as is known."""
    allocation: AllocationRef = AllocationRef()
    logins: dict[str, str] = {}
    """The field of the same name of `cluster/base.py:Allocation`."""

    def words(self, replace_after: float | None) -> list[str]:
        """`replace_after`: an agent that is there already is ended first, if it does nothing at all for so many
        seconds."""
        command = [sys.executable, "-m", "qcg.pilotjob.agent", "--run-dir", str(self.run_dir), "--own-log"]
        command += ["--open-files", str(descriptors.GIVEN), "--linger", f"{self.linger:g}"]
        command += self.allocation.agent_options()
        return command if replace_after is None else [*command, "--replace-after", f"{replace_after:g}"]


class AgentStart(Protocol):
    """A way to start agents."""

    environ: dict[str, str]
    """The environment of the commands."""

    @property
    def agents_end_with_it(self) -> bool:
        """Agents end when the command that started them ends."""

    def commands(self, nodes: Sequence[str], replace_after: float | None = None) -> list[tuple[list[str], list[str]]]:
        """The nodes that each command is for, and the command. `replace_after`: see `AgentCommand.words`."""


class SshStart:
    """Starts each agent with one `ssh`, for nodes on which the batch system starts no processes."""

    agents_end_with_it = True

    def __init__(
        self,
        agent: AgentCommand,
        environ: Mapping[str, str],
        *,
        variables: Sequence[str] = (),
        node_variable: str = "",
        addresses: Mapping[str, str] | None = None,
    ) -> None:
        """`variables`: further variables that agents need there. `node_variable`: the variable that names the node, as
        the batch system would have set it. `addresses`: what `ssh` is given for nodes; otherwise their names."""
        self._agent = agent
        self._variables = (*NEEDED_ON_NODES, *variables)
        self._node_variable = node_variable
        self._addresses = addresses or {}
        self.environ = dict(environ)

    def commands(self, nodes: Sequence[str], replace_after: float | None = None) -> list[tuple[list[str], list[str]]]:
        options = ["ssh", "-n", "-oBatchMode=yes", "-oConnectTimeout=10"]
        return [
            ([node], [*options, self._addresses.get(node, node), self._remote_line(node, replace_after)])
            for node in nodes
        ]

    def _remote_line(self, node: str, replace_after: float | None) -> str:
        """The text for the shell on the node, which gets nothing of the manager's environment by itself."""
        variables = {name: self.environ[name] for name in self._variables if name in self.environ}
        if self._node_variable:
            variables[self._node_variable] = node
        settings = [f"{name}={value}" for name, value in variables.items()]
        until = [] if self._agent.until is None else ["--until", f"{self._agent.until:.0f}"]
        words = [*settings, *self._agent.words(replace_after), "--name", node, "--outside", *until]
        return "exec env " + shlex.join(words)


NEEDED_ON_NODES = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "LANG")
"""And nothing else: everybody on both hosts can read the command, and some variables are secrets."""
