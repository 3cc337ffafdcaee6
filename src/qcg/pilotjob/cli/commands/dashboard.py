"""`qcg-pm dashboard`: serve a web page about a run."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qcg.pilotjob.cli.console import echo, echo_err
from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.cli.param_types import Whole
from qcg.pilotjob.cli.signals import awaiting_signal
from qcg.pilotjob.cli.target_options import directory_option
from qcg.pilotjob.common.printable import printable

if TYPE_CHECKING:
    import socket

    from qcg.pilotjob.dashboard.access import Access

TUNNEL_PORT = 8080
"""The port on the user's machine in the shown command for a tunnel."""
MOST_PORT = 65535


@click.command("dashboard")
@click.option(
    "--port",
    type=Whole(0, MOST_PORT),
    metavar="N",
    help="Port on the loopback interface; 0, as without it: a free one.",
)
@click.option(
    "--socket",
    "socket_path",
    type=click.Path(path_type=Path, readable=False),
    metavar="PATH",
    help="Unix socket instead of a port: no other user of the machine can connect to it.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    callback=lambda context, parameter, given: _host_names(given),
    help="Name of a host under which a proxy shows the page, such as that of a JupyterHub; may be given several times.",
)
@click.option("--control", is_flag=True, help="Let the page cancel, rerun, hold and release jobs.")
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
@directory_option
def command(
    directory: Path, port: int | None, socket_path: Path | None, hosts: tuple[str, ...], control: bool, show: bool
) -> None:
    """Serve a web page about the run in DIRECTORY, or the newest run there: live, ended or crashed.

    It prints the address of the page, with the token that the page needs, and serves it until Ctrl-C. The page is
    served to this machine only, and only shows the run unless --control is given.
    """
    from qcg.pilotjob.dashboard.access import Access
    from qcg.pilotjob.dashboard.server import CannotServe, DashboardServer, listen_on_path, listen_on_port
    from qcg.pilotjob.watch.open import NoRun, open_run

    if port is not None and socket_path is not None:
        raise click.UsageError("give --port or --socket, not both")
    if show and socket_path is not None:
        raise click.UsageError("a browser cannot open a socket; leave out --open or --socket")
    access = Access(hosts, control=control)
    try:
        run = open_run(directory)
    except NoRun as error:
        raise Refusal(str(error)) from None
    try:
        listening = listen_on_port(port or 0) if socket_path is None else listen_on_path(socket_path)
    except CannotServe as error:
        run.close()
        raise Refusal(str(error)) from None
    server = DashboardServer(listening, run, access)
    thread = threading.Thread(target=server.serve_forever, name="dashboard", daemon=True)
    with awaiting_signal() as wait:
        try:
            thread.start()
            echo_err(f"Dashboard of {printable(str(run.run_dir))}; Ctrl-C ends it.")
            address = _print_address(listening, socket_path, access)
            with _browser(address) if show else nullcontext():
                wait()
        finally:
            server.stop()
            run.close()
            if socket_path is not None:
                with suppress(OSError):
                    socket_path.unlink()


def _print_address(listening: socket.socket, path: Path | None, access: Access) -> str:
    """Print the address to stdout, and hints to stderr."""
    if path is None:
        port = listening.getsockname()[1]
        where, far = f"127.0.0.1:{port}", f"localhost:{port}"
    else:
        port, far = TUNNEL_PORT, str(path.absolute())
        where = f"localhost:{port}"
    echo_err(printable(f"From another machine: ssh -N -L {port}:{far} HOST, then open the address there."))
    address = f"http://{where}/?token={access.token}"
    echo(address)
    return address


@contextmanager
def _browser(address: str) -> Iterator[None]:
    """Open the page in a browser, by a file that only its owner can read: the arguments of a program are public."""
    import webbrowser

    with tempfile.NamedTemporaryFile("w", prefix="qcg-pm-", suffix=".html") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={address}">')
        file.flush()
        if not webbrowser.open(Path(file.name).as_uri()):
            echo_err("No browser could be started; open the address yourself.")
        yield


def _host_names(given: tuple[str, ...]) -> tuple[str, ...]:
    from qcg.pilotjob.dashboard.access import host_name_of  # here: other commands do not need it

    for name in given:
        if host_name_of(name) != name.lower():
            raise click.BadParameter(f"{name!r} is no name of a host; leave out https://, the port and the path")
    return given
