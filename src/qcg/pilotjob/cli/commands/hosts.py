"""`qcg-pm hosts`: list remote hosts, check one, open a connection to one, and restrict a key on one to the commands of
QCG-PilotJob."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.console import echo, echo_err
from qcg.pilotjob.cli.errors import Denial, Refusal
from qcg.pilotjob.cli.host_options import (
    configured_host,
    configured_hosts,
    host_argument,
    hosts_option,
    live_manager,
    manager_options,
)
from qcg.pilotjob.cli.host_states import state_in_words
from qcg.pilotjob.cli.interrupts import ExitOnInterrupt
from qcg.pilotjob.cli.json_records import in_seconds
from qcg.pilotjob.cli.tables import json_option, show_json, show_table
from qcg.pilotjob.cli.target_options import target_of
from qcg.pilotjob.common.exit_codes import FAILURE
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.common.wording import pluralize

if TYPE_CHECKING:
    from qcg.pilotjob.cli.host_check import Step
    from qcg.pilotjob.executors.ssh.config import HostConfig

WIDEST_STEP = 20


@click.group("hosts", invoke_without_command=True)
@hosts_option
@json_option
@manager_options
@click.pass_context
def command(
    context: click.Context, hosts_file: str | None, as_json: bool, path: str | None, address: str | None
) -> None:
    """List the remote hosts of hosts.toml, with their states in the live run of this directory, if there is one."""
    if context.invoked_subcommand is not None:
        return
    hosts = configured_hosts(context, hosts_file)
    target = target_of(context, path, address)
    with ExitOnInterrupt(None), live_manager(target.path, target.address) as manager:
        states = manager.hosts() if manager is not None else {}
        run = str(manager.run_dir) if manager is not None and manager.run_dir is not None else None
    if as_json:
        names = sorted({*hosts, *states})
        show_json({"run": run, "hosts": [_record(name, hosts.get(name), states.get(name)) for name in names]})
    else:
        _show(hosts, states, live=run is not None)


def _show(hosts: dict[str, HostConfig], states: dict[str, Any], *, live: bool) -> None:
    from qcg.pilotjob.executors.ssh.config import where_to_configure

    names = sorted({*hosts, *states})
    if not names:
        echo(f"No remote host is configured; {where_to_configure()}.")
        return
    rows = [_row(name, hosts.get(name), states.get(name), live=live) for name in names]
    show_table(["host", "address", "batch system", "at once", "channel", "state"], rows)
    for name in names:
        if states.get(name, {}).get("error"):
            echo(printable(f"{name}: {states[name]['error']}"))


def _row(name: str, config: HostConfig | None, state: dict[str, Any] | None, *, live: bool) -> list[str]:
    known = state or {}
    shown = state_in_words(known) if state is not None else "not in this run" if live else ""
    if config is None:
        return [name, known.get("address", ""), "", "", known.get("channel", ""), shown]
    owner = f"{config.owner}@" if config.owner else ""
    at_once = pluralize(config.jobs, "job") if config.is_batch else _resources(config)
    batch = config.batch if config.is_batch else "none"
    address = ", ".join(owner + address for address in config.addresses)
    return [name, address, batch, at_once, known.get("channel") or config.channel, shown]


def _resources(config: HostConfig) -> str:
    parts = [pluralize(config.cores, "core")]
    parts += [pluralize(config.gpus, "GPU")] if config.gpus else []
    parts += [f"{config.memory} MiB"] if config.memory else []
    return ", ".join([*parts, *[f"{number} {name}" for name, number in config.counters]])


def _record(name: str, config: HostConfig | None, state: dict[str, Any] | None) -> dict[str, Any]:
    """One host in the output of `--json`. `state` is null without a live run that has this host."""
    record: dict[str, Any] = {"name": name}
    if config is not None:
        record |= {
            "addresses": list(config.addresses),
            "owner": config.owner or None,
            "batch": config.batch,
            **({"jobs": config.jobs} if config.is_batch else {"cores": config.cores, "gpus": config.gpus}),
            "memory": config.memory or None,
            **({"resources": dict(config.counters)} if config.counters else {}),
            "channel": config.channel,
            "directory": config.directory,
            "source": config.source,
        }
    known = state or {}
    record["state"] = known.get("state")
    record |= in_seconds({key: known[key] for key in ("since", "error") if key in known})
    if state is not None:
        record["in_use"] = {"address": known.get("address"), "channel": known.get("channel")}
    return record


# -- check ------------------------------------------------------------------------------------------------------------


@command.command("check")
@host_argument
@hosts_option
@json_option
@click.pass_context
def check(context: click.Context, name: str, hosts_file: str | None, as_json: bool) -> None:
    """Try every step from this machine to a job on host NAME, with the time of each, and remove all traces.

    Exit code 0: everything that jobs need works. 1: a step failed; its line says what to do.
    """
    import asyncio

    from qcg.pilotjob.cli.host_check import check_host

    config = configured_host(context, hosts_file, name)
    as_json = as_json or bool(context.parent is not None and context.parent.params["as_json"])
    steps: list[Step] = []

    def note(step: Step) -> None:
        steps.append(step)
        if not as_json:
            _show_step(step)

    # Ctrl-C is not handled like elsewhere: it cancels the check, which then removes its files.
    asyncio.run(check_host(config, note))
    failed = [step for step in steps if step.result == "failed"]
    if as_json:
        show_json({"host": name, "ok": not failed, "steps": [step._asdict() for step in steps]})
    elif failed:
        echo_err(f"{name} cannot be used as it is: {pluralize(len(failed), 'step')} failed.")
    else:
        echo(f"{name} can be used.")
    sys.exit(FAILURE if failed else 0)


def _show_step(step: Step) -> None:
    time = f"{step.seconds * 1000:.0f} ms" if step.seconds is not None else ""
    echo(printable(f"{step.result:<7} {step.name:<{WIDEST_STEP}} {time:>8}  {step.text}".rstrip()))


# -- connect ----------------------------------------------------------------------------------------------------------


@command.command("connect")
@host_argument
@hosts_option
@manager_options
@click.pass_context
def connect(context: click.Context, name: str, hosts_file: str | None, path: str | None, address: str | None) -> None:
    """Open a connection to host NAME that needs a person: ssh prompts at this terminal.

    It stays open for all runs, for hosts with second_factor = "own", "ask" or "reuse". A manager at work in this
    directory tries the host again at once.
    """
    from qcg.pilotjob.cli.host_connection import open_connection

    config = configured_host(context, hosts_file, name)
    with ExitOnInterrupt(None):
        open_connection(config)
        target = target_of(context, path, address)
        with live_manager(target.path, target.address) as manager:
            if manager is None:
                return
            from qcg.pilotjob.api.errors import RequestRefusedError

            try:
                manager.connect_host(name)
            except RequestRefusedError as error:
                raise Denial(error.reason) from None
            echo(f"The manager of this directory tries {name} again now.")


# -- forget -----------------------------------------------------------------------------------------------------------


@command.command("forget")
@host_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@manager_options
@click.pass_context
def forget(context: click.Context, name: str, yes: bool, path: str | None, address: str | None) -> None:
    """Give up host NAME, which is unreachable and never comes back: its running jobs count as lost.

    Jobs that still run there are not ended. Without a live manager, the next manager of the run follows the decision.
    """
    from qcg.pilotjob.cli.host_forgetting import forget_in_run

    target = target_of(context, path, address)
    with ExitOnInterrupt(None), live_manager(target.path, target.address, must_live=False) as manager:
        if not yes:
            _confirm_loss(name)
        if manager is None:
            forget_in_run(name, Path(target.path or "."))
            echo(f"{name} was given up: the next manager of this run counts the jobs that ran there as lost.")
            return
        from qcg.pilotjob.api.errors import RequestRefusedError

        try:
            lost = manager.forget_host(name)
        except RequestRefusedError as error:
            raise Denial(error.reason) from None
        jobs = pluralize(lost, "job that ran there is", "jobs that ran there are")
        echo(f"{name} was given up: {jobs} lost.")


def _confirm_loss(name: str) -> None:
    if not sys.stdin.isatty():
        raise Refusal(f"the jobs that run on {name} count as lost then, which cannot be undone; give --yes too")
    click.confirm(f"Count the jobs that run on {name} as lost? This cannot be undone.", abort=True, err=True)


# -- gate -------------------------------------------------------------------------------------------------------------


@command.command("gate")
@host_argument
@hosts_option
@click.option("--to", "place", metavar="PATH", help="Where the program is installed on the host.")
@click.option("--admit", metavar="LIST", help="Admit only these: remote-init,jobs-submit,… rsync-in,rsync-out.")
@click.option("--refuse", metavar="LIST", help="Admit everything but these.")
@click.option("--key", type=click.Path(path_type=Path), metavar="FILE", help="The public key to write into the line.")
@click.option("--write", type=click.Path(path_type=Path), metavar="FILE.pyz", help="Write the program to this file.")
@click.pass_context
def gate(context: click.Context, /, name: str, hosts_file: str | None, write: Path | None, **given: Any) -> None:
    """Print how to install the gate on host NAME, and the line of authorized_keys that binds a key to it.

    A key with this line can be used for the commands of QCG-PilotJob and its file transfers, and for nothing else.
    """
    from qcg.pilotjob.cli.host_gate import gate_lines, write_program

    config = configured_host(context, hosts_file, name)
    if write is not None:
        write_program(write)
        echo(f"{write} was written.")
        return
    try:
        lines = list(gate_lines(config, **given))
    except ValueError as error:
        raise Refusal(str(error)) from None
    for line in lines:
        echo(line)
