"""Puts the rooms of one manager together."""

from __future__ import annotations

import logging
import os
import uuid
from pathlib import Path

import msgspec

from qcg.pilotjob import resume, rundir
from qcg.pilotjob.cluster.local import local_nodes
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.engine import Engine
from qcg.pilotjob.executors.agents import AgentExecutor
from qcg.pilotjob.executors.local import NAME
from qcg.pilotjob.host.records import FILES
from qcg.pilotjob.interfaces.pilot import Pilot
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.options import Options
from qcg.pilotjob.report.writer import ReportWriter
from qcg.pilotjob.wire.contact import FILE_NAME, ClientsContact

log = logging.getLogger(__name__)


def wire(
    options: Options, wd: Path, run_dir: Path, journal: Journal, clients: ClientsContact | None, *, resumed: bool
) -> Pilot:
    """A pilot that is ready for requests, as far as its agents are."""
    nodes = local_nodes(options.nodes, os.environ)
    specs = _without_system_core(nodes.specs) if options.system_core else nodes.specs
    site = Site(
        root_wd=str(wd),
        instance=str(journal.get_meta("instance") or uuid.uuid4().hex),
        zmq_address=clients.address if clients else "",
        contact=str(run_dir / FILE_NAME) if clients else "",
        slurm_environment="slurm" in options.envschema,
        files=str(run_dir / FILES),
        bindings={spec.name: {core: core for core in spec.cores} for spec in specs} if nodes.real else {},
        hides_gpus="CUDA_VISIBLE_DEVICES" in os.environ,
        threads_chosen="OMP_NUM_THREADS" in os.environ,
    )
    report_path = run_dir / options.report_file
    report = ReportWriter(report_path, options.report_format, keep=int(journal.get_meta("report_size") or 0))
    if options.report_format != "none":
        rundir.link(wd, report_path, "jobs.report")
    _remember(journal, options, site, specs)
    core = Core(specs, rerun_lost=options.rerun_lost, patience=options.patience)
    engine = Engine(core, journal, report, site)
    engine.executor = AgentExecutor(engine, {NAME: [spec.name for spec in specs]}, journal.acked())
    pilot = Pilot(engine, run_dir.name.removeprefix(rundir.PREFIX), system_cores=int(options.system_core))
    if options.wait or journal.get_meta("end_when_done"):
        pilot.end_when_done.set()
    if resumed:
        if journal.get_meta("ending"):
            pilot.ending.set()
        engine.take_over(resume.restore(engine.state, journal))
    cores = sum(len(spec.cores) for spec in specs)
    log.info("%d nodes with %d cores: %s", len(specs), cores, ", ".join(spec.name for spec in specs[:20]))
    return pilot


def _remember(journal: Journal, options: Options, site: Site, specs: list[NodeSpec]) -> None:
    """What a resumed manager and the report want to know."""
    resources = [{"name": spec.name, "cores": len(spec.cores)} for spec in specs]
    journal.set_meta("instance", site.instance)
    journal.set_meta("options", msgspec.json.encode(options).decode())
    journal.set_meta("resources", msgspec.json.encode(resources).decode())
    journal.commit()
    # Also what an earlier manager had no time to sync: agents forget what they are told is on disk.
    journal.sync()


def _without_system_core(specs: list[NodeSpec]) -> list[NodeSpec]:
    """The first core of the first node is the manager's own."""
    first = specs[0]
    return [msgspec.structs.replace(first, cores=first.cores[1:]), *specs[1:]]
