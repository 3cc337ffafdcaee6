"""Puts the rooms of one manager together."""

from __future__ import annotations

import logging
import os
import uuid
from pathlib import Path

from qcg.pilotjob.cluster.registry import (
    allocation_variables,
    batch_system,
    current_allocation,
    schema_names,
    system_in_use,
)
from qcg.pilotjob.common.options import Options
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.executors.agents import AgentExecutor
from qcg.pilotjob.executors.ledger_reader import untold
from qcg.pilotjob.host.records import FILES, OUTPUT
from qcg.pilotjob.interfaces.pilot import Pilot
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.journal.metadata import (
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
from qcg.pilotjob.launch.site import EnvironmentSchema, Site
from qcg.pilotjob.manager import resume
from qcg.pilotjob.manager.engine import Engine
from qcg.pilotjob.manager.placement import Place
from qcg.pilotjob.report.writer import ReportWriter
from qcg.pilotjob.runs import rundir
from qcg.pilotjob.wire.contact import FILE_NAME, ClientsContact

log = logging.getLogger(__name__)


def wire(
    options: Options,
    place: Place,
    wd: Path,
    run_dir: Path,
    journal: Journal,
    clients: ClientsContact | None,
    *,
    resumed: bool,
) -> Pilot:
    """A pilot that is ready for requests, as far as its agents are."""
    specs = place.specs
    site = Site(
        root_wd=str(wd),
        instance=journal.metadata(INSTANCE) or uuid.uuid4().hex,
        zmq_address=clients.address if clients else "",
        contact=str(run_dir / FILE_NAME) if clients else "",
        allocation=place.job_id,
        schema=_schema(options, place),
        multi_node=place.system.multi_node() if place.system is not None else None,
        files=str(run_dir / FILES),
        output=str(run_dir / OUTPUT),
        keep_output=options.keep_output,
        bindings=place.bindings,
        hides_gpus="CUDA_VISIBLE_DEVICES" in os.environ or any(spec.gpus for spec in specs if place.allocation),
        hidden=_hidden(place),
        hidden_from_mpi=() if place.job_id else allocation_variables(),
        threads_chosen="OMP_NUM_THREADS" in os.environ,
    )
    report_path = run_dir / options.report_file
    report = ReportWriter(report_path, options.report_format, keep=journal.metadata(REPORT_SIZE))
    if options.report_format != "none":
        rundir.link(wd, report_path, "jobs.report")
    _remember(journal, options, site, place)
    core = Core(specs, rerun_lost=options.rerun_lost, patience=options.patience, fallback_node=place.fallback_node)
    engine = Engine(core, journal, report, site)
    engine.executor = AgentExecutor(engine, place.agents, journal.acked(), site.instance)
    pilot = Pilot(
        engine,
        run_dir.name.removeprefix(rundir.PREFIX),
        system_cores=int(options.system_core),
        cluster_name=place.cluster_name,
    )
    if options.wait or journal.metadata(END_WHEN_DONE):
        pilot.end_when_done.set()
    if resumed:
        try:
            followed = resume.restore(engine.state, journal, untold(run_dir, place.agents, journal.acked()))
        except JournalError:
            report.close()
            raise
        if not report.whole:
            written = resume.complete_report(report, journal, engine.stories, engine.state)
            log.warning("%s was damaged or cut short; entries written again: %d", report_path, written)
        engine.take_over(followed)
    cores = sum(len(spec.cores) for spec in specs)
    log.info("%d nodes with %d cores: %s", len(specs), cores, ", ".join(spec.name for spec in specs[:20]))
    return pilot


def _schema(options: Options, place: Place) -> EnvironmentSchema | None:
    """The schema that `--envschema` chooses: by name, or that of the batch system whose nodes the run uses."""
    wanted = [name.strip() for name in options.envschema.split(",")]
    for name in wanted:
        if name in schema_names():
            return batch_system(name).schema
    return place.system.schema if "auto" in wanted and place.system is not None else None


def _hidden(place: Place) -> list[str]:
    """Variables that jobs must not see, because they describe the agent, or an allocation that the run does not use."""
    system = place.system or system_in_use(os.environ)
    if system is None:
        return []
    return system.variables_to_hide() if place.system is not None else system.variables_of_allocation(os.environ)


def _remember(journal: Journal, options: Options, site: Site, place: Place) -> None:
    """What a resumed manager and the report want to know."""
    resources = [NodeSize(name=spec.name, cores=len(spec.cores)) for spec in place.specs]
    inside = current_allocation(os.environ)
    journal.set_metadata(STARTED_IN_ALLOCATION, place.job_id or (inside.id if inside is not None else ""))
    journal.set_metadata(NODES_OF_ALLOCATION, place.job_id)
    longest = max(options.node_timeout, journal.metadata(LONGEST_NODE_TIMEOUT))
    journal.set_metadata(LONGEST_NODE_TIMEOUT, longest)
    journal.set_metadata(INSTANCE, site.instance)
    journal.set_metadata(OPTIONS, options)
    journal.set_metadata(RESOURCES, resources)
    journal.commit()
    # Also what an earlier manager had no time to sync: agents forget what they are told is on disk.
    journal.sync()
