"""Commands that talk to a running manager: how they find it, and what they say when they cannot."""

from __future__ import annotations

import difflib
import functools
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.console import say_no_more, tell
from qcg.pilotjob.cli.errors import Denial, Refusal
from qcg.pilotjob.cli.interrupts import EndingAtOnce
from qcg.pilotjob.cli.name_patterns import NoSuchName, expand
from qcg.pilotjob.cli.target_options import target_of
from qcg.pilotjob.common.environment import MANAGER_ADDRESS, RUN_DIRECTORY
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.runs.discovery import afterword, has_manager, is_there, runs_of, standing, unfinished
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import ContactError

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager
    from qcg.pilotjob.api.queries import Queries

_HINT = (
    "Start one there with `qcg-pm-service --net`, or say where it is with --path DIR or --address, or set"
    f" {RUN_DIRECTORY}"
)
_RUN_DIR = "qcg.pilotjob.run_dir"
_NO_SUCH_JOB = re.compile(r"there is no job '(.*)'")
MOST_COMPARED = 10_000
"""Names of jobs among which the nearest is looked for."""
MOST_SUGGESTED = 3
"""Missing names for which that is done."""
PAUSE, PROBES = 0.05, 60
"""Seconds between two looks at a manager that has gone away, and how many there are."""


def on_manager(function: Callable[..., int | None]) -> Callable[..., None]:
    """Make of `function(manager, …)`, which returns an exit code, the body of a command that finds its manager."""
    return _command(function, afterwards=False)


def on_manager_or_registry(function: Callable[..., int | None]) -> Callable[..., None]:
    """The same for commands that only look: when no manager is at work, the registry of its run answers."""
    return _command(function, afterwards=True)


def _command(function: Callable[..., int | None], *, afterwards: bool) -> Callable[..., None]:
    @click.option(
        "-p",
        "--path",
        type=click.Path(readable=False),
        metavar="DIR",
        help=f"Its run or working directory [{RUN_DIRECTORY}].",
    )
    @click.option("-a", "--address", help=f"Its address instead [{MANAGER_ADDRESS}].")
    @functools.wraps(function)
    def body(path: str | None, address: str | None, **given: Any) -> None:
        context = click.get_current_context()
        target = target_of(context, path, address)
        try:
            with EndingAtOnce(_the_jobs_go_on if _waits(context) else None):
                code = _call(function, target.path, target.address, given, afterwards=afterwards)
        except BrokenPipeError:
            say_no_more()
            sys.exit(0)
        sys.exit(code or 0)

    return body


def _the_jobs_go_on() -> None:
    """Whoever ends a command that waits should know that this is all that ends."""
    tell("interrupted; the jobs go on (`qcg-pm cancel` ends jobs)")


def _waits(context: click.Context) -> bool:
    return context.info_name == "wait" or bool(context.params.get("follow") or context.params.get("wait"))


def _call(
    function: Callable[..., int | None],
    path: str | None,
    address: str | None,
    given: dict[str, Any],
    *,
    afterwards: bool,
) -> int | None:
    from qcg.pilotjob.api.errors import ConnectionError, NoManager, QCGPJMAError, RequestRefusedError

    asked = False
    try:
        with connect(path, address, os.environ) as manager:
            asked = True
            try:
                return function(manager, **given)
            except RequestRefusedError as error:
                raise Denial(with_suggestion(manager, error.reason)) from None
            except NoSuchName as error:
                raise Denial(with_suggestion(manager, str(error))) from None
    except NoManager as nobody:
        if not afterwards or nobody.run is None:
            raise Refusal(str(nobody)) from None
        for sentence in nobody.passed_over:
            tell(sentence)
        return _ask_registry(nobody.run, function, given)
    except ConnectionError as error:
        run = current_run_dir()
        became = _what_became_of(run)
        if afterwards and not asked and run is not None and _is_over(run):
            return _ask_registry(run, function, given)
        raise Refusal(became or str(error)) from None
    except QCGPJMAError as error:
        raise Refusal(str(error)) from None


def _is_over(run: Path) -> bool:
    """Whether its manager, which was there a moment ago, has ended with all its jobs."""
    return not has_manager(run) and not unfinished(run)


def _ask_registry(run: Path, function: Callable[..., int | None], given: dict[str, Any]) -> int | None:
    from qcg.pilotjob.cli.offline_client import RegistryClient
    from qcg.pilotjob.journal.damage import in_words
    from qcg.pilotjob.journal.errors import JournalError

    with RegistryClient(run) as ended:
        code: int | None = 1
        try:
            code = function(ended, **given)
            return code
        except NoSuchName as error:
            raise Denial(with_suggestion(ended, str(error))) from None
        except JournalError as error:
            raise Refusal(str(error)) from None
        finally:
            tell(f"This is what the registry of {run.absolute()} says. {afterword(run)}")
            if ended.unreadable:
                tell(f"The registry is damaged. Not readable: {in_words(ended.unreadable)}.")
            others = len(runs_of(run.parent)) - 1
            if code and others:
                tell(f"{others} other {'run is' if others == 1 else 'runs are'} in {run.absolute().parent}: see --path")


def connect(path: str | None, address: str | None, environ: Mapping[str, str]) -> Manager:
    """The manager that the command line means, and the environment where that says nothing."""
    from qcg.pilotjob.api.client import Manager
    from qcg.pilotjob.api.target import find_target

    target = find_target(address, environ, path, _HINT)
    for sentence in target.passed_over:
        tell(sentence)
    click.get_current_context().meta[_RUN_DIR] = target.run_dir
    return Manager.at(target, {"log_file": ""})  # commands leave no api.log behind


def current_run_dir() -> Path | None:
    """The run directory of the manager that the command talks to, where that is known."""
    found: Path | None = click.get_current_context().meta.get(_RUN_DIR)
    return found


def _what_became_of(run: Path | None) -> str:
    """Of a manager that was there, and does not answer any more; nothing when that is not known."""
    if run is None:
        return ""
    for _ in range(PROBES):
        try:
            found = contact.read(run)
        except ContactError:
            return ""
        if found is None or not is_there(run, found):
            return standing(run)
        time.sleep(PAUSE)  # its connections are closed before it is gone
    assert found is not None
    return (
        f"the manager of {run.absolute()} (pid {found.pid} on {found.host}) is there, but does not answer: it is"
        f" stopped, or very busy; see {run.absolute() / 'service.log'}"
    )


def with_suggestion(manager: Queries, sentence: str) -> str:
    """The name that may have been meant, where there is no such job."""
    missing = _NO_SUCH_JOB.fullmatch(sentence)
    if missing is None:
        return sentence
    known = list(manager.list())
    if len(known) > MOST_COMPARED:
        return sentence
    near = difflib.get_close_matches(missing[1], known, n=1)
    return f"{sentence}; did you mean {near[0]!r}?" if near else sentence


class Registry:
    """Names as the manager knows them, asked for when a pattern or a range needs them."""

    def __init__(self, manager: Queries, listed: Collection[str] | None = None) -> None:
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


def names_of(manager: Queries, wanted: Collection[str]) -> list[str]:
    """What patterns and ranges stand for."""
    return list(expand(wanted, Registry(manager)))


def tell_missing(manager: Queries, jobs: Mapping[str, Any]) -> int:
    """Say which names are not there; the exit code."""
    missing = [entry["message"] for entry in jobs.values() if entry["status"] != 0]
    for number, sentence in enumerate(missing):
        tell(printable(f"Error: {with_suggestion(manager, sentence) if number < MOST_SUGGESTED else sentence}"))
    return 1 if missing else 0
