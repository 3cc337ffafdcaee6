"""Where every command begins. Anything that takes time to load is loaded once Ctrl-C is taken care of."""

from __future__ import annotations

import os
import signal
import sys

INTERRUPTED = 130

SOON = 0.01
"""Seconds until an interrupt that was lost is sent again: by then what could not be interrupted is over."""


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
        _heed_what_is_raised_in_vain()
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(call(main, **options))


def _heed_what_is_raised_in_vain() -> None:
    """An interrupt within a destructor or the callback of a weak reference is printed and forgotten: send it again."""
    tell = sys.unraisablehook

    def heed(lost: sys.UnraisableHookArgs) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, SOON)
        else:
            tell(lost)

    sys.unraisablehook = heed
    signal.signal(signal.SIGALRM, lambda number, frame: signal.raise_signal(signal.SIGINT))
