"""Conversion of the input forms to the parts of the model, with checks for contradictions."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from qcg.pilotjob.description.errors import DescriptionError, Problem, join_path, quoted, suggestion
from qcg.pilotjob.description.forms import (
    MODELS,
    NODE_RESOURCES,
    SCHEDULERS,
    AmountForm,
    ExecutionForm,
    IterationForm,
    ModelOptionsForm,
    ResourcesForm,
    SchedulerForm,
    SimpleForm,
    StandardForm,
    Word,
)
from qcg.pilotjob.description.model import (
    Amount,
    Execution,
    Iteration,
    ModelName,
    ModelOptions,
    ResourceRequest,
    Sharing,
    SharingName,
)
from qcg.pilotjob.description.walltime import parse_wall_time

MAX_ITERATIONS = 100_000_000
MAX_NESTING = 100
"""Levels of nesting in free JSON values: below the limit of every decoder."""

_ONE = Amount()
_DEFAULT_REQUEST = ResourceRequest()
_NO_OPTIONS = ModelOptions()
_PLACEHOLDER = Iteration(0, 1)
"""Result for an iteration with problems, so that no follow-up problems are reported."""
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
    )


def _words(given: list[Word] | None) -> tuple[str, ...]:
    return tuple([word if type(word) is str else str(word) for word in given]) if given else ()


def _model(given: str, path: str, problems: list[Problem]) -> ModelName:
    for name in MODELS:
        if name == given.lower():
            return name
    problems.append(Problem(path, f"unknown model {quoted(given)}{suggestion(given, MODELS)}"))
    return "default"


def _model_options(form: ModelOptionsForm) -> ModelOptions:
    return ModelOptions(
        mpirun=form.mpirun or None, mpirun_args=_words(form.mpirun_args), srun_args=_words(form.srun_args)
    )


def iteration_of(form: StandardForm | SimpleForm, path: str, problems: list[Problem]) -> Iteration | None:
    """The iterations of a job; None if it has none."""
    if form.iterate is not None:
        if form.iteration is not None:
            problems.append(Problem(path, '"iteration" and "iterate" exclude each other; give one of them'))
        start, stop, step = (*form.iterate, 1)[:3]
        return _indices(start, stop, step, f"{path}.iterate", problems)
    given = form.iteration
    if given is None:
        return None
    path = f"{path}.iteration"
    if isinstance(given, int):
        return _indices(0, given, 1, path, problems)
    if isinstance(given, list):
        return _values(given, path, problems)
    return _ranged(given, path, problems)


def _ranged(form: IterationForm, path: str, problems: list[Problem]) -> Iteration:
    if form.values is not None:
        if form.start is not None or form.stop is not None or form.step is not None:
            problems.append(Problem(path, '"values" excludes "start", "stop" and "step"; give one or the other'))
        return _values(form.values, f"{path}.values", problems)
    if form.stop is None:
        problems.append(Problem(path, 'give "stop" or "values"'))
        return _PLACEHOLDER
    return _indices(form.start or 0, form.stop, 1 if form.step is None else form.step, path, problems)


def _indices(start: int, stop: int, step: int, path: str, problems: list[Problem]) -> Iteration:
    if step == 0:
        problems.append(Problem(path, "the step must not be 0"))
        return _PLACEHOLDER
    count = len(range(start, stop, step))
    if count == 0:
        problems.append(Problem(path, f"there is no iteration from {start} up to {stop} in steps of {step}"))
        return _PLACEHOLDER
    if count > MAX_ITERATIONS:
        problems.append(
            Problem(path, f"{count} iterations are too many for one job; at most {MAX_ITERATIONS} are allowed")
        )
        return _PLACEHOLDER
    return Iteration(start, stop, step)


def _values(values: list[Any], path: str, problems: list[Problem]) -> Iteration:
    if not values:
        problems.append(Problem(path, "there is no iteration in an empty list"))
        return _PLACEHOLDER
    if not check_storable(values, path, problems):
        return _PLACEHOLDER
    return Iteration(0, len(values), 1, tuple([_text(value) for value in values]))


def _text(value: Any) -> str:
    """A value as text for `${itval}`: strings and numbers as they are, anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return msgspec.json.encode(value).decode()


def resources_of(
    form: ResourcesForm | SimpleForm | None,
    model: ModelName,
    iteration: Iteration | None,
    path: str,
    problems: list[Problem],
) -> tuple[ResourceRequest, Sharing | None, float | None]:
    """The resource request, the iteration scheduler and the wall time of a job."""
    if form is None or (form.num_cores is None and form.num_nodes is None and not form.node_crs):
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
    gpus = memory = 0
    if form.node_crs:
        gpus, memory = _node_resources(form.node_crs, f"{path}.nodeCrs", problems)
    request = ResourceRequest(
        cores=_ONE if cores is None and nodes is None else cores,
        nodes=nodes,
        gpus=gpus,
        memory=memory,
        one_node=model == "threads" or (nodes is None and (gpus > 0 or memory > 0)),
    )
    return request, cores_shared or nodes_shared, _wall_time(form, path, problems)


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


def _node_resources(given: dict[str, int], path: str, problems: list[Problem]) -> tuple[int, int]:
    found: dict[str, int] = {}
    for key, count in given.items():
        name = key.lower()
        if name not in NODE_RESOURCES:
            problems.append(Problem(join_path(path, key), f"unknown key{suggestion(key, NODE_RESOURCES)}"))
        elif name in found:
            problems.append(Problem(join_path(path, key), f'"{name}" is given twice'))
        found[name] = count
    return found.get("gpu", 0), found.get("mem", 0)


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
