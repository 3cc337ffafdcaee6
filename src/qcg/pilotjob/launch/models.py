"""Execution models: how a program is started on its granted cores."""

from __future__ import annotations

from collections.abc import Callable

from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.description.model import Execution, ModelName
from qcg.pilotjob.launch.hydra import hydra, hydra_singleton
from qcg.pilotjob.launch.openmpi import openmpi, openmpi_singleton
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.launch.start import Start

NOT_IN_ALLOCATION = "this run uses no allocation; start it inside one, or"
"""Why a run on this machine alone starts no steps, and what to do."""


def srunmpi(execution: Execution, program: list[str], grant: Grant, attempt_id: str, site: Site) -> Start:
    """The model `srunmpi`: a step of the batch system, on all granted nodes."""
    if site.multi_node is None:
        return Start(program, refusal=_no_steps(NOT_IN_ALLOCATION))
    if site.multi_node.step is None:
        return Start(program, refusal=_no_steps(f"{site.multi_node.no_steps};"))
    return site.multi_node.step(execution, program, grant, site)


def _no_steps(why: str) -> str:
    return (
        f"The model srunmpi starts its processes as a step of the batch system, and {why} use another model: openmpi"
        " or intelmpi for MPI programs, threads or default for one process."
    )


def srunmpi_singleton(program: list[str], attempt_id: str, site: Site) -> Start:
    """One process without a step, so it needs no allocation."""
    return Start(program)


PARALLEL: dict[ModelName, Callable[[Execution, list[str], Grant, str, Site], Start]] = {
    "openmpi": openmpi,
    "intelmpi": hydra,
    "srunmpi": srunmpi,
}
"""The models that start a process for each core; the others start the program itself, once."""


_SINGLETONS: dict[ModelName, Callable[[list[str], str, Site], Start]] = {
    "openmpi": openmpi_singleton,
    "intelmpi": hydra_singleton,
    "srunmpi": srunmpi_singleton,
}
"""How a parallel model starts a program on one core, without its launcher."""


def start_of(execution: Execution, program: list[str], grant: Grant, attempt_id: str, site: Site) -> Start:
    """How `program` is started under the model of the execution."""
    model = PARALLEL.get(execution.model)
    if model is None:
        return Start(program)
    if grant.ncores == 1 and not _has_launcher_options(execution):
        return _SINGLETONS[execution.model](program, attempt_id, site)
    return model(execution, program, grant, attempt_id, site)


def _has_launcher_options(execution: Execution) -> bool:
    """Whether the job has options for `mpirun` or a job step, which is then used even on one core."""
    options = execution.model_opts
    if execution.model == "srunmpi":
        return bool(options.srun_args)
    return bool(options.mpirun or options.mpirun_args)
