"""The forms in which users write a job: what is decoded, and what the JSON Schema is made of.

A form says only what may be written; what it means, and what must not stand together, is in `meaning.py`. A key whose
value is null counts as absent.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Union

from msgspec import Meta, Struct, field

from qcg.pilotjob.description.limits import LONGEST_NAME, LONGEST_NAME_WRITTEN
from qcg.pilotjob.description.model import ModelName, SharingName

MODELS: tuple[ModelName, ...] = ("default", "threads", "openmpi", "intelmpi", "srunmpi")
SCHEDULERS: tuple[SharingName, ...] = ("maximum-iters", "split-into")
NODE_RESOURCES: tuple[str, ...] = ("gpu", "mem")

LARGEST = 2**31 - 1
"""Of every count and index: beyond any machine, and inside what every number format of ours holds."""


def _ignoring_case(names: tuple[str, ...]) -> dict[str, Any]:
    """A schema that offers these names and accepts them in any mixture of cases."""
    pattern = "|".join("".join(f"[{c.upper()}{c}]" if c.isalpha() else c for c in name) for name in names)
    return {"anyOf": [{"enum": list(names)}, {"pattern": f"^({pattern})$"}]}


Count = Annotated[int, Meta(ge=1, le=LARGEST)]
Index = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
Word = Union[str, int, float]
"""What becomes one string of a command line or of an environment."""


class SchedulerParamsForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Settings of an iteration scheduler."""

    parts: Annotated[
        Count | None,
        Meta(description="Into how many parts split-into divides what exists; one for each iteration by default."),
    ] = None


class SchedulerForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Derives the size of a job from what exists instead of from a fixed number."""

    name: Annotated[str, Meta(description="Which scheduler.", extra_json_schema=_ignoring_case(SCHEDULERS))]
    params: Annotated[SchedulerParamsForm | None, Meta(description="Its settings.")] = None


SchedulerName = Annotated[str, Meta(extra_json_schema=_ignoring_case(SCHEDULERS))]


class AmountForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A number of cores or nodes: either exact, or from min to max, or left to a scheduler."""

    exact: Annotated[Count | None, Meta(description="Exactly this many; not together with the other keys.")] = None
    min: Annotated[Count | None, Meta(description="At least this many; without max, up to all that exist.")] = None
    max: Annotated[Count | None, Meta(description="At most this many; without min, one is enough.")] = None
    scheduler: Annotated[
        SchedulerForm | SchedulerName | None,
        Meta(description="Sizes the iterations from all that exists: an object, or just the scheduler's name."),
    ] = None
    split_into: Annotated[
        Count | None, Meta(description="Short for the scheduler split-into with this many parts.")
    ] = field(default=None, name="split-into")


class IterationForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The iterations of a job: the indices from start up to, not including, stop; or one iteration for each value."""

    start: Annotated[Index | None, Meta(description="The first index, 0 by default.")] = None
    stop: Annotated[Index | None, Meta(description="The index after the last one.")] = None
    step: Annotated[Index | None, Meta(description="The distance between indices, 1 by default.")] = None
    values: Annotated[
        list[Any] | None,
        Meta(description="What ${itval} stands for in each iteration; their indices are 0, 1, 2 and so on."),
    ] = None


class ModelOptionsForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Settings of the execution model."""

    mpirun: Annotated[str | None, Meta(description="The mpirun command of openmpi and intelmpi.")] = None
    mpirun_args: Annotated[list[Word] | None, Meta(description="More arguments for mpirun.")] = None
    srun_args: Annotated[list[Word] | None, Meta(description="More arguments for srun, in srunmpi.")] = None


# The keys that stand inside `execution` and `resources` in the standard form, and side by side in the simple form.
Exec = Annotated[
    str | None,
    Meta(description="The program: a name on $PATH, or an absolute path. Either this or script."),
]
Script = Annotated[str | None, Meta(description="Text for bash to run. Either this or exec; has no args.")]
Env = Annotated[dict[str, Word] | None, Meta(description="Variables to add to the environment of the job.")]
Wd = Annotated[
    str | None,
    Meta(description="Working directory, created when missing; relative to the working directory of the manager."),
]
Stdin = Annotated[str | None, Meta(description="File for standard input, relative to wd.")]
Stdout = Annotated[str | None, Meta(description="File for standard output, relative to wd.")]
Stderr = Annotated[str | None, Meta(description="File for standard error, relative to wd; may be the same as stdout.")]
Modules = Annotated[
    list[str] | str | None, Meta(description="Environment modules to load: a list, or names separated by spaces.")
]
Venv = Annotated[str | None, Meta(description="Path of the Python virtual environment to start in.")]
Model = Annotated[
    Annotated[str, Meta(extra_json_schema=_ignoring_case(MODELS))] | None,
    Meta(description="How the program is started on its cores, default by default."),
]
ModelOpts = Annotated[ModelOptionsForm | None, Meta(description="Settings of the model.")]
NumCores = Annotated[
    AmountForm | Count | None,
    Meta(description="Cores: on any nodes, or on each node when numNodes is given too. A bare number is exact."),
]
NumNodes = Annotated[
    AmountForm | Count | None, Meta(description="Nodes; whole ones without numCores. A bare number is exact.")
]
NodeCrs = Annotated[
    Annotated[
        dict[str, Count],
        Meta(
            extra_json_schema={
                "propertyNames": _ignoring_case(NODE_RESOURCES),
                "properties": {
                    "gpu": {"type": "integer", "minimum": 1, "description": "GPUs on each node."},
                    "mem": {"type": "integer", "minimum": 1, "description": "MiB of memory on each node."},
                },
            }
        ),
    ]
    | None,
    Meta(description="What else each node must give: gpu and mem."),
]
WallTime = Annotated[
    str | float | int | None,
    Meta(
        description="The job is ended when it runs longer: 1h30m, 90s, 01:30:00, PT1H30M or seconds.",
        examples=["1h30m"],
    ),
]
Iteration = Annotated[
    IterationForm | Index | list[Any] | None,
    Meta(description="Runs the job many times. A bare number is stop, a bare list is values."),
]
Iterate = Annotated[
    Annotated[list[Index], Meta(min_length=2, max_length=3)] | None,
    Meta(description="[start, stop] or [start, stop, step]; with ${it} in the name, each index is a job of its own."),
]
After = Annotated[
    list[str] | str | None,
    Meta(
        description="Jobs that must have succeeded before: a job name, one iteration of it (job:3), or, in a job with "
        "iterations, the same index (job:${it})."
    ),
]
Name = Annotated[
    str,
    Meta(
        description="Unique name; once its variables are substituted, without colons, white space, quotes or brackets,"
        f" and at most {LONGEST_NAME} bytes long.",
        max_length=LONGEST_NAME_WRITTEN,
        extra_json_schema={"anyOf": [{"maxLength": LONGEST_NAME}, {"pattern": r"\$\{"}]},
    ),
]


_OF_EXECUTION = {
    "command": "exec",
    "cmd": "exec",
    "executable": "exec",
    "program": "exec",
    "arguments": "args",
    "environment": "env",
    "cwd": "wd",
    "workdir": "wd",
    "output": "stdout",
}
_OF_RESOURCES = {"cores": "numCores", "nodes": "numNodes", "walltime": "wt", "time": "wt", "timeout": "wt"}
_OF_DEPENDENCIES = dict.fromkeys(("deps", "depends", "depends_on", "dependsOn", "dependency", "requires"), "after")
SYNONYMS = {**_OF_EXECUTION, **_OF_RESOURCES, **_OF_DEPENDENCIES}
"""Keys that other programs have for the same, and ours."""


def _meant(synonyms: dict[str, str], inside: str = "") -> dict[str, str]:
    """What to say of these keys; `inside`: they belong into this object."""
    place = f' It belongs inside "{inside}".' if inside else ""
    return {key: f'did you mean "{ours}"?{place}' for key, ours in synonyms.items()}


class ExecutionForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What to start, and in which surroundings."""

    ELSEWHERE: ClassVar[dict[str, str]] = _meant(_OF_EXECUTION)
    """What to say of unknown keys."""

    exec: Exec = None
    args: Annotated[
        list[Word] | None, Meta(description="Arguments of exec, which reach the program exactly as given.")
    ] = None
    script: Script = None
    env: Env = None
    wd: Wd = None
    stdin: Stdin = None
    stdout: Stdout = None
    stderr: Stderr = None
    modules: Modules = None
    venv: Venv = None
    model: Model = None
    model_opts: ModelOpts = None


GPUS = dict.fromkeys(("gpu", "gpus", "numGpu", "numGpus", "numGPUs"), 'GPUs are asked for with "nodeCrs": {"gpu": 1}')
"""What to say of keys that seem to want some."""


class ResourcesForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What a job, or each of its iterations, needs to run; one core by default."""

    ELSEWHERE: ClassVar[dict[str, str]] = {**GPUS, **_meant(_OF_RESOURCES)}

    num_cores: NumCores = field(default=None, name="numCores")
    num_nodes: NumNodes = field(default=None, name="numNodes")
    node_crs: NodeCrs = field(default=None, name="nodeCrs")
    wt: WallTime = None


class DependenciesForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What a job waits for."""

    ELSEWHERE: ClassVar[dict[str, str]] = _meant(_OF_DEPENDENCIES)

    after: After = None


class StandardForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A job in the standard form."""

    PURPOSES: ClassVar[dict[str, str]] = {
        "execution": 'it says what to start: {"exec": "PROGRAM", "args": ["ARGUMENT"]}, or {"script": "TEXT"}'
    }
    """What to say of keys that are missing."""
    ELSEWHERE: ClassVar[dict[str, str]] = {
        **_meant(_OF_EXECUTION, "execution"),
        **_meant(_OF_RESOURCES, "resources"),
        **_meant(_OF_DEPENDENCIES, "dependencies"),
    }

    name: Name
    execution: Annotated[ExecutionForm, Meta(description="What to start.")]
    iteration: Iteration = None
    iterate: Iterate = None
    resources: Annotated[ResourcesForm | None, Meta(description="What it needs; one core by default.")] = None
    dependencies: Annotated[DependenciesForm | None, Meta(description="What it waits for.")] = None
    attributes: Annotated[dict[str, Any] | None, Meta(description="Anything of the user's own; kept and reported.")] = (
        None
    )


class SimpleForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A job in the simple form: all keys side by side."""

    ELSEWHERE: ClassVar[dict[str, str]] = {
        "execution": "that is the standard form: in a program, use add_std",
        "resources": "in the simple form its keys, such as numCores, stand beside the others",
        "dependencies": 'in the simple form it is "after"',
        "attributes": "only the standard form has it, the one with execution",
        **GPUS,
        **_meant(SYNONYMS),
    }
    """What to say of keys of the standard form, and of other programs."""

    name: Name
    exec: Exec = None
    args: Annotated[
        list[Word] | str | None, Meta(description="Arguments of exec, which reach the program exactly as given.")
    ] = None
    script: Script = None
    env: Env = None
    wd: Wd = None
    stdin: Stdin = None
    stdout: Stdout = None
    stderr: Stderr = None
    modules: Modules = None
    venv: Venv = None
    model: Model = None
    model_opts: ModelOpts = None
    num_cores: NumCores = field(default=None, name="numCores")
    num_nodes: NumNodes = field(default=None, name="numNodes")
    node_crs: NodeCrs = field(default=None, name="nodeCrs")
    wt: WallTime = None
    iteration: Iteration = None
    iterate: Iterate = None
    after: After = None
