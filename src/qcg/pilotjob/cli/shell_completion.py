"""Shell completion of job names, from the registry of a run, and of run directories."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qcg.pilotjob.common.environment import RUN_DIRECTORY
from qcg.pilotjob.host.safe_open import check_own_directory
from qcg.pilotjob.runs.rundir import PREFIX

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

MOST_NAMES = 1000
"""Most names that are offered."""
LARGEST_REGISTRY = 64 << 20
"""Bytes. The registry of a running manager is copied to be read, and completion must be fast."""

Completion = Callable[[click.Context, click.Parameter, str], list[str]]


def job_names(*, final: bool | None = None) -> Completion:
    """Completion of job names; `final`: only of jobs that have ended, or have not."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        taken = context.params.get(parameter.name or "") or ()
        names = _names_in(_directory_of(context), incomplete, final)
        # The shell would split any other name into words, or run a part of it.
        return [name for name in names if name not in taken and shlex.quote(name) == name]

    return complete


def host_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Completion of remote hosts. Empty when their configuration is wrong, which the command itself reports."""
    # Imported here: other completions need no hosts.
    from qcg.pilotjob.executors.ssh.config import HostsError, load_hosts

    at: click.Context | None = context
    file = None
    while file is None and at is not None:
        file = at.params.get("hosts_file")
        at = at.parent
    try:
        names = sorted(load_hosts(file, os.environ))
    except HostsError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def run_directories(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completion of run directories, which the shell itself hides, or else of any directory."""
    from click.shell_completion import CompletionItem  # here: only shells need it

    head, _, begun = incomplete.rpartition("/")
    if not PREFIX.startswith(begun) and not begun.startswith(PREFIX):
        return [CompletionItem(incomplete, type="dir")]
    directory = Path(f"{head}/" if "/" in incomplete else ".")
    try:
        names = sorted(name for name in os.listdir(directory) if name.startswith(PREFIX))
    except OSError:
        names = []
    found = [name for name in names if name.startswith(begun) and _is_offered(directory / name)]
    if not found:
        return [CompletionItem(incomplete, type="dir")]
    return [CompletionItem(f"{head}/{name}" if "/" in incomplete else name) for name in found]


def _is_offered(run_dir: Path) -> bool:
    """Whether this is the caller's own run, and its name is one word: other users choose any names."""
    try:
        check_own_directory(run_dir)
    except OSError:
        return False
    return shlex.quote(run_dir.name) == run_dir.name


def _directory_of(context: click.Context) -> Path:
    """The directory of the run: `--path` of the command, `--path` before the command, or the environment."""
    at: click.Context | None = context
    while at is not None:
        if at.params.get("path"):
            return Path(str(at.params["path"]))
        at = at.parent
    return Path(os.environ.get(RUN_DIRECTORY) or ".")


def _names_in(directory: Path, incomplete: str, final: bool | None) -> list[str]:
    """Names of jobs in the live run of a directory, or the newest one with jobs. Empty when nothing can be read."""
    # Imported here: most completions need no registry.
    from qcg.pilotjob.journal import queries
    from qcg.pilotjob.journal.errors import JournalError
    from qcg.pilotjob.journal.journal import FILE_NAME
    from qcg.pilotjob.journal.snapshot import snapshot
    from qcg.pilotjob.runs.discovery import RunsError, newest_with_jobs, own_runs
    from qcg.pilotjob.runs.manager_process import has_manager

    try:
        runs = own_runs(directory)
        if not runs:
            return []
        registry = (next(filter(has_manager, runs), None) or newest_with_jobs(runs)) / FILE_NAME
        if registry.stat().st_size > LARGEST_REGISTRY:
            return []
        with snapshot(registry) as connection:
            return list(queries.names_beginning_with(connection, incomplete, final, MOST_NAMES))
    except (RunsError, JournalError, OSError):
        return []
