"""Composes the launch record for one attempt of a job, from its description and its grant."""

from __future__ import annotations

import shlex
from functools import lru_cache
from posixpath import join, normpath

from qcg.pilotjob.common.environment import STEP_ID
from qcg.pilotjob.core.records import Attempt, Grant
from qcg.pilotjob.description.json_input import DOLLAR
from qcg.pilotjob.description.limits import SubstitutionError, job_budget
from qcg.pilotjob.description.model import Execution, JobDescription
from qcg.pilotjob.description.variables import AT_LAUNCH, iteration_variable, launch_variables, rewrite, substitute
from qcg.pilotjob.host.records import Launch, file_path, output_path
from qcg.pilotjob.launch.binding import bound_cpus
from qcg.pilotjob.launch.environment import job_environment
from qcg.pilotjob.launch.machine_file import machine_file
from qcg.pilotjob.launch.models import PARALLEL, start_of
from qcg.pilotjob.launch.output import output_name
from qcg.pilotjob.launch.setup import refused, script_command, wrapped
from qcg.pilotjob.launch.site import Site

_NOTHING = Execution(exec="false")
"""Stands in for an execution whose variables cannot be substituted."""


def compose(description: JobDescription, run: Attempt, site: Site, seen: Grant | None = None) -> Launch:
    """The launch of an attempt. `seen`: the grant as the job sees it, where that is another one."""
    refusal = ""
    grant = run.grant if seen is None else seen
    try:
        execution = resolve(description, run, grant, site)
    except SubstitutionError as error:
        execution, refusal = _NOTHING, f"It cannot be started: {error}."
    parallel = execution.model in PARALLEL
    schema = site.schema
    if schema is None and parallel and site.multi_node is not None:
        schema = site.multi_node.schema
    cpus = bound_cpus(grant.parts[0], site)
    environment = job_environment(grant, cpus, run.id, site, schema)
    marker = environment[STEP_ID]
    files: dict[str, str] = {}
    if schema is not None:
        name, text = machine_file(grant)
        files[name] = text
        environment[schema.machine_file] = file_path(site.files, run.id, name)
    if execution.model == "threads" and not site.threads_chosen:
        environment["OMP_NUM_THREADS"] = str(len(grant.parts[0].cores))
    argv = program(execution)
    unset = site.hidden
    if parallel:
        start = start_of(execution, argv, grant, run.id, site)
        argv, refusal = start.argv, start.refusal
        environment.update(start.env)
        files.update(start.files)
        unset = [*unset, *start.unset]
        for name in start.unset:
            environment.pop(name, None)
    environment.update(execution.env)
    environment[STEP_ID] = marker  # a job must not change it: it marks the processes of the attempt
    setup = bool(execution.modules or execution.venv)
    if setup:
        argv = wrapped(argv, execution.modules, execution.venv or "")
    output = ""
    stream = (execution.output is not None or site.stream_output) and site.streams_output_of(execution)
    if site.output and (execution.stdout is None or execution.stderr is None):
        output = output_name(description, run.job.name, run.position, run.ordinal)
    # Positional arguments: keywords for all fields take three times as long.
    return Launch(
        run.id,
        refused(refusal) if refusal else argv,
        environment,
        unset,
        working_directory(execution, site),
        execution.stdin,
        execution.stdout,
        _same_if_equal(execution.stderr, execution.stdout),
        cpus,
        description.wall_time,
        setup or bool(refusal),
        [(part.node, part.cores, part.gpus) for part in grant.parts],
        files,
        run.lane.id if run.lane is not None else "",
        output,
        site.keep_output,
        None,
        stream,
        description.request.memory if description.limit_memory or site.enforce_memory else 0,
    )


def command_line(
    description: JobDescription, position: int, grant: Grant, attempt_id: str, site: Site, ordinal: int = 1
) -> str:
    """The command of an attempt, as it could be typed into a shell, without the setup of modules and virtual
    environments. `ordinal`: 1 for the first attempt of the job or iteration, 2 for the second."""
    try:
        execution = rewrite(description.execution, Substitution(description, position, grant, site, ordinal))
    except SubstitutionError:
        return ""  # it was not started
    return shlex.join(start_of(execution, program(execution), grant, attempt_id, site).argv)


def _same_if_equal(path: str | None, other: str | None) -> str | None:
    """`other` where both paths name the same file, which is then opened once."""
    return other if path and other and normpath(path) == normpath(other) else path


def resolve(description: JobDescription, run: Attempt, grant: Grant, site: Site) -> Execution:
    """The execution with all variables substituted."""
    spec = run.job.spec
    if spec and (DOLLAR not in spec or b"${" not in spec):
        return description.execution  # one search in the stored form is faster than one in each string
    return rewrite(description.execution, Substitution(description, run.position, grant, site, run.ordinal))


class Substitution:
    """Substitutes the variables of an attempt. Values are computed when a text uses them."""

    def __init__(self, description: JobDescription, position: int, grant: Grant, site: Site, ordinal: int = 1) -> None:
        self._description = description
        self._ordinal = ordinal
        self._position = position
        self._grant = grant
        self._site = site
        self._budget = job_budget()

    def __call__(self, text: str) -> str:
        return substitute(text, self, self._budget)

    def get(self, name: str, default: str) -> str:
        if name in AT_LAUNCH:
            if name == "attempt":
                return str(self._ordinal)
            nodes = [part.node for part in self._grant.parts]
            return launch_variables(self._site.root_wd, self._grant.ncores, nodes)[name]
        iteration = self._description.iteration
        if iteration is None or self._position < 0:
            return default
        value = iteration_variable(name, self._description, iteration.index(self._position), self._site.rows)
        return default if value is None else value


def stream_paths(
    description: JobDescription, job: str, position: int, grant: Grant, site: Site, *, saved: bool, ordinal: int = 1
) -> dict[str, str]:
    """The absolute paths of the files with the `stdout` and `stderr` of an attempt; `ordinal`: 1 for the first one.
    For output that is collected, the directory of the output streams as `stream`, and the name there as `streamName`.

    `saved`: also the files for captured output, which exist if there was any.
    """
    given = description.execution
    if site.streams_output_of(given):
        return {"stream": site.streams, "streamName": output_name(description, job, position, ordinal)}
    paths = Execution(wd=given.wd, stdout=given.stdout, stderr=given.stderr)
    try:
        paths = rewrite(paths, Substitution(description, position, grant, site, ordinal))
    except SubstitutionError:
        paths = _NOTHING
    wd = working_directory(paths, site)
    files = {}
    for stream, path in (("stdout", paths.stdout), ("stderr", paths.stderr)):
        if path:
            files[stream] = normpath(join(wd, path))
        elif saved and site.output:
            files[stream] = output_path(site.output, output_name(description, job, position, ordinal), stream)
    return files


def directory_of(description: JobDescription, position: int, grant: Grant, site: Site, ordinal: int = 1) -> str:
    """The working directory of an attempt; `ordinal`: 1 for the first one."""
    wd = description.execution.wd or ""
    if "${" in wd:
        try:
            wd = Substitution(description, position, grant, site, ordinal)(wd)
        except SubstitutionError:
            wd = ""
    return _below(site.root_wd, wd)


def program(execution: Execution) -> list[str]:
    if execution.script is not None:
        return script_command(execution.script)
    assert execution.exec is not None
    return [execution.exec, *execution.args]


def working_directory(execution: Execution, site: Site) -> str:
    return _below(site.root_wd, execution.wd or "")


# Cached: many jobs share few directories.
@lru_cache(maxsize=1024)
def _below(root: str, path: str) -> str:
    return normpath(join(root, path))


def program_name(execution: Execution) -> str:
    """The short name of the program, for displays."""
    return "bash" if execution.exec is None else execution.exec.rpartition("/")[2]
