"""Preparation of a run, new or resumed: all checks that can refuse it before its manager starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from qcg.pilotjob.common.options import Options, Resumption
from qcg.pilotjob.journal.journal import FILE_NAME, Journal
from qcg.pilotjob.journal.metadata import BATCH_SYSTEM, INSTANCE, NODES_OF_ALLOCATION
from qcg.pilotjob.manager.named_counters import counters_of_run
from qcg.pilotjob.manager.placement import Placement, find_placement, hosts_of_file
from qcg.pilotjob.manager.ports import Interfaces, NetworkServer, RequestFile
from qcg.pilotjob.manager.remote_hosts import RemoteHosts, check_used_hosts, find_remote_hosts, node_specs
from qcg.pilotjob.runs import rundir
from qcg.pilotjob.runs.guard import check_agents, check_no_manager
from qcg.pilotjob.runs.machine_check import check_connections
from qcg.pilotjob.runs.resume_hint import refuse_outside_allocation
from qcg.pilotjob.wire.hub import Hub
from qcg.pilotjob.wire.routing import LOOPBACK


class PreparedRun(Struct, frozen=True):
    """A run whose manager can begin: directory, options, journal, nodes and requests."""

    wd: Path
    run_dir: Path
    options: Options
    journal: Journal
    placement: Placement
    requests: RequestFile
    network: NetworkServer | None
    is_resumed: bool
    remote_hosts: RemoteHosts = {}
    rerun: tuple[str, ...] = ()
    """States without success: jobs and iterations in them are run again."""
    replacements: tuple[dict[str, Any], ...] = ()
    """New descriptions, as in request files, for jobs that are run again."""
    release: bool = False
    """Whether all held jobs are released."""

    def discard(self) -> None:
        """Remove the directory of a new run that could not begin."""
        if not self.is_resumed:
            rundir.discard(self.wd, self.run_dir)


def prepare_new(options: Options, interfaces: Interfaces, hub: Hub) -> PreparedRun:
    requests = interfaces.read_file(options)
    # Before the run directory is made, so that nothing is left when nodes or ports are refused.
    placement = find_placement(options)
    hosts = find_remote_hosts(options, placement.specs)
    counters_of_run(options.named, [*placement.specs, *node_specs(hosts)])
    network = _open_network(interfaces, hub, options, placement)
    wd = Path(options.wd).resolve()
    run_dir = rundir.create(wd, options.id)
    try:
        journal = Journal.create(run_dir / FILE_NAME)
    except BaseException:
        rundir.discard(wd, run_dir)
        raise
    return PreparedRun(
        wd, run_dir, options, journal, placement, requests, network, is_resumed=False, remote_hosts=hosts
    )


def prepare_resumed(resumption: Resumption, interfaces: Interfaces, hub: Hub) -> PreparedRun:
    from qcg.pilotjob.manager import resume  # here: new runs do not need it

    run_dir = resumption.run_dir
    check_no_manager(run_dir)
    journal = Journal.open(run_dir / FILE_NAME)
    before = resume.stored_options(journal)
    options = msgspec.structs.replace(before, **resumption.changes)
    check_agents(run_dir, journal.metadata(INSTANCE), hosts_of_file(options))
    resume.forget_end(journal, when_done=resumption.anew)
    given_again = "file_path" in resumption.changes
    requests = interfaces.read_file_again(options, before, journal, given_again=given_again)
    placement = find_placement(options)
    hosts = find_remote_hosts(options, placement.specs)
    check_used_hosts(run_dir, hosts)
    counters_of_run(options.named, [*placement.specs, *node_specs(hosts)])
    was_in = journal.metadata(NODES_OF_ALLOCATION)
    if was_in and placement.allocation is None and options.nodes is None and options.resources == "auto":
        refuse_outside_allocation(run_dir, was_in, journal.metadata(BATCH_SYSTEM))
    network = _open_network(interfaces, hub, options, placement)
    return PreparedRun(
        run_dir.parent,
        run_dir,
        options,
        journal,
        placement,
        requests,
        network,
        is_resumed=True,
        remote_hosts=hosts,
        rerun=resumption.rerun,
        replacements=resumption.replacements,
        release=resumption.release,
    )


def _open_network(interfaces: Interfaces, hub: Hub, options: Options, placement: Placement) -> NetworkServer | None:
    check_connections(placement.address)
    # Without keys, only users of this host may connect.
    return interfaces.open_network(hub, options, LOOPBACK if options.insecure_net else placement.address)
