"""Run a service inside a command: bad input ends in a sentence and exit code 2."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import click

from qcg.pilotjob.cli.options import build
from qcg.pilotjob.cli.refusing import Refusal
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.collecting import collect_seldom
from qcg.pilotjob.interfaces.file import FileError
from qcg.pilotjob.interfaces.pilot import Pilot
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.options import Options, Resumption, UsageError
from qcg.pilotjob.report.errors import ReportError
from qcg.pilotjob.service import Ending, Service


def run_service(
    context: click.Context,
    given: dict[str, Any],
    fixed: dict[str, Any],
    on_ready: Callable[[Pilot], None],
    on_end: Callable[[], None] = lambda: None,
) -> Ending:
    try:
        options, resumption = build(context, given, **fixed)
        return asyncio.run(_run(options, resumption, on_ready, on_end))
    except (UsageError, ClusterError, FileError, JournalError, ReportError) as error:
        raise Refusal(str(error)) from None


async def _run(
    options: Options, resumption: Resumption | None, on_ready: Callable[[Pilot], None], on_end: Callable[[], None]
) -> Ending:
    service = Service(options, resumption)
    service.on_ready = on_ready
    collect_seldom()
    try:
        return await service.run()
    finally:
        on_end()
