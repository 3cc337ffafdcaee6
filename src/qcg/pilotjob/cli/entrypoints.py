"""Where every command begins. Anything that takes time to load is loaded once Ctrl-C is taken care of."""

from __future__ import annotations

import sys
from collections.abc import Container

from qcg.pilotjob.cli.interrupts import EndingAtOnce, heed_what_is_raised_in_vain


def qcg_pm() -> None:
    _enter("qcg.pilotjob.cli.main", "qcg-pm", prog_name="qcg-pm")


def qcg_pm_service() -> None:
    _enter("qcg.pilotjob.cli.commands.service", "qcg-pm-service")


def qcg_pm_client() -> None:
    _enter("qcg.pilotjob.cli.commands.client", "qcg-pm-client")


def _enter(module: str, command: str, **options: str) -> None:
    with EndingAtOnce():
        try:
            from importlib import import_module

            from qcg.pilotjob.cli.exit_codes import call

            loaded = import_module(module)
        except Exception as error:  # noqa: BLE001 a broken installation, or no descriptors left
            from qcg.pilotjob.common.crash_report import report_crash

            sys.exit(report_crash(command, error))
    heed_what_is_raised_in_vain()
    sys.exit(call(loaded.main, _with_subcommand(command, getattr(loaded, "COMMANDS", ())), **options))


def _with_subcommand(command: str, known: Container[str]) -> str:
    """The name for bug reports; of the arguments it shows nothing else, as they may be private."""
    given = next((argument for argument in sys.argv[1:] if argument in known), None)
    return command if given is None else f"{command} {given}"
