"""Conversion of the input forms to the parts of the model, with checks for contradictions."""

from __future__ import annotations

from typing import Any, Literal

from qcg.pilotjob.description.counters import check_counter, gpus_of
from qcg.pilotjob.description.errors import DescriptionError, Problem, join_path, quoted, suggestion
from qcg.pilotjob.description.forms import (
    MODELS,
    NODE_RESOURCES,
    SCHEDULERS,
    AmountForm,
    ExecutionForm,
    ModelOptionsForm,
    RemoteForm,
    ResourcesForm,
    SchedulerForm,
    SimpleForm,
    Word,
)
from qcg.pilotjob.description.iteration import Iteration
from qcg.pilotjob.description.limits import LARGEST
from qcg.pilotjob.description.memory import parse_memory
from qcg.pilotjob.description.model import (
    ANY_HOST,
    Amount,
    Counters,
    Execution,
    ExtraResources,
    ModelName,
    ModelOptions,
    Remote,
    ResourceRequest,
    Sharing,
    SharingName,
)
from qcg.pilotjob.description.walltime import parse_wall_time

MAX_NESTING = 100
"""Levels of nesting in free JSON values: below the limit of every decoder."""

NEAR_MODEL = 0.75
"""Least similarity of a model that is suggested for an unknown one: "mpi" could mean any of three."""
_ONE = Amount()
_DEFAULT_REQUEST = ResourceRequest()
_NO_OPTIONS = ModelOptions()
_IN_64_BITS = range(-(2**63), 2**64)


def execution_of(form: ExecutionForm | SimpleForm, path: str, problems: list[Problem]) -> Execution:
    """The execution part of a job; problems are appended to `problems`."""
    if form.exec is None and form.script is None:
        problems.append(Problem(path, 'there is nothing to start; give "exec" or "script"'))
    elif form.exec is not None and form.script is not None:
        problems.append(Problem(path, '"exec" and "script" exclude each other; give one of them'))
    elif form.exec == "":
        problems.append(Problem(f"{path}.exec", "is empty"))
    elif form.script is not None and not form.script.strip():
        problems.append(Problem(f"{path}.script", "is empty"))
    if form.script is not None and form.args:
        problems.append(Problem(f"{path}.args", 'a "script" takes no arguments; write them into it'))
    if form.output == "stream" and (form.stdout or form.stderr):
        given = "stdout" if form.stdout else "stderr"
        sentence = f'"stream" collects stdout and stderr, and excludes a file for "{given}"; give one of them'
        problems.append(Problem(f"{path}.output", sentence))
    env: dict[str, str] = {}
    if form.env:
        if "" in form.env or any("=" in key for key in form.env):
            problems.append(Problem(f"{path}.env", 'the name of a variable must not be empty and must not hold "="'))
        env = {key: value if type(value) is str else str(value) for key, value in form.env.items()}
    modules = form.modules.split() if isinstance(form.modules, str) else form.modules
    return Execution(
        form.exec,
        (form.args,) if isinstance(form.args, str) else _words(form.args),
        form.script,
        env,
        form.wd or None,
        form.stdin or None,
        form.stdout or None,
        form.stderr or None,
        tuple([name for name in modules if name]) if modules else (),
        form.venv or None,
        "default" if form.model is None else _model(form.model, f"{path}.model", problems),
        _NO_OPTIONS if form.model_opts is None else _model_options(form.model_opts),
        form.output,
    )


def _words(given: list[Word] | None) -> tuple[str, ...]:
    return tuple([word if type(word) is str else str(word) for word in given]) if given else ()


def _model(given: str, path: str, problems: list[Problem]) -> ModelName:
    for name in MODELS:
        if name == given.lower():
            return name
    problems.append(Problem(path, f"unknown model {quoted(given)}{suggestion(given, MODELS, NEAR_MODEL)}"))
    return "default"


def _model_options(form: ModelOptionsForm) -> ModelOptions:
    return ModelOptions(
        mpirun=form.mpirun or None, mpirun_args=_words(form.mpirun_args), srun_args=_words(form.srun_args)
    )


def resources_of(
    form: ResourcesForm | SimpleForm | None,
    model: ModelName,
    iteration: Iteration | None,
    path: str,
    problems: list[Problem],
) -> tuple[ResourceRequest, Sharing | None, float | None]:
    """The resource request, the iteration scheduler and the wall time of a job."""
    if form is None or (
        form.num_cores is None and form.num_nodes is None and not form.node_crs and form.mem is None and not form.named
    ):
        request = ResourceRequest(one_node=True) if model == "threads" else _DEFAULT_REQUEST
        return request, None, _wall_time(form, path, problems)
    cores, cores_shared = _amount(form.num_cores, "cores", iteration, f"{path}.numCores", problems)
    nodes, nodes_shared = _amount(form.num_nodes, "nodes", iteration, f"{path}.numNodes", problems)
    if cores_shared and nodes_shared:
        problems.append(Problem(path, "only one of numCores and numNodes can be left to a scheduler"))
    if nodes is not None and model == "threads":
        if nodes.least > 1 or nodes_shared:
            problems.append(Problem(f"{path}.numNodes", "the threads model runs on one node"))
        nodes = _ONE
    gpus = share = memory = 0
    if form.node_crs:
        gpus, share, memory = _node_resources(form.node_crs, f"{path}.nodeCrs", problems)
    if form.mem is not None:
        memory = _memory(form.mem, memory, path, problems)
    extra = ExtraResources(share, (), _named(form.named, f"{path}.named", problems)) if share or form.named else None
    request = ResourceRequest(
        cores=_ONE if cores is None and nodes is None else cores,
        nodes=nodes,
        gpus=gpus,
        memory=memory,
        one_node=model == "threads" or (nodes is None and (gpus > 0 or share > 0 or memory > 0)),
        extra=extra,
    )
    return request, cores_shared or nodes_shared, _wall_time(form, path, problems)


def _memory(given: str | float, asked: int, path: str, problems: list[Problem]) -> int:
    """MiB of `mem`; `asked`: those of `nodeCrs`."""
    if asked:
        problems.append(Problem(f"{path}.mem", '"mem" and "nodeCrs": {"mem": MiB} exclude each other; give "mem"'))
    try:
        return parse_memory(given)
    except DescriptionError as error:
        problems.extend(Problem(f"{path}.mem", problem.sentence) for problem in error.problems)
        return 0


def _wall_time(form: ResourcesForm | SimpleForm | None, path: str, problems: list[Problem]) -> float | None:
    if form is None or form.wt is None:
        return None
    try:
        return parse_wall_time(form.wt)
    except DescriptionError as error:
        problems.extend(Problem(f"{path}.wt", problem.sentence) for problem in error.problems)
        return None


def _amount(
    form: AmountForm | int | None,
    of: Literal["cores", "nodes"],
    iteration: Iteration | None,
    path: str,
    problems: list[Problem],
) -> tuple[Amount | None, Sharing | None]:
    if form is None:
        return None, None
    if isinstance(form, int):
        return Amount(form, form), None
    shared = form.scheduler is not None or form.split_into is not None
    if form.exact is not None:
        if form.min is not None or form.max is not None:
            problems.append(Problem(path, '"exact" excludes "min" and "max"'))
        if shared:
            problems.append(Problem(path, 'a scheduler determines the number itself and excludes "exact"; give "min"'))
        return Amount(form.exact, form.exact), None
    if shared:
        if form.max is not None:
            problems.append(Problem(path, 'a scheduler determines the number itself and excludes "max"; give "min"'))
        return Amount(form.min or 1, None), _sharing(form, of, iteration, path, problems)
    if form.min is None and form.max is None:
        problems.append(Problem(path, 'is empty; give "exact", "min", "max" or "scheduler"'))
    if form.min is not None and form.max is not None and form.min > form.max:
        problems.append(Problem(path, f'"min" is {form.min}, more than "max", which is {form.max}'))
    return Amount(form.min or 1, form.max), None


def _sharing(
    form: AmountForm, of: Literal["cores", "nodes"], iteration: Iteration | None, path: str, problems: list[Problem]
) -> Sharing | None:
    if form.scheduler is None:
        return Sharing("split-into", of, form.split_into)
    if form.split_into is not None:
        problems.append(Problem(path, '"split-into" and "scheduler" exclude each other; give one of them'))
    scheduler = SchedulerForm(form.scheduler) if isinstance(form.scheduler, str) else form.scheduler
    parts = scheduler.params.parts if scheduler.params is not None else None
    name = _scheduler_name(scheduler.name, f"{path}.scheduler", problems)
    if name == "maximum-iters":
        if parts is not None:
            problems.append(Problem(f"{path}.scheduler", "maximum-iters takes no parts; split-into does"))
        if iteration is None:
            problems.append(Problem(f"{path}.scheduler", "maximum-iters is for jobs with iterations"))
    elif name == "split-into" and parts is None and iteration is None:
        problems.append(Problem(f"{path}.scheduler", "split-into needs params.parts in a job without iterations"))
    return name and Sharing(name, of, parts)


def _scheduler_name(given: str, path: str, problems: list[Problem]) -> SharingName | None:
    for name in SCHEDULERS:
        if name == given.lower():
            return name
    problems.append(Problem(path, f"unknown scheduler {quoted(given)}{suggestion(given, SCHEDULERS)}"))
    return None


def _named(given: dict[str, int] | None, path: str, problems: list[Problem]) -> Counters:
    named = given or {}
    for name, number in named.items():
        try:
            check_counter(name, number)
        except DescriptionError as error:
            problems += [Problem(join_path(path, name), problem.sentence) for problem in error.problems]
    return tuple(sorted(named.items()))


def _node_resources(given: dict[str, int | float], path: str, problems: list[Problem]) -> tuple[int, int, int]:
    """GPUs, thousandths of a GPU, and MiB of memory."""
    found: dict[str, int | float] = {}
    for key, count in given.items():
        name = key.lower()
        if name not in NODE_RESOURCES:
            problems.append(Problem(join_path(path, key), f"unknown key{suggestion(key, NODE_RESOURCES)}"))
        elif name in found:
            problems.append(Problem(join_path(path, key), f'"{name}" is given twice'))
        elif name == "mem" and isinstance(count, float):
            problems.append(Problem(join_path(path, key), "must be a whole number of MiB"))
        elif not 0 < count <= LARGEST:
            problems.append(Problem(join_path(path, key), f"must be more than 0 and at most {LARGEST}"))
        else:
            found[name] = count
    gpus = share = 0
    try:
        gpus, share = gpus_of(found.get("gpu", 0))
    except DescriptionError as error:
        problems += [Problem(f"{path}.gpu", problem.sentence) for problem in error.problems]
    return gpus, share, int(found.get("mem", 0))


def remote_of(form: RemoteForm | SimpleForm, path: str, problems: list[Problem]) -> tuple[str, Remote | None]:
    """The name of the remote host of a job, and how it runs there; an empty name and None for other jobs."""
    if form.host is None:
        if form.owner or form.directives or form.inputs or form.outputs:
            given = [key for key in ("owner", "directives", "inputs", "outputs") if getattr(form, key)]
            sentence = 'is for jobs on a remote host; give the job a "host"'
            problems.extend(Problem(join_path(path, key), sentence) for key in given)
        return "", None
    if not form.host or any(character.isspace() for character in form.host):
        problems.append(Problem(f"{path}.host", f"must be the name of a host or {quoted(ANY_HOST)}, without spaces"))
    if form.owner and form.host == ANY_HOST:
        problems.append(Problem(f"{path}.owner", "the owner belongs to one host; name that host"))
    directives = {key: value if type(value) is str else str(value) for key, value in (form.directives or {}).items()}
    if "" in directives:
        problems.append(Problem(f"{path}.directives", "the name of an option must not be empty"))
    inputs = _paths(form.inputs, f"{path}.inputs", problems)
    outputs = _paths(form.outputs, f"{path}.outputs", problems)
    return form.host, Remote(form.owner or "", directives, inputs, outputs)


def check_staging(remote: Remote | None, wd: str | None, path: str, problems: list[Problem]) -> None:
    """Files are copied below the run directory of a host alone."""
    if remote is not None and wd and wd.startswith("/") and (remote.inputs or remote.outputs):
        which = "outputs" if remote.outputs else "inputs"
        problems.append(
            Problem(path, f'must be a relative path in a job with "{which}": they are copied below the run directory')
        )


def _paths(given: list[str] | str | None, path: str, problems: list[Problem]) -> tuple[str, ...]:
    """Patterns of files to copy; none may lead out of the directory that they are relative to."""
    paths = (given,) if isinstance(given, str) else tuple(given or ())
    for number, pattern in enumerate(paths):
        where = path if isinstance(given, str) else f"{path}[{number}]"
        if not pattern:
            problems.append(Problem(where, "is empty"))
        elif "\n" in pattern:
            problems.append(Problem(where, "holds a line break"))
        elif leads_out(pattern):
            problems.append(Problem(where, f"{quoted(pattern)} must be a relative path without .."))
    return paths


def leads_out(pattern: str) -> bool:
    """Whether a path leads out of the directory that it is relative to."""
    return pattern.startswith("/") or ".." in pattern.split("/")


def check_storable(value: Any, path: str, problems: list[Problem], level: int = 0) -> bool:
    """Whether a free JSON value (attributes, iteration values) can be stored in the registry."""
    found = len(problems)
    if level > MAX_NESTING:
        problems.append(Problem(path, f"nests more than {MAX_NESTING} levels deep"))
    elif isinstance(value, int) and value not in _IN_64_BITS:
        problems.append(Problem(path, "the number has more than 64 bits; write it as a string"))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            check_storable(item, f"{path}[{number}]", problems, level + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            check_storable(item, join_path(path, key), problems, level + 1)
    return len(problems) == found
