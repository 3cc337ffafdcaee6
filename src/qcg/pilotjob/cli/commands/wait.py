"""`qcg-pm wait`: wait until jobs have ended."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from qcg.pilotjob.cli.console import echo, echo_err
from qcg.pilotjob.cli.explanations import MOST_EXPLAINED
from qcg.pilotjob.cli.manager_lookup import current_run_dir, expand_names, on_manager_or
from qcg.pilotjob.cli.param_types import Number
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.cli.tables import json_option, show_json
from qcg.pilotjob.common.exit_codes import FAILURE
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.common.wording import pluralize

if TYPE_CHECKING:
    from qcg.pilotjob.api.client import Manager
    from qcg.pilotjob.cli.offline_client import Explanations

TIMED_OUT = 3


@click.command("wait")
@click.argument("names", nargs=-1, shell_complete=job_names())
@click.option("--all", "every", is_flag=True, help="Wait for every job; the same as no NAMES.")
@click.option("-t", "--timeout", type=Number(min=0), metavar="SECONDS", help="Longest time to wait.")
@json_option
@on_manager_or("Jobs that are left end only in a run that continues: {resume}.")
def command(manager: Manager, names: tuple[str, ...], every: bool, timeout: float | None, as_json: bool) -> int:
    """Wait until jobs have ended: the jobs NAMES, or all.

    NAMES may hold patterns ('sim*') and iterations (job:3, job:3-7, 'job:*'). Exit code 0: all succeeded. 1: some did
    not. 3: it took longer than the timeout.
    """
    if names and every:
        raise click.UsageError("give NAMES or --all, not both")
    return wait_for(manager, expand_names(manager, names) if names else None, timeout, as_json=as_json)


def wait_for(manager: Manager, names: list[str] | None, timeout: float | None, *, as_json: bool = False) -> int:
    """Wait for jobs, for every job when `names` is None. Shows their states and returns the exit code."""
    from qcg.pilotjob.api.errors import TimeoutElapsed

    try:
        states, explanations = _states(manager, names, timeout)
    except TimeoutElapsed as elapsed:
        left = "" if names is None else f": {str(elapsed).partition(', ')[2]}"
        echo_err(f"Error: not everything has ended within {timeout:g} s{printable(left)}")
        return TIMED_OUT
    if as_json:
        show_json(states)
    else:
        _show(states, explanations)
    if names is None and not {"FAILED", "CANCELED"}.intersection(states.values()):
        return 0  # jobs are OMITTED only because an outcome they wait for did not occur
    return 0 if all(state == "SUCCEED" for state in states.values()) else FAILURE


def _states(manager: Manager, names: list[str] | None, timeout: float | None) -> tuple[dict[str, str], Explanations]:
    """Final states of jobs, with explanations."""
    from qcg.pilotjob.api.errors import ConnectionError, RequestRefusedError
    from qcg.pilotjob.cli.offline_client import explanations_of, final_states

    try:
        _print_held(manager, names)
        if names is None:
            manager.wait4all(timeout)
            states = {name: job["status"] for name, job in manager.list().items()}
        else:
            ended = manager.wait4(names, timeout)
            states = {name: ended[name] for name in dict.fromkeys(names)}  # in the given order
        return states, explanations_of(manager, states)
    except RequestRefusedError:
        raise
    except ConnectionError:
        # A manager that runs a file ends with its last job, perhaps before it answers.
        run_dir = current_run_dir()
        known = None if run_dir is None else final_states(run_dir, names)
        if known is None:
            raise
        return known


def _print_held(manager: Manager, names: list[str] | None) -> None:
    """Say which of the first jobs do not start before a release, so that the wait may never end."""
    if names is None:
        waiting = manager.list_page(states=["QUEUED"], limit=MOST_EXPLAINED)["jobs"]
        names = [name for name, entry in waiting.items() if "heldSince" in entry]
    asked = names[:MOST_EXPLAINED]
    answer = manager.send_request({"request": "why", "jobNames": asked})["data"]["jobs"] if asked else {}
    for name, entry in answer.items():
        why = entry.get("data", {})
        runs = {"SCHEDULED", "EXECUTING"} & why.get("iterations", {}).keys()
        if not runs and (why.get("reason") == "held" or "which is held" in why.get("sentence", "")):
            echo_err(printable(f"{name}: {why['sentence']}"))


def _show(states: dict[str, str], explanations: Explanations) -> None:
    sentences, iterations = explanations
    others = [(name, state) for name, state in states.items() if state != "SUCCEED"]
    for name, state in others[:MOST_EXPLAINED]:
        echo(printable(f"{name} {state}: {sentences[name]}" if name in sentences else f"{name} {state}"))
    if len(others) > MOST_EXPLAINED:
        echo(f"… and {len(others) - MOST_EXPLAINED} more that did not succeed; see: qcg-pm why NAME")
    counts = ", ".join(f"{count} {state}" for state, count in sorted(Counter(states.values()).items())) or "no jobs"
    if iterations:
        counts += f" ({iterations['SUCCEED']} of {pluralize(iterations.total(), 'iteration')} succeeded)"
    echo(counts)
