"""The environment variables that describe its resources to a job."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from qcg.pilotjob.common.environment import JOB_ADDRESS, JOB_CONTACT, STEP_ID
from qcg.pilotjob.core.records import Grant, NodePart
from qcg.pilotjob.launch.site import EnvironmentSchema, Site


def job_environment(
    grant: Grant, cpus: tuple[int, ...] | None, attempt_id: str, site: Site, schema: EnvironmentSchema | None
) -> dict[str, str]:
    """The variables about the resources of one attempt.

    `cpus`: the CPUs of its first node that it is bound to. `schema`: further variables, named as a batch system names
    them.
    """
    first = grant.parts[0]
    further = None if schema is None else schema.variables
    if len(grant.parts) == 1:  # the usual case
        environment = _of_size(first.node, (len(first.cores),), further).copy()
    else:
        nodes = ",".join([part.node for part in grant.parts])
        environment = _of_size(nodes, tuple([len(part.cores) for part in grant.parts]), further).copy()
    environment["QCG_PM_CPU_SET"] = ",".join(map(str, cpus or first.cores))
    environment[STEP_ID] = f"{site.instance}.{attempt_id}"
    if schema is not None and site.allocation:
        # An agent that was not started by the batch system does not have them.
        for name in schema.allocation:
            environment[name] = site.allocation
    if site.zmq_address:
        environment[JOB_ADDRESS] = site.zmq_address
        environment[JOB_CONTACT] = site.contact
    if first.gpus or site.hides_gpus:
        environment.update(gpu_variables(first, site))
    if len(first.cores) > 1 or len(grant.parts) > 1:
        environment.update(open_mpi_variables(attempt_id, site))
    return environment


def open_mpi_variables(attempt_id: str, site: Site) -> dict[str, str]:
    """A separate session directory for each attempt. By default all `mpirun` processes of a user share one, and fail
    when they start or end at the same moment."""
    return {"OMPI_MCA_orte_top_session_dir": f"/dev/shm/qcg-pm.{site.instance}.{attempt_id.replace(':', '-')}"}


def gpu_variables(part: NodePart, site: Site) -> dict[str, str]:
    """The variables about GPUs for processes on this node of a grant."""
    if part.gpus:
        # Where the batch system shuts other devices out, CUDA numbers the visible ones anew.
        names = site.visible_gpus.get(part.node, {})
        visible = ",".join([names.get(gpu, gpu) for gpu in part.gpus])
        return {"CUDA_VISIBLE_DEVICES": visible, "QCG_PM_GPUS": ",".join(part.gpus)}
    return {"CUDA_VISIBLE_DEVICES": ""} if site.hides_gpus else {}


# Without the core ids: on a large machine, far more grants differ in them than a cache can hold.
@lru_cache(maxsize=4096)
def _of_size(
    nodes: str, per_node: tuple[int, ...], further: Callable[[str, list[int]], dict[str, str]] | None
) -> dict[str, str]:
    """The variables that follow from the nodes of a grant and the number of cores on each. `further`:
    `EnvironmentSchema.variables`."""
    cores = str(sum(per_node))
    environment = {
        "QCG_PM_NNODES": str(len(per_node)),
        "QCG_PM_NODELIST": nodes,
        "QCG_PM_NPROCS": cores,
        "QCG_PM_NTASKS": cores,
        "QCG_PM_TASKS_PER_NODE": ",".join(map(str, per_node)),
    }
    if further is not None:
        environment.update(further(nodes, list(per_node)))
    return environment
