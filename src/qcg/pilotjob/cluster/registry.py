"""The list of batch systems, and the one that this process uses.

Systems are loaded when they are needed: most runs need none.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from qcg.pilotjob.common.environment import BATCH_SYSTEM

if TYPE_CHECKING:
    from qcg.pilotjob.cluster.allocation_ref import AllocationRef
    from qcg.pilotjob.cluster.base import AllocationQueue, BatchSystem


class Registration(NamedTuple):
    """A batch system that can be loaded."""

    name: str
    module: str
    """The module whose `SYSTEM` is the instance."""
    variables: tuple[str, ...] = ()
    """Each process in one of its allocations has one of these variables."""
    submit_program: str = ""
    """The command that submits a batch script, as `AllocationQueue.submit_program`; empty: the system has no queue."""
    also: tuple[str, ...] = ()
    """Further programs without which `submit_program` is that of another batch system: several have a `qsub`."""
    has_schema: bool = False
    """It has a `schema`, and its name is a value of `--envschema`."""
    has_remote_queue: bool = False
    """It has a `remote_queue`, and its name is a value of `batch` in `hosts.toml`."""
    takes_file: bool = False
    """The value of `--resources` is `NAME:FILE`."""

    @property
    def has_queue(self) -> bool:
        return bool(self.submit_program)


SYSTEMS = (
    Registration(
        "slurm",
        "qcg.pilotjob.cluster.slurm.system",
        ("SLURM_JOB_ID", "SLURM_JOBID"),
        submit_program="sbatch",
        has_schema=True,
        has_remote_queue=True,
    ),
    Registration("hostfile", "qcg.pilotjob.cluster.hostfile.system", takes_file=True),
)
"""All batch systems. `system_for_submission` prefers earlier entries."""

SYSTEM_OF_EARLIER_VERSIONS = "slurm"
"""The batch system of files that name none: earlier versions knew no other."""

LOCAL = ("auto", "local")
"""Values of `--resources` that are no batch system."""


def resource_names() -> list[str]:
    """The values of `--resources` that are a name alone."""
    return [*LOCAL, *(system.name for system in SYSTEMS if not system.takes_file)]


def sources_of_files() -> list[str]:
    """The names in values of `--resources` such as `NAME:FILE`."""
    return [system.name for system in SYSTEMS if system.takes_file]


def schema_names() -> list[str]:
    """The values of `--envschema` besides `auto` and `common`."""
    return [system.name for system in SYSTEMS if system.has_schema]


def start_methods() -> list[str]:
    """The values of `--nl-start-method`. The name of a batch system is an alias of `batch`, from earlier versions."""
    return ["batch", "ssh", *(system.name for system in SYSTEMS if not system.takes_file)]


def queue_names() -> list[str]:
    """The batch systems that allocations can be submitted to."""
    return [system.name for system in SYSTEMS if system.has_queue]


def remote_queue_names() -> list[str]:
    """The batch systems to which remote hosts can submit jobs."""
    return [system.name for system in SYSTEMS if system.has_remote_queue]


def allocation_variables() -> tuple[str, ...]:
    """The variables that tell programs that they are in an allocation."""
    return tuple(variable for system in SYSTEMS for variable in system.variables)


def is_in_allocation(environ: Mapping[str, str]) -> bool:
    return any(environ.get(variable) for variable in allocation_variables())


def batch_system(name: str = "") -> BatchSystem:
    """The batch system of this name; that of earlier versions without a name."""
    name = name or SYSTEM_OF_EARLIER_VERSIONS
    registration = next((system for system in SYSTEMS if system.name == name), None)
    if registration is None:
        from qcg.pilotjob.cluster.errors import ClusterError

        known = ", ".join(system.name for system in SYSTEMS)
        raise ClusterError(f"there is no batch system {name[:100]!r}; known ones: {known}")
    system: BatchSystem = import_module(registration.module).SYSTEM
    return system


def system_in_use(environ: Mapping[str, str]) -> BatchSystem | None:
    """The batch system whose allocation this process is in."""
    for system in SYSTEMS:
        if any(environ.get(variable) for variable in system.variables):
            return batch_system(system.name)
    return None


def current_allocation(environ: Mapping[str, str]) -> AllocationRef | None:
    """The allocation that this process is in."""
    system = system_in_use(environ)
    return None if system is None else system.allocation_ref(environ)


def queue_of(name: str) -> AllocationQueue:
    """The queue of a batch system that allocations were submitted to."""
    from qcg.pilotjob.cluster.errors import BatchError

    system = batch_system(name)
    if system.queue is None:
        raise BatchError(f"no allocations can be submitted to {system.label}")
    return system.queue


def submit_command(name: str = "") -> str:
    """The command that submits runs to a batch system, for messages. `name`: as for `batch_system`."""
    from qcg.pilotjob.cluster.errors import ClusterError

    try:
        return f"qcg-pm {queue_of(name).qcg_pm_command}"
    except ClusterError:  # a batch system that only another version knows
        return "qcg-pm alloc"


def system_for_submission(environ: Mapping[str, str]) -> str:
    """The batch system to submit to: that of this allocation, or of the variable `BATCH_SYSTEM` (an unknown name as
    well), or the first whose program is installed."""
    inside = system_in_use(environ)
    if inside is not None and inside.queue is not None:
        return inside.name
    return environ.get(BATCH_SYSTEM) or (installed_queues(environ) or queue_names())[0]


def installed_queues(environ: Mapping[str, str]) -> list[str]:
    """The batch systems whose programs are installed, in the order of `SYSTEMS`."""
    from shutil import which  # here: commands that start a run must load quickly

    path = environ.get("PATH")
    return [
        system.name
        for system in SYSTEMS
        if system.has_queue and all(which(program, path=path) for program in (system.submit_program, *system.also))
    ]


def other_queues(environ: Mapping[str, str]) -> str:
    """A sentence if `system_for_submission` chose among several batch systems that are installed; empty otherwise."""
    found = [] if system_in_use(environ) or environ.get(BATCH_SYSTEM) else installed_queues(environ)
    if len(found) < 2:
        return ""
    programs = {system.name: system.submit_program for system in SYSTEMS}
    listed = ", ".join(f"{name} ({programs[name]})" for name in found)
    return f"Several batch systems are installed: {listed}. {found[0]} is used; --batch-system chooses another one."
