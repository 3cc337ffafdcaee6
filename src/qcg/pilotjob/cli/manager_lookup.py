"""Finds and connects the manager for commands, or reads the registry when the manager has ended."""

from __future__ import annotations

import functools
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.console import echo_err, silence_stdout
from qcg.pilotjob.cli.errors import Denial, Refusal
from qcg.pilotjob.cli.interrupts import ExitOnInterrupt
from qcg.pilotjob.cli.name_patterns import NoSuchName, expand
from qcg.pilotjob.cli.target_options import target_of
from qcg.pilotjob.common.environment import MANAGER_ADDRESS, RUN_DIRECTORY
from qcg.pilotjob.common.exit_codes import FAILURE
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.common.similarity import nearest
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import ContactError

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager
    from qcg.pilotjob.api.queries import Queries

_HINT = (
    "Start a run there with `qcg-pm run FILE`, or name the directory of one with --path DIR (or --address, or"
    f" {RUN_DIRECTORY}); `qcg-pm-service --net` starts a manager without jobs"
)
_ADVICE = "To open it again: {serve}."
_RUN_DIR = "qcg.pilotjob.run_dir"
_NO_SUCH_JOB = re.compile(r"there is no job '(.*)'")
MOST_COMPARED = 10_000
"""Largest number of jobs for which a similar name is searched."""
MOST_SUGGESTED = 3
"""Missing names for which a similar name is searched."""
PAUSE, PROBES = 0.05, 60
"""Seconds between two checks of a manager that does not answer, and their number."""


def on_manager(function: Callable[..., int | None]) -> Callable[..., None]:
    """Decorator: turn `function(manager, …)`, which returns an exit code, into a command that finds its manager."""
    return _command(function, offline=False)


def on_manager_or(advice: str) -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """The same, with a sentence about what to do when the manager has ended; see `advise_without_manager`."""
    return functools.partial(_command, offline=False, advice=advice)


def on_manager_or_registry(function: Callable[..., int | None]) -> Callable[..., None]:
    """The same for read-only commands: without a running manager, the registry of the run answers."""
    return _command(function, offline=True)


def _command(function: Callable[..., int | None], *, offline: bool, advice: str = _ADVICE) -> Callable[..., None]:
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
            with ExitOnInterrupt(_print_interrupt_notice if _waits(context) else None):
                code = _call(function, target.path, target.address, given, offline=offline, advice=advice)
        except BrokenPipeError:
            silence_stdout()
            sys.exit(0)
        sys.exit(code or 0)

    return body


def _print_interrupt_notice() -> None:
    """Ctrl-C ends only the command that waits, not the jobs."""
    echo_err("interrupted; the jobs continue (`qcg-pm cancel` cancels jobs)")


def _waits(context: click.Context) -> bool:
    return context.info_name == "wait" or bool(context.params.get("follow") or context.params.get("wait"))


def _call(
    function: Callable[..., int | None],
    path: str | None,
    address: str | None,
    given: dict[str, Any],
    *,
    offline: bool,
    advice: str,
) -> int | None:
    from qcg.pilotjob.api.errors import ConnectionError, NoManager, QCGPJMAError, RequestRefusedError

    asked: Manager | None = None
    try:
        with connect(path, address, os.environ) as manager:
            asked = manager
            try:
                return function(manager, **given)
            except RequestRefusedError as error:
                raise Denial(with_similar_name(manager, error.reason)) from None
            except NoSuchName as error:
                raise Denial(with_similar_name(manager, str(error))) from None
    except NoManager as missing:
        if missing.run is None:
            raise Refusal(str(missing)) from None
        for sentence in missing.skipped:
            echo_err(sentence)
        if not offline:
            from qcg.pilotjob.runs.messages import advise_without_manager

            raise Refusal(advise_without_manager(missing.run, advice)) from None
        return _ask_registry(missing.run, function, given)
    except ConnectionError as error:
        run = current_run_dir()
        diagnosis = _why_no_answer(run)
        if offline and run is not None and not (asked and asked.has_answered) and _is_over(run):
            return _ask_registry(run, function, given)
        raise Refusal(diagnosis or str(error)) from None
    except QCGPJMAError as error:
        raise Refusal(str(error)) from None


def _is_over(run: Path) -> bool:
    """Whether the manager of a run has just ended, and all its jobs have."""
    # Imported late, like all that reads registries: commands that find their manager start faster.
    from qcg.pilotjob.runs.manager_process import has_manager
    from qcg.pilotjob.runs.unfinished import count_unfinished

    return not has_manager(run) and not count_unfinished(run)


def _ask_registry(run: Path, function: Callable[..., int | None], given: dict[str, Any]) -> int | None:
    from qcg.pilotjob.cli.offline_client import RegistryClient
    from qcg.pilotjob.journal.damage import in_words
    from qcg.pilotjob.journal.errors import JournalError
    from qcg.pilotjob.runs.messages import describe_recorded_state
    from qcg.pilotjob.runs.own_runs import own_runs

    with RegistryClient(run) as ended:
        code: int | None = 1
        try:
            code = function(ended, **given)
            return code
        except NoSuchName as error:
            raise Denial(with_similar_name(ended, str(error))) from None
        except JournalError as error:
            raise Refusal(str(error)) from None
        finally:
            echo_err(describe_recorded_state(run, damaged=bool(ended.unreadable)))
            if ended.unreadable:
                echo_err(f"The registry is damaged. Not readable: {in_words(ended.unreadable)}.")
            others = len(own_runs(run.parent)) - 1
            if code and others:
                other_runs = pluralize(others, "other run is", "other runs are")
                echo_err(f"{other_runs} in {run.absolute().parent}: see --path")


def connect(path: str | None, address: str | None, environ: Mapping[str, str]) -> Manager:
    """Connect to the manager given by the command line, or else by the environment."""
    from qcg.pilotjob.api.client import Manager
    from qcg.pilotjob.api.target import find_target

    target = find_target(address, environ, path, _HINT)
    for sentence in target.skipped:
        echo_err(sentence)
    click.get_current_context().meta[_RUN_DIR] = target.run_dir
    # Commands write no api.log, and none asks for the next end of any job.
    return Manager.at(target, {"log_file": ""}, ends=False)


def current_run_dir() -> Path | None:
    """The run directory of the manager that the command is connected to, if known."""
    found: Path | None = click.get_current_context().meta.get(_RUN_DIR)
    return found


def _why_no_answer(run: Path | None) -> str:
    """Why a manager does not answer any more: it has ended, or is stopped; empty when that is not known."""
    if run is None:
        return ""
    from qcg.pilotjob.runs.manager_process import is_manager_alive
    from qcg.pilotjob.runs.messages import describe_run_without_manager

    for _ in range(PROBES):
        try:
            found = contact.read(run)
        except ContactError:
            return ""
        if found is None or not is_manager_alive(run, found):
            return describe_run_without_manager(run)
        time.sleep(PAUSE)  # a manager closes its connections before it ends
    assert found is not None
    return (
        f"the manager of {run.absolute()} (pid {found.pid} on {found.host}) is there, but does not answer: it is"
        f" stopped, or very busy; see {run.absolute() / 'service.log'}"
    )


def with_similar_name(manager: Queries, sentence: str) -> str:
    """Add a similar job name to a message that there is no such job."""
    missing = _NO_SUCH_JOB.fullmatch(sentence)
    if missing is None:
        return sentence
    page = manager.list_page(limit=MOST_COMPARED)
    if page["more"]:
        return sentence
    near = nearest(missing[1], page["jobs"])
    return f"{sentence}; did you mean {near!r}?" if near is not None else sentence


class Registry:
    """Job names and iterations of a manager, requested when a pattern or a range needs them."""

    def __init__(self, manager: Queries) -> None:
        self._manager = manager

    def matching(self, pattern: str) -> Collection[str]:
        found: dict[str, Any] = self._manager.list_page(limit=None, pattern=pattern)["jobs"]
        return found

    def indices(self, job: str) -> Sequence[int] | None:
        entry = self._manager.info(job)["jobs"][job]
        if entry["status"] != 0:
            raise NoSuchName(entry["message"])
        counts = entry["data"].get("iterations")
        if counts is None:
            return None
        indices: Sequence[int] | None = counts.get("indices")
        return indices or range(counts["start"], counts["stop"], counts.get("step", 1))


def expand_names(manager: Queries, wanted: Collection[str]) -> list[str]:
    """The jobs and iterations that names, patterns and ranges stand for."""
    return list(expand(wanted, Registry(manager)))


def print_missing(manager: Queries, jobs: Mapping[str, Any]) -> int:
    """Print an error for each name without a job. Returns the exit code."""
    missing = [entry["message"] for entry in jobs.values() if entry["status"] != 0]
    for number, sentence in enumerate(missing):
        echo_err(printable(f"Error: {with_similar_name(manager, sentence) if number < MOST_SUGGESTED else sentence}"))
    return FAILURE if missing else 0
