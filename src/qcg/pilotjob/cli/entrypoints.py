"""Entry points of the commands. Slow imports happen after the handler of Ctrl-C is installed."""

from __future__ import annotations

import sys
from collections.abc import Container

from qcg.pilotjob.cli.interrupts import ExitOnInterrupt, reraise_lost_interrupt
from qcg.pilotjob.common.fast_exit import FastExit


def qcg_pm() -> None:
    """`qcg-pm`."""
    _start("qcg.pilotjob.cli.main", "qcg-pm", prog_name="qcg-pm")


def qcg_pm_service() -> None:
    """`qcg-pm-service`."""
    _start("qcg.pilotjob.cli.commands.service", "qcg-pm-service")


def qcg_pm_client() -> None:
    """`qcg-pm-client`."""
    _start("qcg.pilotjob.cli.commands.client", "qcg-pm-client")


def _start(module: str, command: str, **options: str) -> None:
    process = FastExit()
    with ExitOnInterrupt():
        try:
            from importlib import import_module

            from qcg.pilotjob.common.gc_tuning import loading

            with loading():
                from qcg.pilotjob.cli.invoke import invoke

                loaded = import_module(module)
        except Exception as error:  # noqa: BLE001 a broken installation, or no descriptors left
            from qcg.pilotjob.common.crash_report import report_crash

            sys.exit(report_crash(command, error))
    reraise_lost_interrupt()
    process.exit(invoke(loaded.main, _with_subcommand(command, getattr(loaded, "COMMANDS", ())), **options))


def _with_subcommand(command: str, known: Container[str]) -> str:
    """The command name for bug reports. Other arguments are left out, because they may be private."""
    given = next((argument for argument in sys.argv[1:] if argument in known), None)
    return command if given is None else f"{command} {given}"
