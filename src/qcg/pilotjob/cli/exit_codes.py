"""How every command ends: its exit code, and the rest of its output."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial

from click import Abort, ClickException, NoSuchOption

from qcg.pilotjob.cli.console import tell
from qcg.pilotjob.cli.stdout import leave_standard_error, take_standard_output
from qcg.pilotjob.cli.suggestions import with_nearest
from qcg.pilotjob.common.crash_report import report_crash
from qcg.pilotjob.common.exit_codes import INTERRUPTED, OUTPUT_LOST


def call(main: Callable[..., int | None], name: str, **options: str) -> int | str | None:
    """Run a command; its exit code. `name`: of the command, as bug reports show it."""
    try:
        output = take_standard_output()
        try:
            code = _outcome(partial(main, **options, standalone_mode=False))
        except Exception as error:  # noqa: BLE001 the last resort for what nobody has thought of
            code = report_crash(name, error)
        if output is not None and not output.all_written():
            code = code or OUTPUT_LOST
        leave_standard_error()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED


def _outcome(main: Callable[[], int | None]) -> int | str | None:
    """Left to itself, the library would end an interrupted command with the exit code of a job that failed."""
    try:
        return main()
    except SystemExit as end:
        return end.code
    except ClickException as error:
        shown = io.StringIO()
        (with_nearest(error) if isinstance(error, NoSuchOption) else error).show(shown)
        tell(shown.getvalue().rstrip("\n"))
        return error.exit_code
    except Abort:
        return INTERRUPTED
