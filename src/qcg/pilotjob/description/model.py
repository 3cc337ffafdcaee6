"""The normalized job description that every input form is converted to.

The journal stores it: field names are part of the format of a run directory.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

ModelName = Literal["default", "threads", "openmpi", "intelmpi", "srunmpi"]
SharingName = Literal["maximum-iters", "split-into"]


class Amount(Struct, frozen=True, omit_defaults=True, gc=False):
    """A number of cores or nodes from `least` to `most`; `most=None` means no upper limit."""

    least: int = 1
    most: int | None = 1


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


class Iteration(Struct, frozen=True, omit_defaults=True, gc=False):
    """The indices of an iterated job, as a range."""

    start: int
    stop: int
    step: int = 1
    values: tuple[str, ...] | None = None
    """Values of `${itval}` by index; None if it is the index itself."""

    def indices(self) -> range:
        return range(self.start, self.stop, self.step)

    def __len__(self) -> int:
        return len(self.indices())

    def value(self, index: int) -> str:
        """The value of `${itval}` for an index."""
        return str(index if self.values is None else self.values[index])


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
