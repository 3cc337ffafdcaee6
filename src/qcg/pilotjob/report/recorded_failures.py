"""Failures that a registry has recorded, with the last lines of their output."""

from __future__ import annotations

import os
import sqlite3
from functools import partial
from pathlib import Path

from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.executors.ssh.marker import read_directories
from qcg.pilotjob.host.records import OUTPUT
from qcg.pilotjob.journal import queries
from qcg.pilotjob.journal.damage import unreadable_of
from qcg.pilotjob.journal.descriptions import DamagedDescription, decode_description
from qcg.pilotjob.journal.metadata import OPTIONS, DamagedMetadata
from qcg.pilotjob.journal.records import AttemptRecord
from qcg.pilotjob.launch.compose import stream_paths
from qcg.pilotjob.launch.remote import retrieved_streams, sites_of_paths
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.report.run_report import Failure
from qcg.pilotjob.report.summary import Outcome
from qcg.pilotjob.report.tail import end_of_output, has_started
from qcg.pilotjob.rows.store import DIRECTORY as ROWS
from qcg.pilotjob.rows.store import RowFiles


class RecordedFailures:
    """Names, messages and output of jobs, from the registry and the run directory."""

    def __init__(self, run_dir: Path, connection: sqlite3.Connection, *, foreign: bool = False) -> None:
        """`foreign`: the run belongs to another user."""
        self._foreign = foreign
        self._connection = connection
        self.unreadable = unreadable_of(connection)
        """The unreadable parts of a damaged registry."""
        directory = run_dir.absolute()
        self._site = Site(
            root_wd=os.fspath(directory.parent),
            instance="",
            output=os.fspath(directory / OUTPUT),
            stream_output=self._streams_output(),
            # The registry of another user's run may name any file, also a private one of the caller.
            rows=None if foreign else RowFiles(os.fspath(directory.parent), os.fspath(directory / ROWS)).row,
        )
        self.remote_sites = sites_of_paths({} if foreign else read_directories(run_dir))

    def of(self, outcome: Outcome) -> Failure:
        description = self._description(outcome)
        streams = (
            {}
            if description is None or outcome.run is None
            else self._streams(outcome.job.name, description, outcome.run)
        )
        # The registry of another user's run may name any file, also a private one of the caller. Files of an attempt
        # that was not started may exist, with the output of an earlier one.
        is_shown = not self._foreign and outcome.run is not None and has_started(outcome.run)
        path, lines = end_of_output(streams if is_shown else {})
        return Failure(
            name=self._name(outcome, description),
            message=outcome.job.message if outcome.run is None else outcome.run.message,
            exit_code=None if outcome.run is None else outcome.run.exit_code,
            stderr=streams.get("stderr"),
            last_lines=lines,
            last_lines_of=path,
        )

    def name_of(self, outcome: Outcome) -> str:
        return self._name(outcome, self._description(outcome))

    def _description(self, outcome: Outcome) -> JobDescription | None:
        job = outcome.job
        spec = queries.spec_of(self._connection, job.seq)
        try:
            return None if spec is None else decode_description(spec, job.seq, job.name)
        except DamagedDescription as error:
            self.unreadable.append(str(error))
            return None

    def _name(self, outcome: Outcome, description: JobDescription | None) -> str:
        if outcome.run is None or outcome.run.position < 0 or description is None or description.iteration is None:
            return outcome.job.name
        return f"{outcome.job.name}:{description.iteration.index(outcome.run.position)}"

    def _streams(self, job: str, description: JobDescription, record: AttemptRecord) -> dict[str, str]:
        """The files that this attempt wrote to, with variables replaced as at its launch, and its saved output."""
        grant = record.grant or Grant(())
        if description.request.host:
            site = self.remote_sites.get(grant.parts[0].node) if grant.parts else None
            return {} if site is None else retrieved_streams(description, job, record.position, site)
        ordinal = 1
        if record.attempt > 1:
            ordinal += len(queries.past_attempts_of(self._connection, record.seq, record.position))
        paths = partial(stream_paths, description, job, record.position, grant, self._site, ordinal=ordinal)
        named = paths(saved=False)
        saved = paths(saved=bool(record.pid))
        return {stream: path for stream, path in saved.items() if stream in named or os.path.exists(path)}

    def _streams_output(self) -> bool:
        try:
            options = OPTIONS.read(self._connection)
        except DamagedMetadata as error:
            self.unreadable.append(f"meta {OPTIONS.name!r}: {error}")
            return False
        return options is not None and options.stream_output
