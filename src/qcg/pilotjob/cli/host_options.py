"""Options and lookups that the commands for remote hosts share."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.cli.shell_completion import host_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qcg.pilotjob.api.client import Manager
    from qcg.pilotjob.executors.ssh.config import HostConfig

hosts_option = click.option(
    "--hosts",
    "hosts_file",
    type=click.Path(readable=False),
    metavar="FILE",
    help="A further file with hosts, as for `qcg-pm run`.",
)
host_argument = click.argument("name", shell_complete=host_names)


def configured_hosts(context: click.Context, hosts_file: str | None) -> dict[str, HostConfig]:
    """All hosts. `hosts_file`: the option of the command; the same option before the command counts otherwise."""
    from qcg.pilotjob.executors.ssh.config import HostsError, load_hosts

    at: click.Context | None = context
    while hosts_file is None and at is not None:
        hosts_file = at.params.get("hosts_file")
        at = at.parent
    try:
        return load_hosts(hosts_file, os.environ)
    except HostsError as error:
        raise Refusal(str(error)) from None


def configured_host(context: click.Context, hosts_file: str | None, name: str) -> HostConfig:
    """The host of this name, or a refusal with the most similar name."""
    from qcg.pilotjob.executors.ssh.config import HostsError, find_host

    try:
        return find_host(configured_hosts(context, hosts_file), name)
    except HostsError as error:
        raise Refusal(str(error)) from None


@contextmanager
def live_manager(path: str | None, address: str | None, *, must_live: bool = True) -> Iterator[Manager | None]:
    """The manager of the run in this directory; None when none is at work. `must_live`: a manager that was named by the
    path of its run must be there."""
    from qcg.pilotjob.api.errors import ConnectionError, NoManager, QCGPJMAError
    from qcg.pilotjob.cli.manager_lookup import connect

    try:
        manager = connect(path, address, os.environ)
    except (NoManager, ConnectionError) as missing:
        if (path and must_live) or address:
            raise Refusal(str(missing)) from None
        yield None
        return
    try:
        with manager:
            yield manager
    except QCGPJMAError as error:
        raise Refusal(str(error)) from None


def manager_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--path` and `--address` of a manager that may be there."""
    for option in (
        click.option("-a", "--address", help="Address of the manager, instead of --path."),
        click.option("-p", "--path", type=click.Path(readable=False), metavar="DIR", help="Run or working directory."),
    ):
        command = option(command)
    return command
