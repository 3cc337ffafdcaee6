"""`qcg-pm-service`: start a manager that takes requests from a file or the network."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob import __version__
from qcg.pilotjob.cli.console import echo_err
from qcg.pilotjob.cli.legacy_options import implies_net
from qcg.pilotjob.cli.node_list import join_node_list
from qcg.pilotjob.cli.options import resolve_cores, shared
from qcg.pilotjob.cli.param_types import Whole
from qcg.pilotjob.common.gc_tuning import loading
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.shutdown import Cause
from qcg.pilotjob.executors.prestart import PrestartedAgent, is_useful

if TYPE_CHECKING:
    from qcg.pilotjob.manager.manager import Manager

DEFAULT_FILE = "qcg_pm_reqs.json"
FIRST_PORT, LAST_PORT = 2222, 9999
PORT = Whole(1, 65535)


@click.command("qcg-pm-service", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--net", is_flag=True, help="Open the network interface, and serve requests until `qcg-pm finish`.")
@click.option("--net-port", type=PORT, help="Port for requests; by default any free one.")
@click.option("--net-port-min", type=PORT, help=f"Any free port from here on ({FIRST_PORT} with --net-port-max alone).")
@click.option("--net-port-max", type=PORT, help=f"The last port to try ({LAST_PORT} with --net-port-min alone).")
@click.option("--net-pub-port", type=PORT, help="Port for events; by default any free one.")
@click.option("--insecure-net", is_flag=True, help="No keys: everybody on this host can connect. For old clients.")
@click.option("--file", "use_file", is_flag=True, help=f"Run the requests of {DEFAULT_FILE}.")
@click.option("--file-path", type=click.Path(readable=False), help="Run the requests of this file.")
@click.option("--show-progress", is_flag=True, help="Print when jobs start and end.")
@click.option("--ready-fd", type=int, hidden=True)
@click.option("--lifeline-fd", type=int, hidden=True)
@click.option("--cancel-with-owner", is_flag=True, hidden=True)
@click.version_option(__version__, "-V", "--version", prog_name="qcg-pm-service")
@shared
@click.pass_context
def command(
    context: click.Context,
    /,
    use_file: bool,
    file_path: str | None,
    show_progress: bool,
    ready_fd: int | None,
    lifeline_fd: int | None,
    cancel_with_owner: bool,
    **given: Any,
) -> None:
    """Start a manager that runs requests from a file, from the network, or from both.

    With a file alone and no request finishAfterAllTasksDone in it, the manager ends once all requests are read: running
    jobs are CANCELED, and waiting jobs are left for --resume. With --net it ends on request: see qcg-pm finish.

    Exit codes are those of `qcg-pm run`.
    """
    path = file_path or (DEFAULT_FILE if use_file else None)
    given["net"] = given["net"] or implies_net(context)
    network = _network_options(given)
    if path is None and not network and not given["resume"]:
        raise click.UsageError(
            "nothing to do: give requests with --file-path FILE, serve the network with --net, or continue a run with"
            " --resume"
        )
    fixed: dict[str, Any] = {"show_progress": show_progress, **network}
    if network:
        # A resumed run that waited for all jobs now serves requests until `qcg-pm finish`.
        fixed["wait"] = False
    if path is not None:
        fixed["file_path"] = path

    serving: list[Manager] = []

    def ready(manager: Manager) -> None:
        if show_progress:
            from qcg.pilotjob.cli.progress import print_transitions

            print_transitions(manager)
        if lifeline_fd is not None:
            _end_with_owner(lifeline_fd, manager, Cause.FINISH_AND_CANCEL if cancel_with_owner else Cause.OWNER_GONE)
        if ready_fd is not None:
            _report_ready(ready_fd, manager)
        elif manager.interfaces:
            echo_err(_welcome(manager))
            serving.append(manager)

    resolve_cores(given)
    with PrestartedAgent(wanted=is_useful(given["resources"], given["nodes"], given["resume"], os.environ)) as agent:
        with loading():  # here, so that this process and the agent load at the same time
            from qcg.pilotjob.cli.service_runner import run_service

        ending = run_service(context, given, fixed, ready, prestarted=agent)
    if ending.end.cause is Cause.REQUESTS_READ and ending.unfinished:
        unfinished = pluralize(ending.unfinished, "job was", "jobs were")
        echo_err(f"{unfinished} cut off: the request file has no finishAfterAllTasksDone. `qcg-pm run` always waits.")
    if serving:
        counts = ", ".join(f"{ending.counts[state]} {state.name}" for state in State if ending.counts[state])
        echo_err(f"The service has ended: {counts or 'no jobs'}.")
    if ending.end.cause in (Cause.NO_HOST, Cause.DEFECT) and not ending.jobs_left:
        echo_err(f"The service could not continue: {ending.end.reason}")
    if last_line := ending.last_line():
        echo_err(last_line)
    sys.exit(ending.exit_code)


def _welcome(manager: Manager) -> str:
    site = manager.engine.site
    return (
        f"Serving {Path(site.contact).parent} at {site.zmq_address}. Talk to it with `qcg-pm submit`, `qcg-pm jobs` and"
        f" others in {site.root_wd}, or with --path {site.root_wd} elsewhere; end it with `qcg-pm finish`, or Ctrl-C."
    )


def _network_options(given: dict[str, Any]) -> dict[str, Any]:
    """Options of the network interface. Each of them opens it; without any, the result is empty."""
    net, port = given.pop("net"), given.pop("net_port")
    first, last = given.pop("net_port_min"), given.pop("net_port_max")
    pub_port, insecure = given.pop("net_pub_port"), given.pop("insecure_net")
    if not (net or port or first or last or pub_port or insecure):
        return {}
    if first or last:
        first, last = first or FIRST_PORT, last or LAST_PORT
        if first > last:
            raise click.UsageError(f"--net-port-min {first} is above --net-port-max {last}")
    span = f"{first}-{last}" if first else "*"
    return {
        "net": True,
        "net_port": str(port) if port else span,
        "net_pub_port": str(pub_port) if pub_port else span,
        "insecure_net": insecure,
    }


def _report_ready(descriptor: int, manager: Manager) -> None:
    """Write the run directory and the addresses to the process that started this manager."""
    site = manager.engine.site
    conf = {"run_dir": str(Path(site.contact).parent), "address": site.zmq_address, "publisher": manager.publisher}
    with os.fdopen(descriptor, "w") as ready:
        ready.write(json.dumps(conf) + "\n")


def _end_with_owner(descriptor: int, manager: Manager, if_gone: Cause) -> None:
    """End the manager when the process at the other end of a pipe writes to it, which means `finish`, or ends."""
    import asyncio

    os.set_inheritable(descriptor, False)
    loop = asyncio.get_running_loop()

    def readable() -> None:
        told_to_finish = bool(os.read(descriptor, 1))
        loop.remove_reader(descriptor)
        os.close(descriptor)
        if told_to_finish:
            manager.shutdown.request(Cause.FINISH, "the manager was told to finish")
        else:
            manager.shutdown.request(if_gone, "the program that started the manager has ended")

    loop.add_reader(descriptor, readable)


def main(*, standalone_mode: bool = True) -> Any:
    return command(join_node_list(sys.argv[1:]), prog_name="qcg-pm-service", standalone_mode=standalone_mode)
