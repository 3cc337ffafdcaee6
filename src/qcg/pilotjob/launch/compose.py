"""From a description and a grant to the record that a host starts."""

from __future__ import annotations

import posixpath

from qcg.pilotjob.core.records import Run
from qcg.pilotjob.description.model import Execution, JobDescription
from qcg.pilotjob.description.variables import iteration_variables, launch_variables, resolve_execution
from qcg.pilotjob.host.records import Launch
from qcg.pilotjob.launch.environment import job_environment
from qcg.pilotjob.launch.models import apply_model
from qcg.pilotjob.launch.setup import script_command, wrapped
from qcg.pilotjob.launch.site import Site


def compose(description: JobDescription, run: Run, site: Site) -> Launch:
    execution = resolve(description, run, site)
    first = run.grant.parts[0]
    environment = job_environment(run.grant, run.id, site)
    if execution.model == "threads" and not site.threads_chosen:
        environment["OMP_NUM_THREADS"] = str(len(first.cores))
    environment.update(execution.env)
    setup = bool(execution.modules or execution.venv)
    argv = apply_model(execution, program(execution), run.grant)
    return Launch(
        id=run.id,
        argv=wrapped(argv, execution.modules, execution.venv or "") if setup else argv,
        env=environment,
        unset=[],
        wd=working_directory(execution, site),
        stdin=execution.stdin,
        stdout=execution.stdout,
        stderr=execution.stderr,
        cores=first.cores if first.node in site.bound_nodes else None,
        wall_time=description.wall_time,
        setup=setup,
        grant=[(part.node, part.cores, part.gpus) for part in run.grant.parts],
    )


def resolve(description: JobDescription, run: Run, site: Site) -> Execution:
    """The execution with every variable in place."""
    variables = launch_variables(site.root_wd, run.grant.ncores, [part.node for part in run.grant.parts])
    if run.position >= 0 and description.iteration is not None:
        index = description.iteration.indices()[run.position]
        variables.update(iteration_variables(description, index))
    return resolve_execution(description.execution, variables)


def program(execution: Execution) -> list[str]:
    if execution.script is not None:
        return script_command(execution.script)
    assert execution.exec is not None
    return [execution.exec, *execution.args]


def working_directory(execution: Execution, site: Site) -> str:
    return posixpath.normpath(posixpath.join(site.root_wd, execution.wd or ""))


def program_name(execution: Execution) -> str:
    """What people call the program."""
    return "bash" if execution.exec is None else posixpath.basename(execution.exec)
