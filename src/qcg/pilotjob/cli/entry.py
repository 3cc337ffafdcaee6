"""Where every command begins. Anything that takes time to load is loaded once Ctrl-C is taken care of."""

from __future__ import annotations

import os
import signal
import sys

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
    from importlib import import_module

    from qcg.pilotjob.cli.calling import call

    main = import_module(module).main
    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(call(main, **options))
