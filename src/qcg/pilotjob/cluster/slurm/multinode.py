"""How parallel programs start on several nodes of a Slurm allocation: steps, and the MPI launchers that use them."""

from __future__ import annotations

from qcg.pilotjob.cluster.slurm.environment import NODE_VARIABLE, SCHEMA
from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.description.model import Execution
from qcg.pilotjob.launch.ranks import bound_ranks
from qcg.pilotjob.launch.site import MultiNode, Site
from qcg.pilotjob.launch.start import Start

STEP_OPTIONS = "--overlap --mem=0 --cpu-bind=none --ntasks-per-node=1"
"""For the `srun` with which an MPI launcher starts its daemons on other nodes: a step that shares all resources with
the steps of other jobs, and waits for none of them."""


def srun(execution: Execution, program: list[str], grant: Grant, site: Site) -> Start:
    """The model `srunmpi`: one step on exactly the granted nodes, each process bound to one granted CPU.

    How many processes start on which node, and in which order, is in the machine file: `SLURM_HOSTFILE`. Slurm's own
    options for binding are the same for all nodes, depend on the configuration of the cluster, and are ignored silently
    where they do not work. So each process binds itself.
    """
    own = execution.model_opts.srun_args
    command = ["srun", "--overlap", "--mem=0", "--export=ALL", "-N", str(len(grant.parts)), "-n", str(grant.ncores)]
    command += ["--distribution=arbitrary", "--cpu-bind=none"]
    binds_itself = any(argument.startswith(("--cpu-bind", "--cpu_bind")) for argument in own)
    ranks = bound_ranks(
        program, grant, site, node_variable=NODE_VARIABLE, rank_variable="SLURM_LOCALID", bind=not binds_itself
    )
    # A number that does not fit the nodes makes srun complain.
    uneven = len({len(part.cores) for part in grant.parts}) > 1
    unset = ("SLURM_NTASKS_PER_NODE",) if uneven else ()
    return Start([*command, *own, *ranks], unset=unset)


MULTI_NODE = MultiNode(
    schema=SCHEMA,
    node_variable=NODE_VARIABLE,
    openmpi={"OMPI_MCA_plm_slurm_args": STEP_OPTIONS},
    hydra={
        "HYDRA_LAUNCHER_EXTRA_ARGS": STEP_OPTIONS,
        "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": STEP_OPTIONS,
        "I_MPI_HYDRA_BOOTSTRAP": "slurm",
    },
    step=srun,
)
