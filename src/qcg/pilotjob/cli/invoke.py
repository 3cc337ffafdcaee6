"""Runs a command: turns exceptions into messages and exit codes, and checks that all output was written."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial

from click import Abort, ClickException, NoSuchOption

from qcg.pilotjob.cli.console import echo_err
from qcg.pilotjob.cli.stdout import flush_stderr, guard_stdout
from qcg.pilotjob.cli.suggestions import suggest_options
from qcg.pilotjob.common.crash_report import report_crash
from qcg.pilotjob.common.exit_codes import INTERRUPTED, OUTPUT_LOST


def invoke(main: Callable[..., int | None], name: str, **options: str) -> int | str | None:
    """Run a command and return its exit code. `name`: the command in bug reports."""
    try:
        output = guard_stdout()
        try:
            code = _exit_code_of(partial(main, **options, standalone_mode=False))
        except Exception as error:  # noqa: BLE001 a defect: report it
            code = report_crash(name, error)
        if output is not None and not output.all_written():
            code = code or OUTPUT_LOST
        flush_stderr()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED


def _exit_code_of(main: Callable[[], int | None]) -> int | str | None:
    """Run a command in place of click's standalone mode, which ends an interrupted command with exit code 1."""
    try:
        return main()
    except SystemExit as end:
        return end.code
    except ClickException as error:
        shown = io.StringIO()
        (suggest_options(error) if isinstance(error, NoSuchOption) else error).show(shown)
        echo_err(shown.getvalue().rstrip("\n"))
        return error.exit_code
    except Abort:
        return INTERRUPTED
