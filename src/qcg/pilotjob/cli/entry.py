"""Where every command begins. Anything that takes time to load is loaded once Ctrl-C is taken care of."""

from __future__ import annotations

import sys

from qcg.pilotjob.cli.interrupts import EndingAtOnce, heed_what_is_raised_in_vain


def qcg_pm() -> None:
    _enter("qcg.pilotjob.cli.main", prog_name="qcg-pm")


def qcg_pm_service() -> None:
    _enter("qcg.pilotjob.cli.service")


def qcg_pm_client() -> None:
    _enter("qcg.pilotjob.cli.client")


def _enter(module: str, **options: str) -> None:
    with EndingAtOnce():
        from importlib import import_module

        from qcg.pilotjob.cli.calling import call

        main = import_module(module).main
    heed_what_is_raised_in_vain()
    sys.exit(call(main, **options))
