"""The model `srunmpi`: one step of Slurm on exactly the granted nodes, each process bound to one granted CPU."""

from __future__ import annotations

from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.description.model import Execution
from qcg.pilotjob.launch.ranks import bound_ranks
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.launch.start import Start

OUTSIDE = (
    "The model srunmpi starts steps of Slurm, and this run is not inside an allocation: start qcg-pm with sbatch or"
    " salloc, or use another model: openmpi or intelmpi for MPI programs, threads or default for one process."
)


def srun(execution: Execution, program: list[str], grant: Grant, attempt_id: str, site: Site) -> Start:
    """How many processes go where, and in which order, is in the machine file: `SLURM_HOSTFILE`."""
    own = execution.model_opts.srun_args
    command = ["srun", "--overlap", "--mem=0", "--export=ALL", "-N", str(len(grant.parts)), "-n", str(grant.ncores)]
    command += ["--distribution=arbitrary", "--cpu-bind=none"]
    binds_itself = any(argument.startswith(("--cpu-bind", "--cpu_bind")) for argument in own)
    ranks = bound_ranks(program, grant, site, bind=not binds_itself)
    # A number that does not fit the nodes makes srun complain.
    uneven = len({len(part.cores) for part in grant.parts}) > 1
    unset = ("SLURM_NTASKS_PER_NODE",) if uneven else ()
    return Start([*command, *own, *ranks], unset=unset, refusal="" if site.allocation else OUTSIDE)


def srun_singleton(program: list[str], attempt_id: str, site: Site) -> Start:
    """One process without `srun`, so it needs no allocation."""
    return Start(program)
