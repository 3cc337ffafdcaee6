"""The model `intelmpi`: `mpirun` of Intel MPI, or of a relative such as MPICH's `mpiexec.hydra`.

Intel MPI binds processes by a list for each node (`I_MPI_PIN_PROCESSOR_LIST`), MPICH by one list for all of them
(`HYDRA_BINDING`); each ignores the variable of the other. Where one list does not fit all nodes, each process binds
itself.
"""

from __future__ import annotations

from itertools import chain

from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.description.model import Execution
from qcg.pilotjob.host.records import file_path
from qcg.pilotjob.launch.binding import all_bound_cpus
from qcg.pilotjob.launch.environment import gpu_variables
from qcg.pilotjob.launch.ranks import bound_rank
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.launch.start import Start, without_separator

MACHINE_FILE = "processes"


def hydra(execution: Execution, program: list[str], grant: Grant, attempt_id: str, site: Site) -> Start:
    options = execution.model_opts
    command = [options.mpirun or "mpirun"]
    cpus = all_bound_cpus(grant, site)
    env = _binding(cpus)
    program = without_separator(program)
    if site.multi_node is None or len(grant.parts) == 1:
        # All processes are on this machine, so that the batch system is not needed.
        command += ["-bootstrap", "fork", "-host", "localhost", *options.mpirun_args]
        pinned = _pinned(cpus[0]) if cpus else []
        return Start([*command, "-n", str(grant.ncores), *pinned, *program], env)
    command += ["-machinefile", file_path(site.files, attempt_id, MACHINE_FILE), *options.mpirun_args]
    sets: list[list[str]] = []
    for place, part in enumerate(grant.parts):
        words = ["-n", str(len(part.cores))]
        words += chain.from_iterable([("-env", *item) for item in gpu_variables(part, site).items()])
        if cpus is None:
            words += program
        elif "HYDRA_BINDING" in env:
            words += [*_pinned(cpus[place]), *program]
        else:
            words += bound_rank(program, cpus[place], "MPI_LOCALRANKID")
        sets.append(words)
    argv = [*command, *sets[0], *chain.from_iterable([(":", *words) for words in sets[1:]])]
    env.update(site.multi_node.hydra)
    # The placement is in the machine file.
    env["I_MPI_JOB_RESPECT_PROCESS_PLACEMENT"] = "off"
    lines = [f"{part.node}:{len(part.cores)}\n" for part in grant.parts]
    return Start(argv, env, {MACHINE_FILE: "".join(lines)})


def hydra_singleton(program: list[str], attempt_id: str, site: Site) -> Start:
    """One process without `mpirun`. It has the affinity that the host gave it, and must not choose another."""
    return Start(program, _binding(None))


def _binding(cpus: list[tuple[int, ...]] | None) -> dict[str, str]:
    if cpus is None:
        # Left to itself, Intel MPI binds, and takes the same cores for every job of a node.
        return {"I_MPI_PIN": "off"}
    longest = max(cpus, key=len)
    if all(bound == longest[: len(bound)] for bound in cpus):
        return {"I_MPI_PIN": "on", "HYDRA_BINDING": "user:" + ",".join(map(str, longest))}
    return {"I_MPI_PIN": "off"}


def _pinned(cpus: tuple[int, ...]) -> list[str]:
    return ["-env", "I_MPI_PIN_PROCESSOR_LIST", ",".join(map(str, cpus))]
