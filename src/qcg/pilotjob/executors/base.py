"""The executor port: one interface for sending launches and kills to hosts, and one for the reports of hosts.

A *host* owns one ledger of attempts: an agent, or a machine that is reached in another way. It looks after one or
several nodes. Launches and kills name the node, because the core knows nodes only; records and acknowledgements name
the host, because a ledger numbers its records. Where several ledgers belong to one host, such as those of login hosts
with one file system, records and acknowledgements name `HOST/LEDGER`: the part before the `/` is the host.

An executor is built for one observer: `factory(observer)`. It does not call the observer before `start`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from qcg.pilotjob.host.records import Ended, EndReason, Launch, Running, Started
from qcg.pilotjob.wire.contact import AgentsContact


class NumberedRecord(Protocol):
    """A `host.records.Record`, or the same as a message carries it, so that no record is copied on its way."""

    @property
    def number(self) -> int: ...

    @property
    def body(self) -> Started | Ended: ...


class NodeLayout(NamedTuple):
    """The report of a host about a node before its first attempt. None: nothing is known, or nothing differs."""

    cpus: Mapping[int, int] | None = None
    """The CPU of the operating system for each core id of a grant."""
    gpus: Mapping[str, str] | None = None
    """The name that programs use for each GPU of a grant."""


class HostState(NamedTuple):
    """How an executor reaches one of its hosts at the moment, for people."""

    state: str
    """`connected`, `connecting`, `unused` (no job has needed it yet), `unreachable`, or `forgotten` (a user has given
    it up)."""
    since: float = 0.0
    """When this state began, in seconds since the epoch; 0: not known."""
    address: str = ""
    """The address that is in use, or was tried last."""
    channel: str = ""
    """How commands are sent, where there are several ways."""
    error: str = ""
    """A sentence: why it cannot be reached, and what to do."""


class ExecutorObserver(ABC):
    """Receives the events of an executor's hosts. The engine is one."""

    @abstractmethod
    def scheduling_may_begin(self, notices: Sequence[str]) -> None:
        """Enough hosts are ready: attempts may be started. Called once. `notices`: sentences for the user."""

    @abstractmethod
    def notice(self, text: str) -> None:
        """A sentence for the user, about hosts that cannot be used yet."""

    @abstractmethod
    def node_described(self, node: str, layout: NodeLayout) -> None:
        """A host has described one of its nodes. Where it is called at all, it is called before `host_ready`."""

    @abstractmethod
    def host_ready(self, host: str, nodes: list[str], live: list[Running]) -> None:
        """A host has connected; `live`: every attempt it currently runs. Its earlier records were received before."""

    @abstractmethod
    def records_received(self, host: str, records: Sequence[NumberedRecord]) -> None:
        """Attempts have started or ended. Each record comes once, in the order of numbers; `records` is never empty.

        `host`: the host, or `HOST/LEDGER`."""

    @abstractmethod
    def host_swept(self, host: str, nodes: list[str], attempt_ids: list[str]) -> None:
        """No process is left on these nodes of attempts that other hosts have started."""

    @abstractmethod
    def host_away(self, host: str, nodes: list[str], reason: str = "") -> None:
        """The connection to a host is lost. Its attempts may still run. `reason`: why, as a clause for the user; where
        it changes while the host is away, this is called again."""

    def message_received(self, attempt_id: str, text: str) -> None:
        """A job has sent a message to its manager."""
        return

    def launch_of(self, ended: Ended) -> Launch | None:
        """The launch of an attempt that an earlier manager has started, composed once more; None if it has no job."""
        return None

    def has_attempts(self, node: str) -> bool:
        """Whether the manager has attempts on a node whose ends it does not know. For `start`: an earlier manager may
        have started them."""
        return False

    @abstractmethod
    def nodes_lost(self, nodes: list[str], message: str) -> None:
        """Nothing runs on these nodes any more, and the results of their attempts are not known."""

    @abstractmethod
    def executor_failed(self, reason: str) -> None:
        """No host can be used, and none is tried any more. `reason`: a clause for the user."""


class Executor(ABC):
    """Carries launches, kills and signals to hosts.

    `launch`, `kill`, `retract` and `sweep` collect; `flush` sends. Messages for a host that is not ready are dropped:
    the host reports its attempts when it connects, and the core compares."""

    @property
    @abstractmethod
    def hosts(self) -> Mapping[str, Sequence[str]]:
        """The nodes of each host, by the name of the host."""

    @abstractmethod
    def open(self) -> AgentsContact | None:
        """Listen for hosts. Returns what they need to connect; None when this executor connects to its hosts itself."""

    @abstractmethod
    def start(self) -> None:
        """Find or start hosts, and keep them alive from now on."""

    @abstractmethod
    def launch(self, node: str, launch: Launch) -> None:
        """Start an attempt from this node, the first one of its grant."""

    @abstractmethod
    def kill(self, node: str, attempt_id: str, reason: str = EndReason.CANCEL, message: str = "") -> None:
        """End an attempt that was started from this node. The record of its end says `reason` and `message`."""

    @abstractmethod
    def retract(self, node: str, attempt_ids: list[str]) -> None:
        """Take back these launches, unless they have left the lanes of their hosts."""

    @abstractmethod
    def sweep(self, node: str, attempt_id: str) -> None:
        """End the processes on this node of an attempt that was started from another one."""

    @abstractmethod
    def same_host(self, node: str, other: str) -> bool:
        """Whether one host looks after both nodes, so that it needs no sweep to end an attempt on the other one."""

    @abstractmethod
    def signal(self, attempt_ids: Mapping[str, list[str]], number: int) -> None:
        """Send a signal to attempts, given by the node that they were started from. Not delayed until `flush`."""

    @abstractmethod
    def flush(self) -> None:
        """Send everything that was collected."""

    @abstractmethod
    def acknowledge(self, numbers: Mapping[str, int]) -> None:
        """Tell hosts that their records up to these numbers are on disk: they may forget them. The numbers are given by
        the name under which the records were reported, a host or `HOST/LEDGER`."""

    @abstractmethod
    async def shut_down(self, grace: float, reason: str) -> None:
        """End all attempts and all hosts. Returns when none is left.

        `grace`: seconds between SIGTERM and SIGKILL. `reason`: for the records of attempts that end because of this."""

    def host_states(self) -> Mapping[str, HostState]:
        """The states of hosts that this executor connects to itself, by the name of their group of nodes."""
        return {}

    def reconnect(self, host: str) -> bool:
        """Try to reach such a host again now, because a person may have opened a connection. False: no such host."""
        return False

    def forget(self, host: str) -> None:
        """Try such a host no more, and drop what is known about its attempts, which the caller declares lost. It is
        used again after `reconnect`."""
        return

    async def poll(self, hosts: Collection[str]) -> None:
        """Ask such hosts for the states of their attempts now, and return when they have answered, or cannot be
        reached. Hosts that report by themselves need not be asked."""
        return

    @abstractmethod
    def hurry(self) -> None:
        """Kill all attempts at once, during `shut_down`. Before it: `shut_down` will have no grace period."""

    @abstractmethod
    def close(self) -> None:
        """Release everything and end nothing: hosts keep their attempts for the next manager. Also after a shutdown."""


ExecutorFactory = Callable[[ExecutorObserver], Executor]
