"""Changes of the requests of a waiting job."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from qcg.pilotjob.description.errors import Problem, RequestError
from qcg.pilotjob.description.forms import ResourcesForm
from qcg.pilotjob.description.model import Amount, ExtraResources, JobDescription
from qcg.pilotjob.description.normalize import resources_of
from qcg.pilotjob.description.requests import SetJob


class JobChange(Struct, frozen=True, gc=False):
    """New values for a job; None keeps the value."""

    cores: Amount | None = None
    nodes: Amount | None = None
    gpus: int | None = None
    """Whole GPUs on each node; 0 for a part of one."""
    gpu_share: int = 0
    """Thousandths of one GPU on each node, instead of whole ones."""
    memory: int | None = None
    """MiB on each node."""
    wall_time: float | None = None
    priority: int | None = None
    limit_memory: bool = False
    """Whether the memory becomes a hard limit."""

    @property
    def is_priority_alone(self) -> bool:
        return self == JobChange(priority=self.priority)


def change_of(request: SetJob) -> JobChange:
    """The change that a request asks for; raises `RequestError`."""
    form = ResourcesForm(request.num_cores, request.num_nodes, request.node_crs, request.mem, wt=request.wt)
    problems: list[Problem] = []
    wanted, sharing, wall_time = resources_of(form, "default", None, "", problems)
    if sharing is not None:
        problems.append(Problem("", "a scheduler cannot be set; give a number, or min and max"))
    given = {key.lower() for key in request.node_crs or ()}
    change = JobChange(
        None if request.num_cores is None else wanted.cores,
        None if request.num_nodes is None else wanted.nodes,
        wanted.gpus if "gpu" in given else None,
        0 if wanted.extra is None else wanted.extra.gpu_share,
        wanted.memory if "mem" in given or request.mem is not None else None,
        wall_time,
        request.priority,
        request.mem is not None,
    )
    if change == JobChange() and not problems:
        keys = '"priority", "numCores", "numNodes", "nodeCrs", "mem" or "wt"'
        problems.append(Problem("", f"there is nothing to set; give {keys}"))
    if problems:
        raise RequestError([Problem(problem.path.removeprefix("."), problem.sentence) for problem in problems])
    return change


def changed_description(description: JobDescription, change: JobChange) -> JobDescription | str:
    """The description after a change, or why the change is not possible."""
    sharing, request = description.sharing, description.request
    shared = None if sharing is None else change.cores if sharing.of == "cores" else change.nodes
    if sharing is not None and shared is not None:
        return f"its number of {sharing.of} is left to {sharing.name}"
    nodes = request.nodes if change.nodes is None else change.nodes
    threads = description.execution.model == "threads"
    if threads and nodes is not None and nodes.least > 1:
        return "the threads model runs on one node"
    gpus = request.gpus if change.gpus is None else change.gpus
    memory = request.memory if change.memory is None else change.memory
    extra = request.extra if change.gpus is None else _with_gpu_share(request.extra, change.gpu_share)
    share = 0 if extra is None else extra.gpu_share
    on_one_node = request.one_node or gpus > 0 or share > 0 or memory > 0
    changed = replace(
        request,
        cores=request.cores if change.cores is None else change.cores,
        nodes=nodes,
        gpus=gpus,
        memory=memory,
        extra=extra,
        one_node=request.one_node if nodes is not None else threads or on_one_node,
    )
    return replace(
        description,
        request=changed,
        wall_time=description.wall_time if change.wall_time is None else change.wall_time,
        priority=description.priority if change.priority is None else change.priority,
        limit_memory=description.limit_memory or change.limit_memory,
    )


def _with_gpu_share(extra: ExtraResources | None, share: int) -> ExtraResources | None:
    """The same named resources, and another part of a GPU."""
    changed = replace(extra or ExtraResources(), gpu_share=share)
    return None if changed == ExtraResources() else changed
