"""`qcg-pm top DIR`: watch a run on the whole screen of a terminal, and act on its jobs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from qcg.pilotjob.cli.console import on_terminal
from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.cli.signals import exiting_on_signals
from qcg.pilotjob.cli.target_options import directory_option


@click.command("top")
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw with ASCII characters alone.")
@directory_option
def command(directory: Path, ascii_only: bool) -> None:
    """Watch a run: progress, nodes, failures, jobs and their output, on the whole screen of the terminal.

    Keys filter and sort jobs, and cancel, rerun, hold and release them; `?` lists the keys. DIRECTORY is a run
    directory, or a working directory, whose newest run is shown; by default, QCG_PJM_DIR or the current directory. The
    run may be live, ended or crashed.
    """
    from qcg.pilotjob.top.app import run_top
    from qcg.pilotjob.top.terminal import look_of, why_unusable
    from qcg.pilotjob.watch.open import NoRun, open_run

    both = sys.stdin is not None and sys.stdin.isatty() and on_terminal()
    if why := why_unusable(os.environ, on_terminal=both):
        raise Refusal(why)
    with exiting_on_signals():
        try:
            source = open_run(directory)
        except NoRun as error:
            raise Refusal(str(error)) from None
        try:
            look = look_of(os.environ, sys.stdout.encoding, ascii_only=ascii_only)
            run_top(source, look, sys.stdin.fileno(), sys.stdout.fileno())
        finally:
            source.close()
