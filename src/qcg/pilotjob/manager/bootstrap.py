"""Assembly of a manager from its parts: core, journal, report, executor and engine."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable
from pathlib import Path

from qcg.pilotjob.cluster.registry import (
    allocation_variables,
    batch_system,
    current_allocation,
    schema_names,
    system_in_use,
)
from qcg.pilotjob.common.options import Options
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.drain import drained_in_words
from qcg.pilotjob.core.events import Release
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.description.retry import parse_policy
from qcg.pilotjob.executors.agents import Endpoint
from qcg.pilotjob.executors.composite import composite
from qcg.pilotjob.executors.contact_keeper import ContactKeeper
from qcg.pilotjob.executors.prestart import PrestartedAgent
from qcg.pilotjob.host.records import FILES, OUTPUT
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.journal.metadata import (
    BATCH_SYSTEM,
    END_WHEN_DONE,
    INSTANCE,
    LONGEST_NODE_TIMEOUT,
    NODES_OF_ALLOCATION,
    OPTIONS,
    REPORT_SIZE,
    RESOURCES,
    STARTED_IN_ALLOCATION,
    NodeSize,
)
from qcg.pilotjob.journal.snapshot import reading
from qcg.pilotjob.launch.site import EnvironmentSchema, Site
from qcg.pilotjob.manager.engine import Engine
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.manager.named_counters import counters_of_run
from qcg.pilotjob.manager.placement import Placement, agent_executor
from qcg.pilotjob.manager.prepare import PreparedRun
from qcg.pilotjob.manager.remote_hosts import node_specs, remote_executor, remote_sites
from qcg.pilotjob.manager.shutdown_request import ShutdownRequest
from qcg.pilotjob.report.writer import ReportWriter
from qcg.pilotjob.rows.run_rows import RunRows
from qcg.pilotjob.runs import rundir
from qcg.pilotjob.wire.contact import FILE_NAME, ClientsContact
from qcg.pilotjob.wire.hub import Hub
from qcg.pilotjob.wire.keys import make_keys

log = logging.getLogger(__name__)


def assemble(
    prepared: PreparedRun,
    hub: Hub,
    contact: ContactKeeper,
    on_local_agent: Callable[[int], None] = lambda pid: None,
    prestarted: PrestartedAgent | None = None,
) -> Manager:
    """Put the parts of a manager together, and restore the jobs of a resumed run. Nothing is started yet.

    `on_local_agent`: called with the pid of the agent of this host when it connects."""
    options, run_dir, journal, placement = prepared.options, prepared.run_dir, prepared.journal, prepared.placement
    clients = prepared.network.contact if prepared.network is not None else None
    rows = RunRows(str(prepared.wd), run_dir)
    site = _site(prepared, clients, rows)
    report_path = run_dir / options.report_file
    report = ReportWriter(report_path, options.report_format, keep=journal.metadata(REPORT_SIZE))
    if options.report_format != "none":
        rundir.link(prepared.wd, report_path, "jobs.report")
    _remember(journal, options, site, placement)
    hosts, run_id = prepared.remote_hosts, run_dir.name.removeprefix(rundir.PREFIX)
    specs = [*placement.specs, *node_specs(hosts)]
    core = Core(
        specs,
        rerun_lost=options.rerun_lost,
        retry=None if options.retry is None else parse_policy(options.retry),
        patience=options.patience,
        fallback_node=placement.fallback_node,
        counters=counters_of_run(options.named, specs),
        drain_after=options.drain_after,
        stop_after=options.stop_after,
    )
    endpoint = Endpoint(hub, make_keys(), f"tcp://{placement.address}:*")
    agents = agent_executor(placement, options, run_dir, site, journal, endpoint, contact, on_local_agent, prestarted)
    executors = [agents]
    if hosts:
        acked = journal.acked()
        executors.append(remote_executor(hosts, run_id, site.instance, prepared.wd, run_dir, acked, clients))
    sites = remote_sites(hosts, run_id, site.instance, enforce_memory=site.enforce_memory)
    engine = Engine(core, journal, report, site, composite(executors), ShutdownRequest(), sites)
    manager = Manager(
        engine,
        run_id,
        clients=clients,
        system_cores=int(options.system_core),
        cluster_name=placement.cluster_name,
    )
    if options.wait or journal.metadata(END_WHEN_DONE):
        manager.end_when_done.set()
    if prepared.is_resumed:
        from qcg.pilotjob.manager.row_changes import changed_row_files

        _restore(engine, run_dir, placement)
        for notice in changed_row_files(engine.state, engine.descriptions, rows.files):
            manager.add_start_notice(notice)
    if prepared.rerun:
        from qcg.pilotjob.manager.rerun import rerun_in_states

        if not prepared.replacements:
            for notice in rerun_in_states(engine, rows.files, [State[name.upper()] for name in prepared.rerun]):
                manager.add_start_notice(notice)
        if drained := drained_in_words(core.state):
            manager.add_start_notice(f"{drained}: `qcg-pm nodes resume` lets new jobs start there")
    if prepared.release:
        data, _ = engine.carry_out(Release(None))
        manager.add_start_notice(f"{pluralize(data['released'], 'job was', 'jobs were')} released")
    total = sum(len(spec.cores) for spec in placement.specs)
    names = ", ".join(spec.name for spec in placement.specs[:20])
    log.info("%s with %s: %s", pluralize(len(placement.specs), "node"), pluralize(total, "core"), names)
    return manager


def _site(prepared: PreparedRun, clients: ClientsContact | None, rows: RunRows) -> Site:
    options, run_dir, placement = prepared.options, prepared.run_dir, prepared.placement
    return Site(
        root_wd=str(prepared.wd),
        instance=prepared.journal.metadata(INSTANCE) or uuid.uuid4().hex,
        zmq_address=clients.address if clients else "",
        contact=str(run_dir / FILE_NAME) if clients else "",
        allocation=placement.job_id,
        schema=_schema(options, placement),
        multi_node=placement.system.multi_node() if placement.system is not None else None,
        files=str(run_dir / FILES),
        output=str(run_dir / OUTPUT),
        keep_output=options.keep_output,
        stream_output=options.stream_output,
        enforce_memory=options.enforce_memory,
        bindings=placement.bindings,
        hides_gpus="CUDA_VISIBLE_DEVICES" in os.environ
        or any(spec.gpus for spec in placement.specs if placement.allocation),
        hidden=_hidden(placement),
        hidden_from_mpi=() if placement.job_id else allocation_variables(),
        threads_chosen="OMP_NUM_THREADS" in os.environ,
        rows=rows.row,
    )


def _schema(options: Options, placement: Placement) -> EnvironmentSchema | None:
    """The schema that `--envschema` chooses: by name, or that of the batch system whose nodes the run uses."""
    wanted = [name.strip() for name in options.envschema.split(",")]
    for name in wanted:
        if name in schema_names():
            return batch_system(name).schema
    return placement.system.schema if "auto" in wanted and placement.system is not None else None


def _hidden(placement: Placement) -> list[str]:
    """Variables that jobs must not see, because they describe the agent, or an allocation that the run does not use."""
    system = placement.system or system_in_use(os.environ)
    if system is None:
        return []
    return system.hidden_from_jobs() if placement.system is not None else system.hidden_outside_allocation(os.environ)


def _restore(engine: Engine, run_dir: Path, placement: Placement) -> None:
    # Imported here: new runs do not need them.
    from qcg.pilotjob.executors.ledger_reader import read_unreported
    from qcg.pilotjob.manager import resume

    journal, report = engine.journal, engine.report
    try:
        with reading(journal.path):
            acked = journal.acked()
        followed = resume.restore(engine.state, journal, read_unreported(run_dir, placement.agents, acked))
    except JournalError:
        report.close()
        raise
    if not report.whole:
        written = resume.complete_report(report, journal, engine.views, engine.state)
        log.warning("%s was damaged or cut short; entries written again: %d", report.path, written)
    engine.restored(followed)


def _remember(journal: Journal, options: Options, site: Site, placement: Placement) -> None:
    """Store metadata for a resumed manager and the report."""
    resources = [NodeSize(name=spec.name, cores=len(spec.cores)) for spec in placement.specs]
    inside = current_allocation(os.environ)
    journal.set_metadata(STARTED_IN_ALLOCATION, placement.job_id or (inside.id if inside is not None else ""))
    journal.set_metadata(NODES_OF_ALLOCATION, placement.job_id)
    journal.set_metadata(BATCH_SYSTEM, "" if placement.allocation is None else placement.allocation.ref.system)
    longest = max(options.node_timeout, journal.metadata(LONGEST_NODE_TIMEOUT))
    journal.set_metadata(LONGEST_NODE_TIMEOUT, longest)
    journal.set_metadata(INSTANCE, site.instance)
    journal.set_metadata(OPTIONS, options)
    journal.set_metadata(RESOURCES, resources)
    journal.commit()
    # Includes data that an earlier manager had no time to sync: agents forget the records that are acknowledged.
    journal.sync()
