"""The interface between an agent executor and the component that keeps its agents alive."""

from __future__ import annotations

from abc import ABC, abstractmethod

from qcg.pilotjob.agent import protocol


class AgentSupervisor(ABC):
    """Starts the agents of an executor, watches them, and replaces those that die."""

    @abstractmethod
    def start(self) -> None:
        """Find or start agents, and look after them from now on."""

    @abstractmethod
    def hello(self, hello: protocol.Hello) -> None:
        """An agent has connected; it reports its attempts next."""

    @abstractmethod
    def message_received(self, name: str) -> None:
        """A message of this agent has arrived."""

    @abstractmethod
    def ready(self, name: str) -> None:
        """An agent has reported its attempts."""

    @abstractmethod
    def bye(self, name: str) -> None:
        """An agent has ended its attempts, and exits."""

    @abstractmethod
    async def end(self, grace: float) -> None:
        """Wait until all agents are gone, after they were told to exit with this grace period for their attempts."""

    @abstractmethod
    def close(self) -> None:
        """Stop watching: agents keep their attempts, and wait for another manager."""
