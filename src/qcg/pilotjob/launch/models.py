"""Execution models: how a program is started on what it was given."""

from __future__ import annotations

from collections.abc import Callable

from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.description.model import Execution, ModelName
from qcg.pilotjob.launch.hydra import hydra
from qcg.pilotjob.launch.openmpi import openmpi
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.launch.srun import srun
from qcg.pilotjob.launch.start import Start

PARALLEL: dict[ModelName, Callable[[Execution, list[str], Grant, str, Site], Start]] = {
    "openmpi": openmpi,
    "intelmpi": hydra,
    "srunmpi": srun,
}
"""The models that start a process for each core; the others start the program itself, once."""


def start_of(execution: Execution, program: list[str], grant: Grant, run_id: str, site: Site) -> Start:
    """How `program` is started under the model of the execution."""
    model = PARALLEL.get(execution.model)
    return Start(program) if model is None else model(execution, program, grant, run_id, site)
