"""Input forms of a job: the types that are decoded, and from which the JSON Schema is generated.

A form only defines the syntax; `normalize.py` gives it a meaning and rejects contradictions. A key whose value is null
counts as absent.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Union

from msgspec import Meta, Struct, field

from qcg.pilotjob.description import patterns
from qcg.pilotjob.description.counters import RESERVED
from qcg.pilotjob.description.limits import LARGEST, LONGEST_NAME, LONGEST_NAME_WRITTEN
from qcg.pilotjob.description.memory import Memory
from qcg.pilotjob.description.model import ModelName, SharingName
from qcg.pilotjob.description.patterns import ignoring_case
from qcg.pilotjob.description.retry import Retry

MODELS: tuple[ModelName, ...] = ("default", "threads", "openmpi", "intelmpi", "srunmpi")
SCHEDULERS: tuple[SharingName, ...] = ("maximum-iters", "split-into")
NODE_RESOURCES: tuple[str, ...] = ("gpu", "mem")

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

    name: Annotated[str, Meta(description="Which scheduler.", extra_json_schema=ignoring_case(SCHEDULERS))]
    params: Annotated[SchedulerParamsForm | None, Meta(description="Its settings.")] = None


SchedulerName = Annotated[str, Meta(extra_json_schema=ignoring_case(SCHEDULERS))]


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
    """The iterations of a job: the indices from start up to, not including, stop; or one iteration for each value,
    for each row of a file, or for each combination of named values."""

    UNKNOWN_KEY_HINTS: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("csv", "jsonl", "rows", "each"), 'did you mean "file"?'),
        **dict.fromkeys(("grid", "sweep", "matrix", "cross"), 'did you mean "product"?'),
    }

    start: Annotated[Index | None, Meta(description="The first index, 0 by default.")] = None
    stop: Annotated[Index | None, Meta(description="The index after the last one.")] = None
    step: Annotated[Index | None, Meta(description="The distance between indices, 1 by default.")] = None
    values: Annotated[
        list[Any] | None,
        Meta(
            description="Values of ${itval}, one for each iteration; the indices are 0, 1, 2 and so on. ${itval.NAME}"
            " is a member of a value that is an object."
        ),
    ] = None
    indices: Annotated[list[Index] | None, Meta(description="The indices themselves, such as [31, 133].")] = None
    file: Annotated[
        str | None,
        Meta(
            description="A file of parameters, relative to the working directory of the manager: .csv with the names of"
            " the columns in the first line, or .jsonl with one object a line. One iteration for each row;"
            " ${row.NAME} is a value of its row."
        ),
    ] = None
    product: Annotated[
        dict[str, list[Any]] | None,
        Meta(
            description="Lists of values by name. One iteration for each combination; ${NAME} is the value of a name.",
            examples=[{"T": [250, 300], "p": [1, 2, 5]}],
        ),
    ] = None
    zip: Annotated[
        dict[str, list[Any]] | None,
        Meta(
            description="Lists of values by name, all of the same length. The first iteration has the first value of"
            " each list, and so on; ${NAME} is the value of a name."
        ),
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
Env = Annotated[
    dict[str, Word] | None,
    Meta(description="Variables to add to the environment of the job.", examples=[{"OMP_NUM_THREADS": "4"}]),
]
Wd = Annotated[
    str | None,
    Meta(description="Working directory, created when missing; relative to the working directory of the manager."),
]
Stdin = Annotated[str | None, Meta(description="File for standard input, relative to wd.")]
Stdout = Annotated[str | None, Meta(description="File for standard output, relative to wd.")]
Stderr = Annotated[str | None, Meta(description="File for standard error, relative to wd; may be the same as stdout.")]
Output = Annotated[
    Literal["files", "stream"] | None,
    Meta(
        description="stream: collect both outputs of all iterations in one file per node, read with qcg-pm logs."
        " Excludes stdout and stderr, and is not for remote hosts. files: the default; also in a run with"
        " --stream-output."
    ),
]
Modules = Annotated[
    list[str] | str | None, Meta(description="Environment modules to load: a list, or names separated by spaces.")
]
Venv = Annotated[str | None, Meta(description="Path of the Python virtual environment to start in.")]
Model = Annotated[
    Annotated[str, Meta(extra_json_schema=ignoring_case(MODELS))] | None,
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
        dict[str, int | float],
        Meta(
            extra_json_schema={
                "propertyNames": ignoring_case(NODE_RESOURCES),
                "properties": {
                    "gpu": {
                        "anyOf": [
                            {"type": "integer", "minimum": 1},
                            {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
                        ],
                        "description": "GPUs on each node: a whole number, or a part of one such as 0.5.",
                    },
                    "mem": {"type": "integer", "minimum": 1, "description": "MiB of memory on each node."},
                },
            }
        ),
    ]
    | None,
    Meta(description="Further resources on each node: gpu and mem."),
]
Mem = Annotated[Memory, Meta(extra_json_schema=patterns.MEMORY)]
Named = Annotated[
    Annotated[
        dict[str, Count],
        Meta(
            extra_json_schema={
                "propertyNames": {"pattern": patterns.COUNTER_NAME, "not": ignoring_case(RESERVED)},
            }
        ),
    ]
    | None,
    Meta(
        description="Named resources of the run (--resource license=4), taken once, or of nodes, taken on each node.",
        examples=[{"license": 1}],
    ),
]
WallTime = Annotated[
    str | float | int | None,
    Meta(
        description="The job is ended when it runs longer: 1h30m, 90s, 01:30:00, PT1H30M or seconds.",
        examples=["1h30m"],
        extra_json_schema=patterns.WALL_TIME,
    ),
]
Iteration = Annotated[
    IterationForm | Index | list[Any] | None,
    Meta(
        description="Runs the job many times. A bare number is stop, a bare list is values.",
        examples=[10, {"start": 1, "stop": 11}],
    ),
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
AfterAny = Annotated[
    list[str] | str | None,
    Meta(description="Jobs that must have ended before, however; named as in after."),
]
AfterNotOk = Annotated[
    list[str] | str | None,
    Meta(
        description="Jobs that must have ended without success before: FAILED, CANCELED or OMITTED; named as in after."
        " When one of them succeeds, the job is OMITTED."
    ),
]
AfterStart = Annotated[
    list[str] | str | None,
    Meta(
        description="Jobs that must have begun to run before; named as in after. When one of them ends without having"
        " begun, the job is OMITTED."
    ),
]
Priority = Annotated[
    Index | None,
    Meta(
        description="Waiting jobs with a higher priority are started first, equal ones in the order of submission; 0."
    ),
]
Hold = Annotated[
    bool | None, Meta(description="true: the job waits until it is released with releaseJob or qcg-pm release.")
]
Host = Annotated[
    str,
    Meta(description="The remote host to run on, as named in hosts.toml; * for any host with room."),
]
Owner = Annotated[
    str | None, Meta(description="The user on that host; must be the owner of the host in hosts.toml, if given.")
]
Directives = Annotated[
    dict[str, Word] | None,
    Meta(
        description="Options for the batch system of the host; an empty value is an option without a value.",
        examples=[{"--partition": "debug"}],
    ),
]
Inputs = Annotated[
    list[str] | str | None,
    Meta(
        description="Files, directories and patterns that are copied to the working directory of the job on the host"
        " before it starts; relative to the working directory of the manager."
    ),
]
Outputs = Annotated[
    list[str] | str | None,
    Meta(
        description="Files, directories and patterns that are copied back after the job; relative to its working"
        " directory on the host."
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
}
_OF_RESOURCES = {
    "cores": "numCores",
    "nodes": "numNodes",
    "walltime": "wt",
    "time": "wt",
    "timeout": "wt",
    "memory": "mem",
}
_OF_REMOTE = {
    "input": "inputs",
    "inputFiles": "inputs",
    "stage_in": "inputs",
    "stageIn": "inputs",
    "outputFiles": "outputs",
    "stage_out": "outputs",
    "stageOut": "outputs",
    "hostname": "host",
    "hosts": "host",
    "user": "owner",
    "directive": "directives",
}
_OF_DEPENDENCIES = dict.fromkeys(("deps", "depends", "depends_on", "dependsOn", "dependency", "requires"), "after")
_OF_JOB = {
    **dict.fromkeys(("retries", "max_retries", "maxRetries", "attempts", "requeue"), "retry"),
    "prio": "priority",
    "held": "hold",
}
SYNONYMS = {**_OF_REMOTE, **_OF_EXECUTION, **_OF_RESOURCES, **_OF_DEPENDENCIES, **_OF_JOB}
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
    output: Output = None
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
    mem: Mem = None
    named: Named = None
    wt: WallTime = None


class DependenciesForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The prerequisites of a job."""

    UNKNOWN_KEY_HINTS: ClassVar[dict[str, str]] = _synonym_hints(_OF_DEPENDENCIES)

    after: After = None
    afterany: AfterAny = None
    afternotok: AfterNotOk = None
    afterstart: AfterStart = None


class RemoteForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The remote host that a job runs on, and the files that are copied for it."""

    MISSING_KEY_HINTS: ClassVar[dict[str, str]] = {
        "host": 'it names the host in hosts.toml, or "*" for any host with room'
    }
    UNKNOWN_KEY_HINTS: ClassVar[dict[str, str]] = {
        **_synonym_hints({**_OF_REMOTE, "name": "host", "output": "outputs"}),
    }

    host: Host
    owner: Owner = None
    directives: Directives = None
    inputs: Inputs = None
    outputs: Outputs = None


class StandardForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A job in the standard form."""

    MISSING_KEY_HINTS: ClassVar[dict[str, str]] = {
        "execution": 'it defines what to start: {"exec": "PROGRAM", "args": ["ARGUMENT"]}, or {"script": "TEXT"}'
    }
    """Hints for missing keys."""
    UNKNOWN_KEY_HINTS: ClassVar[dict[str, str]] = {
        **_synonym_hints(_OF_REMOTE, "remote"),
        **_synonym_hints(_OF_EXECUTION, "execution"),
        **_synonym_hints(_OF_RESOURCES, "resources"),
        **_synonym_hints(_OF_DEPENDENCIES, "dependencies"),
        **_synonym_hints(_OF_JOB),
    }

    name: Name
    execution: Annotated[ExecutionForm, Meta(description="What to start.")]
    iteration: Iteration = None
    iterate: Iterate = None
    resources: Annotated[ResourcesForm | None, Meta(description="What it needs; one core by default.")] = None
    dependencies: Annotated[DependenciesForm | None, Meta(description="What it waits for.")] = None
    remote: Annotated[
        RemoteForm | None, Meta(description="The remote host it runs on; without it, the nodes of the run.")
    ] = None
    retry: Retry = None
    priority: Priority = None
    hold: Hold = None
    attributes: Annotated[dict[str, Any] | None, Meta(description="Anything of the user's own; kept and reported.")] = (
        None
    )


class SimpleForm(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A job in the simple form: all keys at the top level."""

    UNKNOWN_KEY_HINTS: ClassVar[dict[str, str]] = {
        "execution": "that is the standard form: in a program, use add_std",
        "resources": "in the simple form its keys, such as numCores, are top-level keys",
        "dependencies": 'in the simple form it is "after"',
        "remote": "in the simple form its keys, such as host and inputs, are top-level keys",
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
    output: Output = None
    modules: Modules = None
    venv: Venv = None
    model: Model = None
    model_opts: ModelOpts = None
    num_cores: NumCores = field(default=None, name="numCores")
    num_nodes: NumNodes = field(default=None, name="numNodes")
    node_crs: NodeCrs = field(default=None, name="nodeCrs")
    mem: Mem = None
    named: Named = None
    wt: WallTime = None
    iteration: Iteration = None
    iterate: Iterate = None
    after: After = None
    afterany: AfterAny = None
    afternotok: AfterNotOk = None
    afterstart: AfterStart = None
    host: Annotated[Host | None, Meta(description="The remote host to run on, or * for any host with room.")] = None
    owner: Owner = None
    directives: Directives = None
    inputs: Inputs = None
    outputs: Outputs = None
    retry: Retry = None
    priority: Priority = None
    hold: Hold = None
