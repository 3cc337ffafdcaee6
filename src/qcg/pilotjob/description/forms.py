"""Input forms of a job: the types that are decoded, and from which the JSON Schema is generated.

A form only defines the syntax; `normalize.py` gives it a meaning and rejects contradictions. A key whose value is null
counts as absent.
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
"""Maximum of every count and index: beyond any machine, and within every number format in use."""


def _ignoring_case(names: tuple[str, ...]) -> dict[str, Any]:
    """A schema that suggests these names and accepts them in any case."""
    pattern = "|".join("".join(f"[{c.upper()}{c}]" if c.isalpha() else c for c in name) for name in names)
    return {"anyOf": [{"enum": list(names)}, {"pattern": f"^({pattern})$"}]}


Count = Annotated[int, Meta(ge=1, le=LARGEST)]
Index = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
Word = Union[str, int, float]
"""A value that becomes one string of a command line or an environment."""


class SchedulerParamsForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Settings of an iteration scheduler."""

    parts: Annotated[
        Count | None,
        Meta(description="Number of equal parts for split-into; one for each iteration by default."),
    ] = None


class SchedulerForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Derives the size of a job from the resources of the run instead of a fixed number."""

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
        Meta(description="Derives the number from the resources of the run: an object, or the name of the scheduler."),
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
        Meta(description="Values of ${itval}, one for each iteration; the indices are 0, 1, 2 and so on."),
    ] = None


class ModelOptionsForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Settings of the execution model."""

    mpirun: Annotated[str | None, Meta(description="The mpirun command of openmpi and intelmpi.")] = None
    mpirun_args: Annotated[list[Word] | None, Meta(description="More arguments for mpirun.")] = None
    srun_args: Annotated[list[Word] | None, Meta(description="More arguments for srun, in srunmpi.")] = None


# Keys of `execution` and `resources` in the standard form, and top-level keys in the simple form.
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
    Meta(description="Further resources on each node: gpu and mem."),
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
"""Keys of other programs, and the equivalent key here."""


def _synonym_hints(synonyms: dict[str, str], inside: str = "") -> dict[str, str]:
    """Hints for these keys; `inside` is the object they belong into."""
    where = f' It belongs inside "{inside}".' if inside else ""
    return {key: f'did you mean "{ours}"?{where}' for key, ours in synonyms.items()}


class ExecutionForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The program to start, and its environment."""

    UNKNOWN_KEY_HINTS: ClassVar[dict[str, str]] = _synonym_hints(_OF_EXECUTION)
    """Hints for unknown keys."""

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
"""Hints for keys that seem to request GPUs."""


class ResourcesForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The resources of a job, or of each of its iterations; one core by default."""

    UNKNOWN_KEY_HINTS: ClassVar[dict[str, str]] = {**GPUS, **_synonym_hints(_OF_RESOURCES)}

    num_cores: NumCores = field(default=None, name="numCores")
    num_nodes: NumNodes = field(default=None, name="numNodes")
    node_crs: NodeCrs = field(default=None, name="nodeCrs")
    wt: WallTime = None


class DependenciesForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The prerequisites of a job."""

    UNKNOWN_KEY_HINTS: ClassVar[dict[str, str]] = _synonym_hints(_OF_DEPENDENCIES)

    after: After = None


class StandardForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A job in the standard form."""

    MISSING_KEY_HINTS: ClassVar[dict[str, str]] = {
        "execution": 'it defines what to start: {"exec": "PROGRAM", "args": ["ARGUMENT"]}, or {"script": "TEXT"}'
    }
    """Hints for missing keys."""
    UNKNOWN_KEY_HINTS: ClassVar[dict[str, str]] = {
        **_synonym_hints(_OF_EXECUTION, "execution"),
        **_synonym_hints(_OF_RESOURCES, "resources"),
        **_synonym_hints(_OF_DEPENDENCIES, "dependencies"),
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
    """A job in the simple form: all keys at the top level."""

    UNKNOWN_KEY_HINTS: ClassVar[dict[str, str]] = {
        "execution": "that is the standard form: in a program, use add_std",
        "resources": "in the simple form its keys, such as numCores, are top-level keys",
        "dependencies": 'in the simple form it is "after"',
        "attributes": "only the standard form has it, the one with execution",
        **GPUS,
        **_synonym_hints(SYNONYMS),
    }
    """Hints for keys of the standard form and of other programs."""

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
