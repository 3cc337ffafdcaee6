"""The batch-system port: the interface between the project and a batch system.

A batch system is one package in `cluster/` with a class that derives from `BatchSystem`, and one line in
`cluster/registry.py`. `AllocationQueue` is the part that submits allocations; sources of nodes without a queue have
none. `AllocationRef`, which names an allocation, is in `cluster/allocation_ref.py`.

A pure method uses its arguments alone: no commands, files or clock. The other methods may ask the batch system and
block, for `COMMAND_TIMEOUT` seconds at most where they take no `patience`. Errors have a message for the user.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from qcg.pilotjob.cluster.agent_start import AgentCommand, AgentStart, StartMethod
from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.commands import COMMAND_TIMEOUT
from qcg.pilotjob.cluster.errors import RangeError
from qcg.pilotjob.cluster.remote_queue import RemoteQueue
from qcg.pilotjob.cluster.spec import AllocationSpec
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.launch.site import EnvironmentSchema, MultiNode


class Allocation(Struct, frozen=True):
    """Nodes that a run may use, as their batch system describes them."""

    ref: AllocationRef
    specs: list[NodeSpec]
    """The nodes in the order of the batch system, with the core ids that it uses. The name of a node must work as
    a host of `ssh`, unless `logins` has another one, and must equal `MultiNode.node_variable` in processes there, or
    `uname -n` without its domain."""
    addresses: dict[str, str]
    """For each node, an address or name by which this machine finds its own address towards the nodes."""
    end: float | None = None
    """Epoch seconds; None without a limit."""
    cpus: dict[str, tuple[int, ...]] = {}
    """For each node, all core ids that the allocation has there: also threads of cores that jobs must not use."""
    layouts: dict[str, tuple[int, int]] = {}
    """The numbering of the core ids of each node: its number of cores, and threads of each core. Every node here has an
    entry in `cpus`. Omit a node if the batch system reports only a number of cores: its jobs are then bound to the
    first cores that the agent may use."""
    logins: dict[str, str] = {}
    """For each node that `ssh` does not reach under its name: the argument for `ssh`, such as `user@node`."""


class NodeRange(Struct, frozen=True):
    """A contiguous part of the nodes of an allocation: positions `begin` to `end` - 1, counted from 0."""

    begin: int | None = None
    """None: from the first node on."""
    end: int | None = None
    """None: up to the last node."""

    def of(self, allocation: Allocation) -> Allocation:
        """The allocation reduced to these nodes.

        Raises: `RangeError` when they are no part of it.
        """
        if self.begin is None and self.end is None:
            return allocation
        count = len(allocation.specs)
        begin, end = self.begin or 0, count if self.end is None else self.end
        if not 0 <= begin < end <= count:
            raise RangeError(
                f"begin {begin} and end {end} choose no part of the {count} nodes of allocation {allocation.ref.id}:"
                f" 0 <= begin < end <= {count} must hold"
            )
        specs = allocation.specs[begin:end]
        names = {spec.name for spec in specs}
        return replace(
            allocation,
            specs=specs,
            addresses={name: found for name, found in allocation.addresses.items() if name in names},
            cpus={name: found for name, found in allocation.cpus.items() if name in names},
            layouts={name: found for name, found in allocation.layouts.items() if name in names},
        )


class AllocationState(Enum):
    """Whether processes of an allocation can still be running."""

    ACTIVE = auto()
    ENDING = auto()
    """The batch system is about to end everything on its nodes."""
    OVER = auto()


class Phase(Enum):
    """Where a submitted allocation is between its submission and its end."""

    WAITING = auto()
    STARTING = auto()
    RUNNING = auto()
    SUSPENDED = auto()
    ENDING = auto()
    OVER = auto()

    @property
    def state(self) -> AllocationState:
        """Whether processes of an allocation that was running can still be running: one that waits was queued again.

        For `BatchSystem.state_of`, which must be certain, and so asks also whether this is the batch system that knows
        the allocation. `AllocationQueue.view` is about allocations that were submitted here."""
        if self in (Phase.WAITING, Phase.OVER):
            return AllocationState.OVER
        return AllocationState.ENDING if self is Phase.ENDING else AllocationState.ACTIVE


class EndCause(Enum):
    """Why an allocation ends, or has ended."""

    UNKNOWN = auto()
    """The batch system does not say, or the batch script ended by itself."""
    TIME_LIMIT = auto()
    NODE_FAILED = auto()
    PREEMPTED = auto()
    CANCELLED = auto()
    """The user or an administrator cancelled it. The chain of allocations stops, for this cause alone."""


class AllocationView(Struct, frozen=True):
    """The state of a submitted allocation, as the batch system reports it."""

    id: str
    phase: Phase
    state: str
    """Its state in the words of the batch system, for messages."""
    reason: str = ""
    """The word of the batch system for why it waits or was ended; empty when there is none. For messages only."""
    requeue_count: int = 0
    """How often it was queued again. Grows as soon as it waits again, not only when it starts again."""
    exit_code: int = 0
    """The exit code of its batch script; 128 + number of the signal that ended it."""
    output: str = ""
    """Path of the file with its output, without the name of a host."""
    nodes: str = ""
    """Its nodes as users read them, such as `n[1-4]`; empty before it has any."""
    limit: float | None = None
    """Its time limit in seconds; None: there is no limit, or it is not known."""
    end_cause: EndCause = EndCause.UNKNOWN
    """Why it ends. For a running allocation: the cause to assume if it receives SIGTERM now, which is CANCELLED unless
    the batch system reports another one. For one that is over without a known cause: UNKNOWN."""
    blocked: str = ""
    """A sentence when it waits for something that does not come by itself."""

    @property
    def is_over(self) -> bool:
        return self.phase is Phase.OVER

    @property
    def was_cancelled(self) -> bool:
        """It is over because it was cancelled."""
        return self.is_over and self.end_cause is EndCause.CANCELLED

    def __str__(self) -> str:
        where = f" on {self.nodes}" if self.nodes and self.phase is Phase.RUNNING else ""
        why = f" ({self.reason})" if self.reason else ""
        return f"Job {self.id} is {self.state}{where}{why}."


class AllocationQueue(ABC):
    """Submits, follows and cancels allocations.

    Options are texts such as `--name=value`, in the words of the batch system. `environ` is always the result of
    `environment`, except in `environment` itself. Methods that are not pure raise `BatchError` and no other error, as
    `cluster/commands.py:call_for_queue` does.
    """

    submit_program: str
    """The command that submits a batch script; users may give further options of it."""
    qcg_pm_command: str = "alloc"
    """The command of `qcg-pm` that messages tell users to submit with; `alloc` knows every batch system."""

    @abstractmethod
    def options(self, spec: AllocationSpec, name: str, wd: Path) -> list[str]:
        """The options that ask for such an allocation, with `spec.extra_options` at the end. `wd`: the absolute working
        directory of the run. Pure.

        `name`: its name in the queue, unless `spec` has one. Any text, such as the file name `my jobs` with its blank:
        characters that the batch system does not take are replaced, and are no error.

        They request the features that batch scripts rely on (`batch/script.py`): bash on the first node, the
        environment of the submitting process, and standard output and standard error in one file that can be read while
        the script runs.

        Raises: `BatchError` for a field of `spec` that the batch system lacks, or a value that it does not take.
        """

    def output_directory(self, output: str, wd: Path) -> Path | None:
        """The directory of the output file that a user asked for; None where it depends on the allocation, as in paths
        with a pattern for its id. Default: paths have no patterns. Pure.

        Raises: nothing.
        """
        return (wd / output).parent

    @abstractmethod
    def further_options(self, words: Iterable[str]) -> list[str]:
        """Options of `submit_program` as a user gave them, in one word or two, as `--name=value`. Pure.

        Raises: `BatchError` for a word that is no option, or an option that makes no sense for a run.
        """

    @abstractmethod
    def options_kept(self, earlier: Sequence[str], further: Sequence[str]) -> list[str]:
        """The further options of an earlier submission that the next one keeps: options that `further` does not
        replace, and that are not about one start only. Pure.

        Raises: nothing.
        """

    @abstractmethod
    def directives(self, options: Sequence[str]) -> list[str]:
        """The lines of a batch script that ask for these options. Pure.

        Raises: `BatchError` for an option that cannot be written into a script.
        """

    @abstractmethod
    def command_environment(self, environ: Mapping[str, str], options: Iterable[str] = ()) -> dict[str, str]:
        """The environment for commands of the batch system, without the variables of the allocation that this process
        is in, and without variables that would overrule `options`. Pure.

        Raises: nothing.
        """

    @abstractmethod
    def largest_allocation(self, options: Sequence[str], environ: Mapping[str, str]) -> list[NodeSpec]:
        """The most that an allocation with these options can have. Jobs that need more are refused, so a size that is
        not known must be a large one. `options`: the result of `options`, where further options may have changed what
        the spec asks for.

        Raises: `BatchError` for options that ask for no size; not when the batch system cannot be asked.
        """

    @abstractmethod
    def submit(self, script: Path, environ: Mapping[str, str], after: str = "") -> str:
        """Submit a batch script and return the id of its allocation: the same text as `AllocationRef.id` in a process
        of that allocation, and as `AllocationView.id`.

        `after`: the allocation starts when that one is over, however it ended. An allocation that is over already, or
        that the batch system does not know any more, counts as over: the new one must start and not wait for ever.

        Raises: `BatchError` when nothing was submitted.
        """

    @abstractmethod
    def view(
        self, allocation_id: str, environ: Mapping[str, str], patience: float = COMMAND_TIMEOUT
    ) -> AllocationView | None:
        """The state of an allocation. None: the batch system does not know it, so it ended some time ago.

        Raises: `BatchError` when the batch system cannot be asked, or does not answer in `patience` seconds.
        """

    @abstractmethod
    def cancel(self, allocation_id: str, environ: Mapping[str, str]) -> None:
        """Cancel an allocation, which may wait, run, or be over.

        Raises: `BatchError` when the allocation may continue.
        """

    @abstractmethod
    def cancel_command(self, *allocation_ids: str) -> str:
        """The command with which a user cancels allocations. Pure.

        Raises: nothing.
        """


class BatchSystem(ABC):
    """A source of nodes: finds the allocation this process is in, and starts agents on its nodes.

    `environ` is the environment of this process.
    """

    name: str
    """The value of `--resources` and `--envschema`."""
    label: str
    """Its name in messages."""
    queue: AllocationQueue | None = None
    schema: EnvironmentSchema | None = None
    """The variables about its resources that a job of the batch system has."""
    address_hint: str = ""
    """Where a user sees the addresses of nodes, as the end of a sentence."""
    start_hint: str = ""
    """Instructions for starting inside an allocation, as a clause."""
    signals_all_processes: bool = False
    """When it ends an allocation, all processes of the batch script get SIGTERM, not only its first one. Otherwise
    `batch/allocation_runner.py` passes the signal on to the manager."""

    # -- the allocation of this process -----------------------------------------------------------------------------

    @abstractmethod
    def allocation_ref(self, environ: Mapping[str, str]) -> AllocationRef | None:
        """The allocation that the environment names; None without one. Pure.

        Raises: nothing.
        """

    @abstractmethod
    def find_allocation(self, environ: Mapping[str, str], argument: str = "") -> Allocation:
        """The nodes of the allocation, with their cores, GPUs and layout. `argument`: what follows `NAME:` in
        `--resources`.

        Raises: `NoAllocation`, which means with `--resources auto`: continue with this machine alone. So raise it only
        when this process is certainly in no allocation. `AllocationOver` when the allocation has ended or is not known
        any more, `ClusterError` when its nodes are not known: both refuse the run. `NoCommand`, from
        `cluster/commands.py:call`, passes through: `cluster/find.py` decides about a missing program.
        """

    @abstractmethod
    def end_time(self, environ: Mapping[str, str], patience: float) -> float | None:
        """When the allocation ends, in epoch seconds: limits can be changed while it runs. None: there is no limit.

        The answer takes the place of `Allocation.end`. `patience`: seconds for the batch system to answer.

        Raises: `AllocationOver` when the allocation has ended, which ends the manager. `ClusterError` when the end is
        not known now: the manager keeps the end that it knows.
        """

    def is_on_node(self, environ: Mapping[str, str]) -> bool:
        """Whether this process runs on a node of the allocation, so that the batch system kills it when the allocation
        ends. Pure.

        Raises: nothing.
        """
        return False

    def requeue_count(self, environ: Mapping[str, str], patience: float = COMMAND_TIMEOUT) -> int:
        """How often the batch system had queued this allocation again before it started this process. Later numbers are
        `AllocationView.requeue_count`: a larger one means that the allocation is queued again now.

        May ask the batch system, where the environment does not tell. `patience`: seconds for it to answer.

        Raises: `ClusterError` when the number is not known. Then `qcg-pm run` refuses to start a new run while a run of
        this allocation and the same file has unfinished jobs: they would run twice.
        """
        return 0

    def check_started_once(self, environ: Mapping[str, str]) -> None:
        """Refuse a manager that is one of several tasks, each of which would run all jobs. Pure.

        Raises: `common.options.UsageError` for such a manager.
        """
        return

    # -- other allocations ------------------------------------------------------------------------------------------

    @abstractmethod
    def state_of(self, allocation: AllocationRef, environ: Mapping[str, str]) -> AllocationState:
        """The state of an allocation that another process was in.

        After OVER the jobs of that process are started again, so OVER must be certain: an allocation that the batch
        system has forgotten is over only if this is the batch system, and the cluster, that it was submitted to. One
        that is queued again is OVER: its earlier life has ended. One that is suspended is ACTIVE.

        Raises: `ClusterError` whenever the state is not certain.
        """

    # -- agents and jobs --------------------------------------------------------------------------------------------

    @abstractmethod
    def agent_start(self, method: StartMethod, agent: AgentCommand, environ: Mapping[str, str]) -> AgentStart:
        """The commands that start agents on nodes. A system without a native way uses `ssh` for `StartMethod.BATCH`.
        Pure.

        Raises: nothing.
        """

    @abstractmethod
    def multi_node(self) -> MultiNode:
        """How parallel programs of jobs get to the other nodes of their grant. Pure.

        Raises: nothing.
        """

    def hidden_from_jobs(self) -> list[str]:
        """Variables of an agent's environment that its jobs must not see, as in `host/records.py:Launch.unset`. Pure.

        Raises: nothing.
        """
        return []

    def hidden_outside_allocation(self, names: Iterable[str]) -> list[str]:
        """Variables to hide from jobs of a manager that does not use the allocation it runs in. Pure.

        Raises: nothing.
        """
        return []

    # -- remote hosts -----------------------------------------------------------------------------------------------

    def remote_queue(self) -> RemoteQueue | None:
        """The commands that submit, follow and kill jobs on a remote host that reaches this batch system; None: remote
        hosts cannot use it. Pure.

        Raises: nothing.
        """
        return None
