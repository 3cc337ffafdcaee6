"""The one typed model that every form of a job description becomes."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

ModelName = Literal["default", "threads", "openmpi", "intelmpi", "srunmpi"]
SharingName = Literal["maximum-iters", "split-into"]


class Amount(Struct, frozen=True, omit_defaults=True, gc=False):
    """A number of cores or nodes: at least `least`, at most `most`; `None` reaches to everything there is."""

    least: int = 1
    most: int | None = 1


class ResourceRequest(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a job wants to run on. Equal requests are equal values: the queue keeps one line for each."""

    cores: Amount | None = Amount()
    """Cores in all; with `nodes`, cores on each of them; `None`: whole nodes."""
    nodes: Amount | None = None
    gpus: int = 0
    """On each node."""
    memory: int = 0
    """MiB on each node."""
    one_node: bool = False
    """All cores on the same node: the `threads` model, and GPUs or memory asked for without `numNodes`."""


class Sharing(Struct, frozen=True, omit_defaults=True, gc=False):
    """How `numCores` or `numNodes` is derived from what exists: `maximum-iters` or `split-into`."""

    name: SharingName
    of: Literal["cores", "nodes"]
    parts: int | None = None
    """`split-into` only; `None` means one part for each iteration."""
    sharers: int | None = None
    """Of jobs made from one description: how many they are. They share what exists as iterations of one job would."""
    position: int = 0
    """Of this job among them."""


class Iteration(Struct, frozen=True, omit_defaults=True, gc=False):
    """The indices of an iterated job, never expanded."""

    start: int
    stop: int
    step: int = 1
    values: tuple[str, ...] | None = None
    """As `${itval}` shows them."""

    def indices(self) -> range:
        return range(self.start, self.stop, self.step)

    def __len__(self) -> int:
        return len(self.indices())

    def value(self, index: int) -> str:
        """What `${itval}` stands for: the value at this index, or the index itself."""
        return str(index if self.values is None else self.values[index])


class ModelOptions(Struct, frozen=True, omit_defaults=True, gc=False):
    mpirun: str | None = None
    mpirun_args: tuple[str, ...] = ()
    srun_args: tuple[str, ...] = ()


class Execution(Struct, frozen=True, omit_defaults=True, gc=False):
    """What to start. Strings may still hold variables that are known only at launch."""

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
    """A job as it was accepted: every form normalised, variables of the submission substituted."""

    name: str
    execution: Execution
    request: ResourceRequest = ResourceRequest()
    sharing: Sharing | None = None
    wall_time: float | None = None
    """Seconds."""
    iteration: Iteration | None = None
    after: tuple[str, ...] = ()
    """Job names, single iterations `job:3`, or the same index `job:${it}`."""
    attributes: dict[str, Any] = {}
    uniq: str = ""
    """Of a job with iterations: the value of `${uniq}`, to which each of them appends its index."""
