"""Run a service inside a command: bad input ends in a sentence and exit code 2."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from qcg.pilotjob.cli.console import echo_err
from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.cli.interrupt_notice import InterruptNotice
from qcg.pilotjob.cli.late_modules import load_late_modules
from qcg.pilotjob.cli.legacy_options import print_ignored_options
from qcg.pilotjob.cli.options import build
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.registry import system_in_use
from qcg.pilotjob.common.gc_tuning import collect_seldom
from qcg.pilotjob.common.options import Options, Resumption, UsageError
from qcg.pilotjob.executors.prestart import PrestartedAgent
from qcg.pilotjob.interfaces.factory import InterfaceFactory
from qcg.pilotjob.interfaces.file import FileError, how_far
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.manager.run_result import RunResult
from qcg.pilotjob.manager.service import Service
from qcg.pilotjob.report.errors import ReportError
from qcg.pilotjob.runs.discovery import find_runs, find_unfinished_runs
from qcg.pilotjob.runs.machine_check import check_machine
from qcg.pilotjob.runs.messages import running_jobs_notice


def run_service(
    context: click.Context,
    given: dict[str, Any],
    fixed: dict[str, Any],
    on_ready: Callable[[Manager], None],
    on_end: Callable[[], None] = lambda: None,
    prestarted: PrestartedAgent | None = None,
    *,
    followed: bool = False,
) -> RunResult:
    """Run a service to its end. `followed`: another allocation continues with unfinished jobs."""
    print_ignored_options(context)
    try:
        check_machine()
        check_single_task(given["resources"], os.environ)
        options, resumption = build(context, given, **fixed)
        notes = [*_new_directory(options, resumption), *_other_runs(options, resumption, given["resume"])]

        notice = InterruptNotice()

        def ready(manager: Manager) -> None:
            # Not before: when it cannot begin, that error is the one to report.
            for note in [*notes, *repeated_file_notices(resumption, manager.engine.journal), *manager.start_notices]:
                echo_err(note)
            # From here until its end, the service itself takes care of Ctrl-C.
            notice.run_began(manager.engine.journal.path.parent)
            on_ready(manager)

        with notice:
            service = Service(
                options,
                resumption,
                interfaces=InterfaceFactory(),
                prestarted=prestarted,
                on_ready=ready,
                followed=followed,
            )
            return asyncio.run(_run(service, on_end))
    except (UsageError, ClusterError, FileError, JournalError, ReportError) as error:
        raise Refusal(str(error)) from None


def check_single_task(resources: str, environ: Mapping[str, str]) -> None:
    """Refuse a manager that the batch system starts as one of several tasks, each of which would run all jobs."""
    system = system_in_use(environ)
    if resources != "local" and system is not None:
        system.check_started_once(environ)


def _new_directory(options: Options, resumption: Resumption | None) -> list[str]:
    """A notice about a working directory that does not exist yet, which may be a typing error."""
    wd = Path(options.wd)
    return [f"Created {wd.absolute()}, the working directory."] if resumption is None and not wd.exists() else []


def _other_runs(options: Options, resumption: Resumption | None, resume: str | None) -> list[str]:
    """Notices about other runs with unfinished jobs in the same directory, and about the run that is resumed when it is
    not the newest one."""
    mine = None if resumption is None else resumption.run_dir
    notes = []
    if mine is not None and resume is not None:
        found = find_runs(Path(resume))
        notes += found.notices()
        if found.own[0].resolve() != mine:
            notes.append(f"Resuming {mine}, the newest run with unfinished jobs.")
    left = find_unfinished_runs(Path(options.wd) if mine is None else mine.parent, besides=mine)
    running = {run: notice for run in left if (notice := running_jobs_notice(run))}
    notes += [f"Note: {notice}." for notice in running.values()]
    if idle := [run for run in left if run not in running]:
        others = f" So were {', '.join(str(other.run_dir) for other in idle[1:])}." if idle[1:] else ""
        notes.append(f"Note: {idle[0]}.{others}")
    return notes


def repeated_file_notices(resumption: Resumption | None, journal: Journal) -> list[str]:
    """A notice when a resumed run gets its own request file again: its jobs do not run a second time."""
    path = None if resumption is None else resumption.changes.get("file_path")
    done, in_all = how_far(journal)
    if path is None or not done:
        return []
    if done < in_all:
        return [f"Of {path}, {done} of {in_all} requests were run in this run before: continuing with the next one."]
    return [
        f"{path} has been run in this run before, and is not run again: only jobs of it that have not ended continue."
        " To run jobs again that have not succeeded, give --rerun failed; for other requests, give another file."
    ]


async def _run(service: Service, on_end: Callable[[], None]) -> RunResult:
    collect_seldom()
    loading = asyncio.ensure_future(load_late_modules())
    try:
        return await service.run()
    finally:
        loading.cancel()
        on_end()
