"""The values that all launches of one manager have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from posixpath import dirname, join

from msgspec import Struct

from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.description.iteration import RowSource
from qcg.pilotjob.description.model import Execution
from qcg.pilotjob.host.records import STREAMS
from qcg.pilotjob.launch.start import Start


class EnvironmentSchema(Struct, frozen=True):
    """The variables with which a batch system describes the resources of a job."""

    variables: Callable[[str, list[int]], dict[str, str]]
    """The variables for a grant. Arguments: the names of its nodes, separated by commas, and the number of cores on
    each of them."""
    machine_file: str
    """The variable with the path of the machine file."""
    allocation: tuple[str, ...]
    """The variables with the id of the allocation."""


class MultiNode(Struct, frozen=True):
    """How parallel programs start processes on the other nodes of their grant; provided by the batch system."""

    schema: EnvironmentSchema | None = None
    """Parallel programs see these variables, even where the user chose another schema."""
    node_variable: str = ""
    """The variable that names the node, in processes on it. Empty: there is none, so the name of the host is compared,
    with or without its domain."""
    openmpi: dict[str, str] = {}
    """Variables for the `mpirun` of Open MPI."""
    openmpi_hosts: bool = False
    """`mpirun` of Open MPI does not know the nodes: they are in its arguments."""
    hydra: dict[str, str] = {}
    """Variables for `mpirun` of Intel MPI and MPICH."""
    step: Callable[[Execution, list[str], Grant, Site], Start] | None = None
    """The model `srunmpi`: starts a job step with a command of the batch system that starts processes on nodes of the
    allocation. None where the batch system has no steps; jobs with the model are then refused."""
    no_steps: str = "this batch system starts no steps"
    """Why there is no `step`, as a clause in the refusal of such jobs."""


class RemoteSite(Struct, frozen=True):
    """The values that all launches on one remote host have in common."""

    host: str
    """Its name."""
    slots: bool = False
    """Whether a batch system starts its jobs: a grant says nothing about cores and nodes."""
    environment: dict[str, str] = {}
    """Variables for all jobs on this host; variables of a job go before them."""
    directives: dict[str, str] = {}
    """Options for the batch system for all jobs on this host; directives of a job go before them."""
    directory: str = ""
    """The run directory there, as shown to users: `qcg-run/RUN`."""
    local_tree: str = ""
    """The directory on the manager's side with the same tree as the run directory there: retrieved logs and outputs.
    Empty without one."""


class Site(Struct, frozen=True):
    """The values that all launches of one manager have in common."""

    root_wd: str
    """The manager's working directory, absolute."""
    instance: str
    """Unique among all managers: with the id of an attempt it marks every process of that attempt."""
    zmq_address: str = ""
    """Address of the network interface; empty without one."""
    contact: str = ""
    """Path of the contact file, where a job that is a client finds the keys for that address."""
    allocation: str = ""
    """The id of the allocation whose nodes the run uses; empty without one."""
    schema: EnvironmentSchema | None = None
    """Variables of a batch system that jobs see, besides the variables of every job."""
    multi_node: MultiNode | None = None
    """How parallel programs start processes on other nodes; None if all nodes are on this machine."""
    files: str = ""
    """The directory where hosts put the files of launches, absolute and the same on all nodes."""
    output: str = ""
    """The directory where hosts save captured output of jobs, absolute and the same on all nodes; without it, captured
    output is dropped."""
    keep_output: bool = False
    """Save the captured output of jobs that succeed as well."""
    stream_output: bool = False
    """Collect the output of jobs that name no file for it in output streams."""
    enforce_memory: bool = False
    """The memory that a job asks for is a hard limit, whatever its description says."""
    bindings: dict[str, Mapping[int, int]] = {}
    """For each node whose CPUs are known, the CPU of its operating system for each core id of a grant. Processes on
    other nodes are not bound. Filled in by the engine as hosts connect."""
    visible_gpus: dict[str, Mapping[str, str]] = {}
    """For each node where programs call GPUs by other names than the grant, those names. Filled in by the engine."""
    hides_gpus: bool = False
    """GPUs were given to the manager by name: jobs see the GPUs that they asked for, and no others."""
    hidden: list[str] = []
    """Variables of the agent's environment that jobs must not see, as in `host/records.py:Launch.unset`."""
    hidden_from_mpi: tuple[str, ...] = ()
    """Variables that would lead `mpirun` to an allocation that the run does not use."""
    remote: RemoteSite | None = None
    """Only for the site of a remote host; see `launch/remote.py`."""
    threads_chosen: bool = False
    """The user has set OMP_NUM_THREADS for the manager, and so for all jobs."""
    rows: RowSource | None = None
    """Reads the rows of parameter files; None where there is no access to them."""

    @property
    def streams(self) -> str:
        """The directory of output streams, beside that of saved output."""
        return join(dirname(self.output), STREAMS)

    def streams_output_of(self, execution: Execution) -> bool:
        """Whether the output of a job goes to a stream."""
        if execution.output is not None:
            return execution.output == "stream"
        return self.stream_output and execution.stdout is None and execution.stderr is None
