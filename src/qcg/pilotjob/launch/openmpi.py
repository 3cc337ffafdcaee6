"""The model `openmpi`: `mpirun` of Open MPI, each process bound to one granted CPU by a rankfile."""

from __future__ import annotations

from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.description.model import Execution
from qcg.pilotjob.host.records import file_path
from qcg.pilotjob.launch.binding import all_bound_cpus
from qcg.pilotjob.launch.environment import open_mpi_variables
from qcg.pilotjob.launch.ranks import with_gpus_of_node
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.launch.start import Start, without_separator

RANKFILE = "ranks"


def openmpi(execution: Execution, program: list[str], grant: Grant, attempt_id: str, site: Site) -> Start:
    options = execution.model_opts
    command = [options.mpirun or "mpirun"]
    files: dict[str, str] = {}
    cpus = all_bound_cpus(grant, site)
    if cpus is None:
        command += ["-n", str(grant.ncores), "--bind-to", "none"]
        if site.multi_node is None:
            # Virtual nodes may have more cores than the machine.
            command.append("--oversubscribe")
    else:
        files[RANKFILE] = _rankfile(grant, cpus)
        # By default, a number in a rankfile is a logical core index, not a CPU number of the operating system.
        command += ["--use-hwthread-cpus", "--mca", "rmaps_rank_file_physical", "1"]
        command += ["--rankfile", file_path(site.files, attempt_id, RANKFILE)]
    env = open_mpi_variables(attempt_id, site)
    program = without_separator(program)
    if site.multi_node is not None and len(grant.parts) > 1:
        env.update(site.multi_node.openmpi)
        program = with_gpus_of_node(program, grant, site, site.multi_node.node_variable)
        if site.multi_node.openmpi_hosts:
            command += ["--host", ",".join([f"{part.node}:{len(part.cores)}" for part in grant.parts])]
    return Start([*command, *options.mpirun_args, *program], env, files, site.hidden_from_mpi)


def openmpi_singleton(program: list[str], attempt_id: str, site: Site) -> Start:
    """One process without `mpirun`. Open MPI makes a session directory for it as well."""
    return Start(program, open_mpi_variables(attempt_id, site), unset=site.hidden_from_mpi)


def _rankfile(grant: Grant, cpus: list[tuple[int, ...]]) -> str:
    slots = [(part.node, cpu) for part, bound in zip(grant.parts, cpus, strict=True) for cpu in bound]
    return "".join([f"rank {rank}={node} slot={cpu}\n" for rank, (node, cpu) in enumerate(slots)])
