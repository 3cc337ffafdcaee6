"""`qcg-pm logs`: show or follow the output of jobs."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.console import echo, echo_err, escape_unencodable
from qcg.pilotjob.cli.errors import Denial
from qcg.pilotjob.cli.manager_lookup import current_run_dir, expand_names, on_manager_or_registry, with_similar_name
from qcg.pilotjob.cli.output_files import PAUSE, Follower, NoOutput, is_saved_path, path_of, saved_path, show_end
from qcg.pilotjob.cli.param_types import Whole
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.cli.stream_logs import (
    StreamFollower,
    check_attempt,
    export,
    file_name,
    has_content,
    is_earlier,
    is_streamed,
    show_stream,
)
from qcg.pilotjob.common.exit_codes import FAILURE
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.host.records import STREAMS
from qcg.pilotjob.runs.output_streams import OutputStreams

if TYPE_CHECKING:
    from qcg.pilotjob.api.queries import Queries


FILES = {"stdout": "job.out", "stderr": "job.err"}
"""Names of output files on remote hosts."""


@click.command("logs")
@click.argument("names", nargs=-1, shell_complete=job_names())
@click.option("-f", "--follow", is_flag=True, help="Show new output until the job has ended.")
@click.option("-e", "--stderr", is_flag=True, help="Show the standard error.")
@click.option("-n", "--lines", type=Whole(min=0), metavar="N", help="Only the last N lines.")
@click.option(
    "--attempt", type=Whole(min=1), metavar="N", help="Of this attempt instead of the last one, where it was saved."
)
@click.option(
    "--export",
    "target",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Write output that was collected in streams to files NAME.out and NAME.err in DIR; of all jobs without NAMES.",
)
@click.option(
    "--all-attempts",
    is_flag=True,
    help="With --export: also write the output of earlier attempts, to NAME~1.out and so on.",
)
@click.option("--raw", is_flag=True, help="Show every byte unchanged, also on a terminal.")
@on_manager_or_registry
def command(
    manager: Queries,
    names: tuple[str, ...],
    follow: bool,
    stderr: bool,
    lines: int | None,
    attempt: int | None,
    target: str | None,
    all_attempts: bool,
    raw: bool,
) -> int:
    """Show the output of a job: the file `stdout`, or `stderr`, of its description, or its part of an output stream.

    Without either, show the saved output: of a job that failed, or of any job of a run with --keep-output. The output
    of a job on a remote host is fetched from there, unless it was retrieved.

    NAMES may hold patterns ('sim*') and iterations (job:3, job:3-7, 'job:*').

    On a terminal, control characters other than colours are escaped, unless --raw is given. Files and pipes get every
    byte unchanged.
    """
    escape_unencodable()
    if target is not None:
        if follow or lines is not None:
            raise click.UsageError("--export writes whole files; leave out --follow and --lines")
        if all_attempts and attempt is not None:
            raise click.UsageError("give --attempt or --all-attempts, not both")
        return _export(manager, names, target, attempt, only_stderr=stderr, earlier=all_attempts)
    if all_attempts:
        raise click.UsageError("--all-attempts goes with --export; --attempt shows one attempt")
    if not names:
        raise click.UsageError("name a job, or export all output with --export")
    stream = "stderr" if stderr else "stdout"
    wanted = expand_names(manager, names)
    if follow:
        if len(wanted) > 1:
            raise click.UsageError(f"only one job can be followed, and {' '.join(names)} means {len(wanted)}")
        _follow(manager, wanted[0], stream, attempt, lines, raw=raw)
        return 0
    several = len(wanted) > 1
    code, without = 0, 0
    why_none: Denial | None = None
    for name, entry in manager.info(wanted)["jobs"].items():
        try:
            if _show(manager, name, entry, stream, attempt, lines, raw=raw, several=several):
                continue
            if not several:
                _print_no_output(name, entry, stream)
            without += 1
        except Denial as problem:
            if several and isinstance(problem, NoOutput):
                without += 1
                why_none = why_none or problem
                continue
            echo_err(printable(f"Error: {with_similar_name(manager, problem.message)}"))
            code = FAILURE
    if several and without:
        echo_err(f"{without} of {len(wanted)} have no output on {stream}")
        if without == len(wanted) and why_none is not None:
            echo_err(printable(f"Error: {why_none.message}"))
            code = FAILURE
    return code


def _show(
    manager: Queries,
    name: str,
    entry: dict[str, Any],
    stream: str,
    attempt: int | None,
    lines: int | None,
    *,
    raw: bool,
    several: bool,
) -> bool:
    """Show the output of a job; with its name when it is one of several. Returns False when there is none."""

    def heading(source: str) -> str:
        return printable(f"==> {name}: {source} <==") if several else ""

    if is_streamed(entry):
        return show_stream(name, entry, stream, attempt, lines, raw=raw, heading=heading(stream))
    if is_earlier(name, entry, attempt):
        path = _path_of_earlier(manager, name, entry, stream, attempt)
        return show_end(path, lines, raw=raw, heading=heading(path))
    if _is_on_host(entry, stream):
        if several:
            echo(heading(f"{FILES[stream]} on its host"))
        _show_from_host(manager, name, entry, stream, mode="cat", lines=lines, raw=raw)
        return True
    path = path_of(name, entry, stream)
    return show_end(path, lines, raw=raw, heading=heading(path))


def _follow(manager: Queries, name: str, stream: str, attempt: int | None, lines: int | None, *, raw: bool) -> None:
    follower = Follower(manager, name, current_run_dir())
    entry = manager.info([name])["jobs"][name]
    while not is_streamed(entry) and _may_be_streamed(entry) and not follower.is_over():
        time.sleep(PAUSE)
        entry = follower.info()
    if is_streamed(entry):
        check_attempt(name, entry, attempt)
        with OutputStreams(entry["data"]["runtime"]["stream"]) as streams:
            shown = StreamFollower(follower, name, streams).follow(stream, attempt, lines, raw=raw)
    else:
        if is_earlier(name, entry, attempt):
            # It has ended.
            _show(manager, name, entry, stream, attempt, lines, raw=raw, several=False)
            return
        if _is_on_host(entry, stream):
            _show_from_host(manager, name, entry, stream, mode="tail", lines=lines, raw=raw)
            return
        shown = follower.follow(stream, lines, raw=raw)
    if not shown:
        _print_no_output(name, follower.info(), stream)


def _may_be_streamed(entry: dict[str, Any]) -> bool:
    """Whether a job was not started yet, so that it is not known where its output goes."""
    info = entry.get("data", {})
    return bool(info) and "runtime" not in info and "iterations" not in info and "remote" not in info


def _path_of_earlier(manager: Queries, name: str, entry: dict[str, Any], stream: str, attempt: int | None) -> str:
    """The file with the saved output of an attempt before the last one. Raises Denial when there is none."""
    if manager.run_dir is None:
        raise Denial("the run directory of this manager is not known here; give it with --path")
    ordinal = check_attempt(name, entry, attempt)
    path = saved_path(manager.run_dir, file_name(name, ordinal), stream)
    if os.path.lexists(path):
        return path
    sentence = f"nothing of the {stream} of attempt {ordinal} of job {name!r} was saved"
    if "remote" in entry["data"]:
        raise Denial(f"{sentence}: only the output of the last attempt is fetched from its host")
    current = entry["data"].get("runtime", {}).get(stream)
    if current is not None and not is_saved_path(current):
        raise Denial(
            f"{sentence}: its description names a file, {current} for the last attempt; files of earlier attempts are"
            " kept where their paths hold ${attempt}"
        )
    raise Denial(f"{sentence}: it wrote nothing, or it was not kept, as that of attempts whose node was lost")


def _export(
    manager: Queries,
    names: tuple[str, ...],
    target: str,
    attempt: int | None,
    *,
    only_stderr: bool,
    earlier: bool,
) -> int:
    if manager.run_dir is None:
        raise Denial("the run directory of this manager is not known here; give it with --path")
    wanted = expand_names(manager, names) if names else None
    kinds = ("stderr",) if only_stderr else ("stdout", "stderr")
    attempts, files, damaged = export(manager.run_dir / STREAMS, Path(target), wanted, kinds, attempt, earlier=earlier)
    if not attempts:
        with suppress(OSError):
            os.rmdir(target)
        raise Denial(
            'nothing to export: none of these jobs has output in a stream, which jobs with "output": "stream", and all'
            " jobs of a run with --stream-output, have; qcg-pm logs NAME shows the output in files"
        )
    echo(f"{pluralize(files, 'file')} in {printable(target)}, with the output of {pluralize(attempts, 'attempt')}")
    if damaged:
        echo_err(f"{pluralize(damaged, 'piece')} of output could not be read: the files were damaged by a crash")
    return 0


def _is_on_host(entry: dict[str, Any], stream: str) -> bool:
    """Whether the output of a job is on a remote host, and was not retrieved."""
    info = entry.get("data", {})
    return "remote" in info and "iterations" not in info and not os.path.exists(info.get("runtime", {}).get(stream, ""))


def _show_from_host(
    manager: Queries, name: str, entry: dict[str, Any], stream: str, *, mode: str, lines: int | None, raw: bool
) -> None:
    from qcg.pilotjob.cli.remote_logs import RemoteLogs

    if "runtime" not in entry["data"]:
        raise Denial(f"job {name!r} is {entry['data']['status']} and has written nothing; see: qcg-pm why {name}")
    if manager.run_dir is None:
        raise Denial("the run directory of this manager is not known here; give it with --path")
    RemoteLogs(manager.run_dir).show(name, entry, mode, FILES[stream], lines=lines, raw=raw)


def _print_no_output(name: str, entry: dict[str, Any], stream: str) -> None:
    """Print that the output is empty, and where there may be more, by the job's entry of the `jobInfo` reply."""
    info = entry.get("data", {})  # no data when the job was removed meanwhile
    if stream == "stdout" and (has_content(entry, "stderr") if is_streamed(entry) else _has_content(info, "stderr")):
        further = f"; see: qcg-pm logs --stderr {name}"
    elif info.get("status") == "FAILED":
        further = f"; see: qcg-pm why {name}"
    else:
        further = ""
    echo_err(printable(f"{name} has no output on its {stream}{further}"))


def _has_content(info: dict[str, Any], stream: str) -> bool:
    """Whether a job has written to a stream."""
    path = info.get("runtime", {}).get(stream)
    try:
        return path is not None and os.stat(path).st_size > 0
    except OSError:
        return False
