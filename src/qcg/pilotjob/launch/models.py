"""Execution models: how a program is started on what it was given."""

from __future__ import annotations

from collections.abc import Callable

from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.description.model import Execution, ModelName
from qcg.pilotjob.launch.hydra import hydra, hydra_singleton
from qcg.pilotjob.launch.openmpi import openmpi, openmpi_singleton
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.launch.srun import srun, srun_singleton
from qcg.pilotjob.launch.start import Start

PARALLEL: dict[ModelName, Callable[[Execution, list[str], Grant, str, Site], Start]] = {
    "openmpi": openmpi,
    "intelmpi": hydra,
    "srunmpi": srun,
}
"""The models that start a process for each core; the others start the program itself, once."""


_SINGLETONS: dict[ModelName, Callable[[list[str], str, Site], Start]] = {
    "openmpi": openmpi_singleton,
    "intelmpi": hydra_singleton,
    "srunmpi": srun_singleton,
}
"""How a parallel model starts a program on one core, without its starter."""


def start_of(execution: Execution, program: list[str], grant: Grant, attempt_id: str, site: Site) -> Start:
    """How `program` is started under the model of the execution."""
    model = PARALLEL.get(execution.model)
    if model is None:
        return Start(program)
    if grant.ncores == 1 and not _has_starter_options(execution):
        return _SINGLETONS[execution.model](program, attempt_id, site)
    return model(execution, program, grant, attempt_id, site)


def _has_starter_options(execution: Execution) -> bool:
    """Whether the job says how its `mpirun` or `srun` is to be called, and so wants it to be called."""
    options = execution.model_opts
    if execution.model == "srunmpi":
        return bool(options.srun_args)
    return bool(options.mpirun or options.mpirun_args)
