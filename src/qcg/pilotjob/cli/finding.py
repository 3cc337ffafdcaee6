"""Commands that talk to a running manager: how they find it, and what they say when they cannot."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.names import NoSuchName, expand
from qcg.pilotjob.cli.refusing import Denial, Refusal
from qcg.pilotjob.cli.saying import say_no_more
from qcg.pilotjob.guard import is_alive
from qcg.pilotjob.rundir import PREFIX
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import ContactError

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager

DIRECTORY = "QCG_PJM_DIR"
ADDRESS = "QCG_PJM_ADDRESS"
CONTACT = "QCG_PM_CONTACT"
INTERRUPTED = 130
_RUN_DIR = "qcg.pilotjob.run_dir"

json_option = click.option("--json", "as_json", is_flag=True, help="For programs.")


def on_manager(function: Callable[..., int | None]) -> Callable[..., None]:
    """Make of `function(manager, …)`, which returns an exit code, the body of a command that finds its manager."""

    @click.option("-p", "--path", metavar="DIR", help=f"Its run or working directory [{DIRECTORY}].")
    @click.option("-a", "--address", help=f"Its address instead [{ADDRESS}].")
    @functools.wraps(function)
    def body(path: str | None, address: str | None, **given: Any) -> None:
        from qcg.pilotjob.api.errors import QCGPJMAError, RequestRefusedError

        try:
            with connect(path, address, os.environ) as manager:
                code = function(manager, **given)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            say_no_more()
            sys.exit(0)
        except RequestRefusedError as error:
            raise Denial(error.reason) from None
        except NoSuchName as error:
            raise Denial(str(error)) from None
        except QCGPJMAError as error:
            raise Refusal(str(error)) from None
        sys.exit(code or 0)

    return body


def connect(path: str | None, address: str | None, environ: Mapping[str, str]) -> Manager:
    """What is given on the command line goes first, then what the user has set, then the manager whose job this is,
    then the newest run of the working directory."""
    from qcg.pilotjob.api.client import Manager

    if path and address:
        raise click.UsageError("give --path or --address, not both")
    if not path:
        address = address or environ.get(ADDRESS)
        if address:
            return Manager(address)
    if path or environ.get(DIRECTORY):
        run_dir = live_run(Path(path or environ[DIRECTORY]))
    elif environ.get(CONTACT):
        run_dir = live_run(Path(environ[CONTACT]).parent)
    else:
        run_dir = live_run(Path())
    click.get_current_context().meta[_RUN_DIR] = run_dir
    return Manager.of_run(run_dir)


def current_run_dir() -> Path | None:
    """The run directory of the manager that the command talks to, where that is known."""
    found: Path | None = click.get_current_context().meta.get(_RUN_DIR)
    return found


def live_run(directory: Path) -> Path:
    """The run directory, itself or the newest in a working directory, whose manager is alive and can be talked to."""
    shown = directory.absolute()
    if directory.name.startswith(PREFIX) or (directory / contact.FILE_NAME).is_file():
        runs = [directory] if directory.is_dir() else []
    else:
        runs = sorted(directory.glob(PREFIX + "*"), key=lambda run: -run.stat().st_mtime_ns)
    if not runs:
        raise Refusal(
            f"no manager was found: there is no run ({PREFIX}*) in {shown}. Say where it is with --path DIR or"
            f" --address, or set {DIRECTORY}"
        )
    silent = None
    for run in runs:
        try:
            found = contact.read(run)
        except ContactError as error:
            raise Refusal(str(error)) from None
        if found is None or not is_alive(run, found):
            continue
        if found.clients is not None:
            return run
        silent = silent or run
    if silent is not None:
        raise Refusal(
            f"the manager in {silent.absolute()} has no network interface, so nobody can talk to it: start it without"
            " --no-net, or qcg-pm-service with --net"
        )
    newest = runs[0].absolute()
    ended = "has ended" if contact.read(runs[0]) is None else "has died"
    raise Refusal(
        f"no manager is at work in {shown}: that of the newest run, {newest}, {ended}. See what happened with"
        f" `qcg-pm report {newest}`, go on with `qcg-pm run --resume {newest}`, or say where another one is with --path"
    )


class Registry:
    """Names as the manager knows them, asked for when a pattern or a range needs them."""

    def __init__(self, manager: Manager, listed: Collection[str] | None = None) -> None:
        self._manager = manager
        self._listed = listed

    def jobs(self) -> Collection[str]:
        if self._listed is None:
            self._listed = self._manager.list()
        return self._listed

    def indices(self, job: str) -> range | None:
        entry = self._manager.info(job)["jobs"][job]
        if entry["status"] != 0:
            raise NoSuchName(entry["message"])
        counts = entry["data"].get("iterations")
        return None if counts is None else range(counts["start"], counts["stop"], counts.get("step", 1))


def names_of(manager: Manager, wanted: Collection[str]) -> list[str]:
    """What patterns and ranges stand for."""
    return list(expand(wanted, Registry(manager)))


def tell_missing(jobs: Mapping[str, Any]) -> int:
    """Say which names are not there; the exit code."""
    missing = [entry["message"] for entry in jobs.values() if entry["status"] != 0]
    for sentence in missing:
        click.echo(f"Error: {sentence}", err=True)
    return 1 if missing else 0
