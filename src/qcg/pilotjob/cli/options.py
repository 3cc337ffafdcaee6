"""Options that `qcg-pm run` and `qcg-pm-service` share, and how they become the options of a run."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from qcg.pilotjob.cli.console import echo_err
from qcg.pilotjob.cli.legacy_options import OLD_LEVEL, accept_legacy_options, log_level
from qcg.pilotjob.cli.param_types import NodeSource, Number, Whole
from qcg.pilotjob.cli.shell_completion import run_directories
from qcg.pilotjob.cluster.local.virtual_nodes import MOST_CORES
from qcg.pilotjob.cluster.registry import schema_names, start_methods
from qcg.pilotjob.common.logs import LEVELS
from qcg.pilotjob.common.options import Options, Resumption, UsageError
from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.walltime import parse_wall_time

Command = Callable[..., Any]

CORES_HELP = "One virtual node with N cores instead of this machine; the same as --nodes N."
NODES_HELP = (
    "Virtual nodes instead of this machine: 2x4 is two nodes with four cores each, 4 is one node with four cores (as"
    " --cores 4); also n1:2, 4,2,2 or n1:4,n2:4. n1:8,fpga=2 gives a node resources of its own."
)

NAMED_HELP = (
    'A resource of your own, which jobs ask for in "named": license=4 are 4 in the whole run, fpga=2/node are 2 on each'
    " of its nodes. Can be given several times."
)


def check_named(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse values of `--resource` that are no counters."""
    if given:
        from qcg.pilotjob.description.counters import parse_options  # here: few commands need it

        try:
            parse_options(given)
        except DescriptionError as error:
            raise click.BadParameter(str(error)) from None
    return given


_SHARED = [
    click.option(
        "--wd",
        type=click.Path(readable=False),
        default=".",
        show_default=True,
        help="Working directory of the jobs and of the run's files; created if it does not exist.",
    ),
    click.option("--cores", type=Whole(1, MOST_CORES), metavar="N", help=CORES_HELP),
    click.option("--nodes", help=NODES_HELP),
    click.option(
        "--resources",
        type=NodeSource(),
        default="auto",
        show_default=True,
        help="Where nodes come from.",
    ),
    click.option("--resource", "named", multiple=True, metavar="NAME=N", callback=check_named, help=NAMED_HELP),
    click.option(
        "--hosts",
        type=click.Path(readable=False),
        metavar="FILE",
        help="Remote hosts, in addition to ~/.config/qcg-pm/hosts.toml: see `qcg-pm hosts`.",
    ),
    click.option(
        "--envschema",
        default="auto",
        show_default=True,
        help=f"Environment of jobs: auto, common or {' or '.join(schema_names())} (also the variables that the batch"
        " system sets).",
    ),
    click.option(
        "--report-format",
        type=click.Choice(["text", "json", "none"]),
        default="text",
        show_default=True,
        help="Form of the report.",
    ),
    click.option(
        "--report-file",
        default="jobs.report",
        show_default=True,
        help="File name of the report, relative to the run directory.",
    ),
    click.option(
        "--log",
        type=click.Choice([*LEVELS, OLD_LEVEL], case_sensitive=False),
        metavar=f"[{'|'.join(LEVELS)}]",
        callback=log_level,
        default="info",
        show_default=True,
        help="Log level of service.log.",
    ),
    click.option("--id", "run_id", help="Name of the run; otherwise one is made up."),
    click.option("--system-core", is_flag=True, help="Keep the first core of the first node for the manager."),
    click.option(
        "--share-cores", is_flag=True, help="Use all cores of this machine, also cores that your other runs use."
    ),
    click.option("--no-bind", is_flag=True, help="Bind no job to cores: the operating system places them."),
    click.option(
        "--on-lost",
        type=click.Choice(["fail", "rerun"]),
        default="fail",
        show_default=True,
        help="State of jobs whose host died while they ran: FAILED, or queued again.",
    ),
    click.option(
        "--retry",
        metavar="NUMBER|JSON",
        callback=lambda context, parameter, given: check_retry(given),
        help='Start jobs again that do not succeed, unless their description has a "retry": how often, or an object as'
        " in request files.",
    ),
    click.option(
        "--enforce-memory",
        is_flag=True,
        help="End jobs that use more memory on a node than they ask for with nodeCrs, as it is with mem.",
    ),
    click.option(
        "--drain-after",
        type=Whole(min=0),
        metavar="N",
        default=5,
        show_default=True,
        help="Start nothing more on a node after N jobs in a row that failed there and then succeeded on another node;"
        " 0: never.",
    ),
    click.option(
        "--stop-after",
        type=Whole(min=0),
        metavar="N",
        default=0,
        help="Start nothing more after N jobs or iterations have failed: running jobs continue, and --resume continues"
        " with waiting ones. 0, the default: never.",
    ),
    click.option(
        "--notify",
        multiple=True,
        metavar="COMMAND",
        callback=lambda context, parameter, given: tuple(_notify_command(command) for command in given),
        help="Run this command at the end of the run, at its first failure and when it stalls. It gets a JSON object on"
        " its standard input, and is run without a shell. Can be given several times.",
    ),
    click.option(
        "--notify-on",
        metavar="EVENTS",
        callback=lambda context, parameter, given: _notify_on(given),
        default=Options().notify_on,
        show_default=True,
        help="When to run the commands of --notify: some of end, first-failure, failures=N and stall=TIME.",
    ),
    click.option(
        "--metrics-file",
        type=click.Path(readable=False),
        metavar="FILE",
        callback=lambda context, parameter, given: _metrics_file(given),
        help="Write metrics of the run to FILE every 15 seconds and at the end, for Prometheus and its textfile"
        " collector.",
    ),
    click.option(
        "--keep-output",
        is_flag=True,
        help="Also keep the output of jobs that succeed, where their description names no file for it. The output of"
        " attempts that are queued again is not kept.",
    ),
    click.option(
        "--stream-output",
        is_flag=True,
        help="Collect the output of jobs whose description names no file for it in one file per node; read it with"
        " qcg-pm logs.",
    ),
    click.option(
        "--patience",
        type=Number(min=0),
        default=600.0,
        show_default=True,
        help="Seconds that a job may be overtaken by later ones that fit; 0: strictly in order.",
    ),
    click.option(
        "--agent-linger",
        "linger",
        type=Number(min=0),
        default=600.0,
        show_default=True,
        help="Seconds that an agent without a manager waits after its last job.",
    ),
    click.option(
        "--time-limit",
        metavar="TIME",
        callback=lambda context, parameter, given: None if given is None else seconds_of(given),
        help="End after this long (1h30m, 90s), even when jobs are left: --resume continues with them.",
    ),
    click.option(
        "--grace",
        type=Number(min=0),
        metavar="SECONDS",
        help="Start no job in so many seconds before the end of the allocation, or of --time-limit. [default: 60, or"
        " a tenth of a shorter time]",
    ),
    click.option(
        "--grace-signal",
        metavar="NAME",
        callback=lambda context, parameter, given: _signal_name(given),
        help="Then give running jobs this signal, such as USR1.",
    ),
    click.option("--pretend", is_flag=True, hidden=True),
    click.option(
        "--node-timeout",
        type=Number(min=20),
        default=25.0,
        show_default=True,
        help="Seconds of silence after which a node of an allocation counts as lost.",
    ),
    click.option(
        "--nl-init-timeout",
        type=Number(min=1),
        default=600.0,
        show_default=True,
        help="Seconds to wait for the agents of an allocation's nodes; then jobs start without the missing agents.",
    ),
    click.option(
        "--nl-ready-threshold",
        "--nl-ready-treshold",
        type=Number(0, 1),
        default=1.0,
        show_default=True,
        help="The part of these agents with which jobs are started at once.",
    ),
    click.option(
        "--nl-start-method",
        type=click.Choice(start_methods()),
        default="batch",
        show_default=True,
        metavar="[batch|ssh]",
        help="Start these agents with the batch system, or with ssh.",
    ),
    click.option(
        "first_node",
        "--limit-nodes-range-begin",
        "--slurm-limit-nodes-range-begin",
        type=Whole(min=0),
        metavar="B",
        help="Use the nodes of the allocation from the B-th on, counted from 0.",
    ),
    click.option(
        "end_node",
        "--limit-nodes-range-end",
        "--slurm-limit-nodes-range-end",
        type=Whole(min=1),
        metavar="E",
        help="Use the nodes of the allocation up to the E-th, which is not included.",
    ),
    click.option(
        "--resume",
        metavar="PATH",
        shell_complete=run_directories,
        help="Continue this run: its run directory, or the working directory.",
    ),
]


def shared(command: Command) -> Command:
    for option in reversed(_SHARED):
        command = option(command)
    return accept_legacy_options(command)


def resolve_cores(given: dict[str, Any]) -> None:
    """Convert `--cores` into `nodes`."""
    if given["cores"] is None:
        return
    if given["nodes"] is not None:
        raise click.UsageError(
            "give --cores or --nodes, not both: --cores 4 is one virtual node with four cores, --nodes 2x4 two of them"
        )
    given["nodes"] = str(given["cores"])


def build(context: click.Context, given: dict[str, Any], **fixed: Any) -> tuple[Options, Resumption | None]:
    """The options of a new run, or the run to resume with the options that change."""
    from qcg.pilotjob.runs.discovery import requeued_run, run_to_resume
    from qcg.pilotjob.runs.guard import wait_for_manager_end  # here: most commands need the options alone

    values = {**given, **fixed}
    values.pop("cores")
    resume = values.pop("resume")
    if not resume and not values["notify"] and values["notify_on"] != Options().notify_on:
        raise click.UsageError("--notify-on says when to run commands: give them with --notify COMMAND")
    rerun = values.pop("rerun", ())
    replacements = values.pop("replacements", ())
    release = values.pop("release", False)
    _check_schema(values["envschema"])
    if resume is None:
        _check_part(values)
    if values.get("file_path") == "-":
        raise UsageError(
            "requests to run are not read from standard input, because --resume may need them again; write them to a"
            " file, and give its name"
        )
    if "file_path" in values:
        values["file_path"] = os.path.abspath(values["file_path"])
    if values["hosts"] is not None:
        values["hosts"] = os.path.abspath(values["hosts"])
    values["rerun_lost"] = values.pop("on_lost") == "rerun"
    values["id"] = values.pop("run_id")
    if resume is None:
        path = values.get("file_path")
        begun = requeued_run(Path(values["wd"]), path, values["id"], os.environ) if path else None
        if begun is None:
            return Options(**values), None
        echo_err(f"The batch system has queued this job again: continuing with {begun}, which it had begun.")
        wait_for_manager_end(begun)
        return Options(), Resumption(begun, {})
    if values["id"] is not None:
        raise UsageError("--id is for a new run; one that is resumed keeps its name, so leave out --id or --resume")
    run_dir = run_to_resume(Path(resume)).resolve()
    if _was_given(context, "wd") and Path(values["wd"]).resolve() != run_dir.parent:
        raise UsageError(f"--wd is for a new run; one that is resumed stays where it was, in {run_dir.parent}")
    again = {_FIELDS.get(name, name) for name in given if _was_given(context, name)} | fixed.keys()
    changes = {name: value for name, value in values.items() if name in again and name not in ("wd", "id")}
    anew = "file_path" in fixed or bool(fixed.get("net") and not fixed.get("wait"))
    return Options(), Resumption(run_dir, changes, anew, rerun, replacements, release)


_FIELDS = {"on_lost": "rerun_lost", "run_id": "id", "cores": "nodes"}
"""Parameters that are called otherwise in `Options`."""


def _was_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def seconds_of(given: str, what: str = "wall time") -> float:
    """The seconds of a time such as `1h30m`. `what`: what messages call it."""
    try:
        return parse_wall_time(given)
    except DescriptionError as error:
        raise click.BadParameter(str(error).replace("wall time", what)) from None


def check_retry(given: str | None) -> str | None:
    """A retry policy as JSON, if it is valid."""
    if given is not None:
        from qcg.pilotjob.description.retry import parse_policy  # here: few commands need it

        try:
            parse_policy(given)
        except DescriptionError as error:
            raise click.BadParameter(str(error)) from None
    return given


def _notify_command(given: str) -> str:
    """The command, with the absolute path of a program that is given by its path."""
    try:
        program, *arguments = shlex.split(given) or [""]
    except ValueError as error:
        raise click.BadParameter(f"{given!r} is no command: {str(error).lower()}") from None
    if "/" in program and os.path.isfile(program) and not os.access(program, os.X_OK):
        raise click.BadParameter(f"{program} is not executable (chmod +x would make it so)")
    if shutil.which(program) is None:
        raise click.BadParameter(
            f"there is no program {program!r} that can be run; commands are run without a shell: sh -c '...' starts one"
        )
    return shlex.join([os.path.abspath(program) if "/" in program else program, *arguments])


def _metrics_file(given: str | None) -> str | None:
    """The absolute path of a file that can be replaced in its directory."""
    if given is None:
        return None
    path = os.path.abspath(given)
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        raise click.BadParameter(f"there is no directory {directory!r} for the file {os.path.basename(path)!r}")
    if os.path.lexists(path) and not os.path.isfile(path):
        raise click.BadParameter(f"{path!r} is no regular file")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise click.BadParameter(f"no file can be written in the directory {directory!r}")
    return path


def _notify_on(given: str) -> str:
    if given != Options().notify_on:
        from qcg.pilotjob.manager.notification_rules import parse_notify_on  # here: few commands need it

        try:
            parse_notify_on(given)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return given


def _signal_name(given: str | None) -> str | None:
    if given is None:
        return None
    name = given.upper() if given.upper().startswith("SIG") else f"SIG{given.upper()}"
    if name not in signal.Signals.__members__ or name in ("SIGKILL", "SIGSTOP"):
        raise click.BadParameter(f"{given!r} is no signal that a job can catch; give one such as USR1 or TERM")
    return name


def _check_schema(schema: str) -> None:
    for name in schema.split(","):
        if name.strip() not in ("auto", "common", *schema_names()):
            known = " or ".join(["auto, common", *schema_names()])
            raise UsageError(f"--envschema {name.strip()!r} is not known; use {known}")


def _check_part(values: dict[str, Any]) -> None:
    part = [word for word, name in (("begin", "first_node"), ("end", "end_node")) if values[name] is not None]
    if part and (values["nodes"] is not None or values["resources"] == "local"):
        other = "--nodes" if values["nodes"] is not None else "--resources local"
        raise UsageError(
            f"--limit-nodes-range-{part[0]} chooses nodes of an allocation, and {other} uses this machine:"
            " leave out one"
        )
