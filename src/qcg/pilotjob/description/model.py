"""The normalized job description that every input form is converted to.

The journal stores it: field names are part of the format of a run directory.
"""

from __future__ import annotations

from typing import Any, Literal, Union

from msgspec import Struct, field

from qcg.pilotjob.description.iteration import Iteration as Iteration

ModelName = Literal["default", "threads", "openmpi", "intelmpi", "srunmpi"]
DependencyKind = Literal["after", "afterany", "afternotok", "afterstart"]
"""The required outcome of a prerequisite: it succeeds, ends, ends without success, or begins to run."""
SharingName = Literal["maximum-iters", "split-into"]
ANY_HOST = "*"
"""The name that stands for any remote host."""


class Amount(Struct, frozen=True, omit_defaults=True, gc=False):
    """A number of cores or nodes from `least` to `most`; `most=None` means no upper limit."""

    least: int = 1
    most: int | None = 1


Counters = tuple[tuple[str, int], ...]
"""Names of counters with numbers, in the order of the names."""
WHOLE_GPU = 1000
"""Parts of a GPU are counted in thousandths, so that sums are exact."""


class ExtraResources(Struct, frozen=True, omit_defaults=True, gc=False):
    """Resources that the user has named, and a part of a GPU. Few jobs request them."""

    gpu_share: int = 0
    """Thousandths of one GPU on each node, fewer than `WHOLE_GPU`; 0 for none or for whole GPUs."""
    on_node: Counters = ()
    """Counters of each node that the job runs on."""
    of_run: Counters = ()
    """Counters of the run, which a job takes once however many nodes it has."""

    @property
    def is_on_nodes(self) -> bool:
        """Whether a node must have something of it."""
        return bool(self.gpu_share or self.on_node)

    @property
    def names_of_run(self) -> list[str]:
        return [name for name, _ in self.of_run]


class ResourceRequest(Struct, frozen=True, omit_defaults=True, gc=False):
    """The resources that a job needs. Equal requests compare equal: the queue has one line for each distinct one."""

    cores: Amount | None = Amount()
    """Cores in total, or on each node if `nodes` is given; None for whole nodes."""
    nodes: Amount | None = None
    gpus: int = 0
    """GPUs on each node."""
    memory: int = 0
    """Memory in MiB on each node."""
    one_node: bool = False
    """Whether all cores must be on one node: for the `threads` model, and for GPUs or memory without `numNodes`."""
    host: str = ""
    """Name of the remote host to run on, `*` for any of them; empty for the nodes of the run itself."""
    extra: ExtraResources | None = field(default=None, name="own")  # the name in registries
    """Named resources and a part of a GPU; None, never empty, if there are none."""


class Sharing(Struct, frozen=True, omit_defaults=True, gc=False):
    """The iteration scheduler that derives `numCores` or `numNodes` from the resources of the run."""

    name: SharingName
    of: Literal["cores", "nodes"]
    parts: int | None = None
    """Parts for `split-into`; None for one part for each iteration."""
    sharers: int | None = None
    """Number of jobs expanded from one description, which share the resources like iterations of one job."""
    position: int = 0
    """Position of this job among them."""


class ModelOptions(Struct, frozen=True, omit_defaults=True, gc=False):
    """Settings of the execution model."""

    mpirun: str | None = None
    mpirun_args: tuple[str, ...] = ()
    srun_args: tuple[str, ...] = ()


class Execution(Struct, frozen=True, omit_defaults=True, gc=False):
    """The program to start. Strings may still contain variables that are known only at launch."""

    exec: str | None = None
    args: tuple[str, ...] = ()
    script: str | None = None
    env: dict[str, str] = {}
    wd: str | None = None
    stdin: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    modules: tuple[str, ...] = ()
    venv: str | None = None
    model: ModelName = "default"
    model_opts: ModelOptions = ModelOptions()
    output: Literal["files", "stream"] | None = None
    """`stream`: its output is collected in the output stream of its node. `files`: not even in a run that collects the
    output of all jobs."""


class Remote(Struct, frozen=True, omit_defaults=True, gc=False):
    """How a job runs on a remote host. Strings may still contain variables that are known only at launch."""

    owner: str = ""
    """Name of the user there, which must be that of the host's configuration; empty for any."""
    directives: dict[str, str] = {}
    """Options for the batch system of the host; an empty value is an option without a value."""
    inputs: tuple[str, ...] = ()
    """Patterns of files that are copied to its working directory before it starts; relative to the working directory
    of the manager."""
    outputs: tuple[str, ...] = ()
    """Patterns of files that are copied back after its end; relative to its working directory."""


Steps = Union[float, tuple[float, ...]]
"""A factor for each attempt, or the values of the second, third and further attempts; the last one is kept."""


class RetryGrowth(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a further attempt gets more of."""

    wall_time: Steps | None = None
    memory: Steps | None = None
    cores: Steps | None = None


class RetryPolicy(Struct, frozen=True, omit_defaults=True, gc=False):
    """When a job that does not succeed is started again."""

    budgets: dict[str, int]
    """Number of further attempts for each cause."""
    exit_codes: tuple[tuple[int, int], ...] = ()
    """First and last exit codes for which the cause `exit` counts; empty for all."""
    delay: float = 0.0
    """Seconds before the second attempt."""
    factor: float = 2.0
    """Growth of the pause with each attempt for the same cause."""
    max_delay: float = 3600.0
    grow: RetryGrowth | None = None


class JobDescription(Struct, frozen=True, omit_defaults=True, gc=False):
    """A job as accepted: normalized, with the variables of the submission substituted."""

    name: str
    execution: Execution
    request: ResourceRequest = ResourceRequest()
    sharing: Sharing | None = None
    wall_time: float | None = None
    """Wall time limit in seconds; None for no limit."""
    iteration: Iteration | None = None
    after: tuple[str, ...] = ()
    """Prerequisites: job names, single iterations `job:3`, or the same index `job:${it}`."""
    attributes: dict[str, Any] = {}
    uniq: str = ""
    """Value of `${uniq}` in a job with iterations; each iteration appends its index."""
    remote: Remote | None = None
    """Only for a job on a remote host, whose name is in `request`."""
    retry: RetryPolicy | None = None
    priority: int = 0
    """Jobs with a higher priority are considered first."""
    limit_memory: bool = False
    """Whether the memory of its request is a hard limit on each node."""
    hold: bool = False
    """Whether the job was submitted held."""
    outcomes: tuple[tuple[DependencyKind, str], ...] = ()
    """Prerequisites that need not succeed: the kind, and what is named, as in `after`."""
