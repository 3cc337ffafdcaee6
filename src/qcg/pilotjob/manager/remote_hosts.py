"""The remote hosts of a run: their nodes, their sites and their executor. A run without any loads none of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from qcg.pilotjob.common.options import Options, UsageError
from qcg.pilotjob.common.wording import list_names
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.executors.base import Executor, ExecutorFactory, ExecutorObserver
from qcg.pilotjob.executors.ssh.host_files import may_have_hosts
from qcg.pilotjob.host.hostname import host_name
from qcg.pilotjob.launch.remote import remote_site
from qcg.pilotjob.launch.site import Site

if TYPE_CHECKING:
    from qcg.pilotjob.executors.ssh.config import HostConfig
    from qcg.pilotjob.executors.ssh.connection import RunIdentity
    from qcg.pilotjob.executors.ssh.executor import RemoteHost
    from qcg.pilotjob.wire.contact import ClientsContact

RemoteHosts = Mapping[str, "HostConfig"]
"""The remote hosts of a run, by name."""


def find_remote_hosts(options: Options, nodes: Iterable[NodeSpec]) -> RemoteHosts:
    """The configured hosts. `nodes`: the nodes of the run itself, whose names no host can have."""
    if not may_have_hosts(options.hosts, os.environ):
        return {}
    from qcg.pilotjob.executors.ssh.config import load_hosts

    hosts = load_hosts(options.hosts, os.environ)
    for node in nodes:
        if node.name in hosts:
            raise UsageError(
                f"{hosts[node.name].source} names a remote host {node.name!r}, which is also a node of this run; rename"
                " the host, and keep its `address`"
            )
    return hosts


def check_used_hosts(run_dir: Path, hosts: RemoteHosts) -> None:
    """Refuse to resume a run that may have jobs on hosts that are not configured any more."""
    if not (run_dir / "hosts").exists():
        return
    from qcg.pilotjob.executors.ssh.marker import read_states

    missing = [name for name, state in read_states(run_dir).items() if state.may_have_attempts and name not in hosts]
    if missing:
        raise UsageError(
            f"the run may have jobs on {list_names(missing)}, and no such host is configured any more; give the file"
            " that names it with --hosts"
        )


def node_specs(hosts: RemoteHosts) -> list[NodeSpec]:
    """A node for each host. Behind a batch system, its cores are the jobs that it takes at once."""
    return [
        NodeSpec(
            config.name,
            tuple(range(config.jobs if config.is_batch else config.cores)),
            tuple(str(number) for number in range(config.gpus)),
            config.memory,
            group=config.name,
            slots=config.is_batch,
            owner=config.owner,
            counters=config.counters,
        )
        for config in hosts.values()
    ]


def remote_sites(hosts: RemoteHosts, run_id: str, instance: str, *, enforce_memory: bool = False) -> dict[str, Site]:
    return {
        name: remote_site(
            name,
            instance,
            slots=config.is_batch,
            environment=config.environment,
            directives=config.directives,
            hides_gpus=bool(config.gpus),
            directory=config.run_directory(run_id),
            local_tree=str(config.near_tree(run_id)) if config.retrieve != "never" else "",
            enforce_memory=enforce_memory,
        )
        for name, config in hosts.items()
    }


def remote_executor(
    hosts: RemoteHosts,
    run_id: str,
    instance: str,
    wd: Path,
    run_dir: Path,
    acked: Mapping[str, int],
    clients: ClientsContact | None = None,
) -> ExecutorFactory:
    """The executor for these hosts. `acked`: by ledger, the last record in the journal. `clients`: where this manager
    takes requests, for jobs on the hosts."""
    from qcg.pilotjob.executors.ssh.connection import RunIdentity
    from qcg.pilotjob.executors.ssh.executor import SshExecutor

    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    run = RunIdentity.of(run_id, instance, wd, run_dir, stamp)
    remote = [_remote_host(config, run, clients) for config in hosts.values()]

    def make(observer: ExecutorObserver) -> Executor:
        return SshExecutor(observer, remote, run, acked)

    return make


def _remote_host(config: HostConfig, run: RunIdentity, clients: ClientsContact | None) -> RemoteHost:
    from qcg.pilotjob.executors.ssh.batch import batch_record
    from qcg.pilotjob.executors.ssh.connection import Setup
    from qcg.pilotjob.executors.ssh.executor import RemoteHost
    from qcg.pilotjob.executors.ssh.rsync_job_files import RsyncJobFiles

    setup = Setup(batch_record(config), service_files=lambda: service_files(run, clients))

    def files(observer: ExecutorObserver) -> RsyncJobFiles:
        return RsyncJobFiles(Path(run.wd), config.near_tree(run.id), config.retrieve, observer.launch_of)

    return RemoteHost(config, setup, files)


def service_files(run: RunIdentity, clients: ClientsContact | None) -> dict[str, bytes]:
    """The files of `.service` on a host: the identity and address of the manager, and its keys."""
    lines = {"RUN": run.id, "INSTANCE": run.instance, "HOST": host_name(), "PID": str(os.getpid()), "DIRECTORY": run.wd}
    keys = {}
    if clients is not None:
        lines |= {"ADDRESS": clients.address, "PUBLISHER": clients.publisher}
        keys = {"server": clients.server_key, "public": clients.client_public, "secret": clients.client_secret}
    contact = "".join(f"{name}={value}\n" for name, value in lines.items())
    files = {"contact": contact.encode("utf-8", "surrogateescape")}
    return {**files, "keys": msgspec.json.encode(keys) + b"\n"} if keys else files
