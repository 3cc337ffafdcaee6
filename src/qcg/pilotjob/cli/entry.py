"""Where every command begins and ends. What takes time to load is loaded once Ctrl-C is taken care of."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module

from qcg.pilotjob.cli.output import leave_standard_error, take_standard_output

NOT_WRITTEN = 5
"""The exit code of a command that has done everything, but what it had to say is lost."""
INTERRUPTED = 130


def qcg_pm() -> None:
    _enter("qcg.pilotjob.cli.main", prog_name="qcg-pm")


def qcg_pm_service() -> None:
    _enter("qcg.pilotjob.cli.service")


def qcg_pm_client() -> None:
    _enter("qcg.pilotjob.cli.client")


def _enter(module: str, **options: str) -> None:
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:
        # No exception: one that is raised while modules are loaded may be printed, and forgotten.
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
    output = take_standard_output()
    main = import_module(module).main
    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = _call(partial(main, **options, standalone_mode=False))
    if output is not None and not output.all_written():
        code = code or NOT_WRITTEN
    leave_standard_error()
    sys.exit(code)


def _call(main: Callable[[], int | None]) -> int | str | None:
    """The exit code. Left to itself, the library would end with that of a job that failed when it is interrupted."""
    from click import Abort, ClickException

    try:
        return main()
    except SystemExit as end:
        return end.code
    except ClickException as error:
        with suppress(OSError):
            error.show()
        return error.exit_code
    except (Abort, KeyboardInterrupt):
        return INTERRUPTED
