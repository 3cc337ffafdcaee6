"""Options of `sbatch`: made from an allocation spec, read from a user, written into a batch script."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.cluster.spec import AllocationSpec
from qcg.pilotjob.cluster.time_limits import time_limit

ONCE = ("--begin", "-b", "--deadline", "--dependency", "-d", "--hold", "-H")
"""Options about when a job may start: they hold for one submission, and not for later ones of the same run."""

_SAFE = re.compile(r"[\w@%+=:,./\[\]*-]+", re.ASCII)
_REFUSED = {
    "--array": "it would run the same jobs several times at once",
    "-a": "it would run the same jobs several times at once",
    "--wrap": "the script is written already",
    "--chdir": "give --wd, which is also where the jobs run",
    "-D": "give --wd, which is also where the jobs run",
}

VARIABLES = {
    "--account": "SBATCH_ACCOUNT",
    "--exclusive": "SBATCH_EXCLUSIVE",
    "--gpus-per-node": "SBATCH_GPUS_PER_NODE",
    "--gres": "SBATCH_GRES",
    "--job-name": "SBATCH_JOB_NAME",
    "--mem": "SBATCH_MEM_PER_NODE",
    "--no-kill": "SBATCH_NO_KILL",
    "--output": "SBATCH_OUTPUT",
    "--partition": "SBATCH_PARTITION",
    "--qos": "SBATCH_QOS",
    "--requeue": "SBATCH_NO_REQUEUE",
    "--time": "SBATCH_TIMELIMIT",
}
"""Variables that `sbatch` prefers to the options in a script, although the user asked for the option."""


def options_of(spec: AllocationSpec, name: str, wd: PurePath) -> list[str]:
    """The options that ask for such an allocation, as `--name=value`."""
    options = [f"--job-name={spec.job_name or name}", f"--chdir={wd}", f"--nodes={spec.nodes}"]
    if spec.cores:
        options.append(f"--ntasks-per-node={spec.cores}")
    divided = has_option(spec.extra_options, "--ntasks", "-n", "--cpus-per-task", "-c", "--exclusive")
    whole_nodes = not spec.cores and not divided
    if spec.exclusive or whole_nodes:
        options.append("--exclusive")
    memory = spec.mem
    if memory is None and whole_nodes and not has_option(spec.extra_options, "--mem-per-cpu", "--mem-per-gpu"):
        memory = "0"
    asked = {
        "--mem": memory,
        "--time": slurm_time(spec.limit) if spec.limit is not None else None,
        "--partition": spec.partition,
        "--account": spec.account,
        "--qos": spec.qos,
        "--gpus-per-node": spec.gpus_per_node,
        "--gres": spec.gres,
        "--output": spec.output or f"{str(wd).replace('%', '%%')}/slurm-%j.out",
    }
    options += [f"{name}={value}" for name, value in asked.items() if value is not None]
    # --no-kill: a node that dies ends its own jobs, and the run continues on the other nodes. --requeue: when Slurm
    # queues the job again, nothing is lost, because the script continues the run.
    return [*options, "--no-kill", "--requeue", *spec.extra_options]


def slurm_time(given: str) -> str:
    """A time limit in the form of `sbatch --time`: `1-02:03:00`."""
    minutes = time_limit(given)
    if minutes is None:
        return "UNLIMITED"
    days, rest = divmod(minutes, 24 * 60)
    return f"{days}-{rest // 60:02d}:{rest % 60:02d}:00" if days else f"{rest // 60:02d}:{rest % 60:02d}:00"


def further_options(words: Iterable[str]) -> list[str]:
    """Options as a user gave them, `--name value` in two words or one, as `--name=value`."""
    found: list[str] = []
    complete = True
    for word in words:
        if word.startswith("-") and word != "-":
            _check(word)
            found.append(word)
            complete = "=" in word or (not word.startswith("--") and len(word) > 2)
        elif complete:
            raise BatchError(f"{word!r} is no option of sbatch: options begin with '-'")
        else:
            found[-1] += ("=" if found[-1].startswith("--") else "") + word
            complete = True
    return found


def options_kept(earlier: Sequence[str], further: Sequence[str]) -> list[str]:
    """The further options of an earlier submission that are neither replaced by `further` nor for one start only."""
    replaced = [*ONCE, *map(option_name, further)]
    return [option for option in earlier if option_name(option) not in replaced]


def has_option(options: Iterable[str], *names: str) -> bool:
    """Whether one of these options is given, with or without a value."""
    return any(option_name(option) in names for option in options)


def option_name(option: str) -> str:
    """`--nodes` of `--nodes=4`, `-N` of `-N4`."""
    return option.partition("=")[0] if option.startswith("--") else option[:2]


def directives(options: Sequence[str]) -> list[str]:
    """The `#SBATCH` lines of a batch script."""
    return [f"#SBATCH {_quoted(option)}" for option in options]


def environment(environ: Mapping[str, str], options: Iterable[str]) -> dict[str, str]:
    """The environment for commands of Slurm: the options of the script count, and nothing of an allocation that this
    process runs in."""
    overruled = {VARIABLES.get(option.partition("=")[0]) for option in options}
    return {
        name: value
        for name, value in environ.items()
        if name not in overruled and (not name.startswith("SLURM") or name == "SLURM_CONF")
    }


def _check(word: str) -> None:
    name = option_name(word)
    if name in _REFUSED:
        raise BatchError(f"{name} makes no sense for a run: {_REFUSED[name]}")


def _quoted(option: str) -> str:
    """The option as `sbatch` reads a line of a script: in double quotes, with backslashes before double quotes and
    backslashes."""
    if "\n" in option or "\0" in option:
        raise BatchError(f"{option!r}: a batch script cannot have options of several lines")
    name, equals, value = option.partition("=")
    if _SAFE.fullmatch(option):
        return option
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}{equals}"{escaped}"'
