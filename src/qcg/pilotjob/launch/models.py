"""Execution models: how a program is started on what it was given."""

from __future__ import annotations

from collections.abc import Callable

from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.description.model import Execution, ModelName


def apply_model(execution: Execution, program: list[str], grant: Grant) -> list[str]:
    """The command that starts `program` under the model of the execution."""
    return _MODELS[execution.model](execution, program, grant)


def _one_process(execution: Execution, program: list[str], grant: Grant) -> list[str]:
    return program


def _mpirun(execution: Execution, program: list[str], grant: Grant) -> list[str]:
    options = execution.model_opts
    return [options.mpirun or "mpirun", "-n", str(grant.ncores), *options.mpirun_args, *program]


def _srun(execution: Execution, program: list[str], grant: Grant) -> list[str]:
    return ["srun", "-n", str(grant.ncores), *execution.model_opts.srun_args, *program]


_MODELS: dict[ModelName, Callable[[Execution, list[str], Grant], list[str]]] = {
    "default": _one_process,
    "threads": _one_process,
    "openmpi": _mpirun,
    "intelmpi": _mpirun,
    "srunmpi": _srun,
}
