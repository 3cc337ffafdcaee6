"""Runs that must not be removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob.executors.ssh.marker import HostMarker
from qcg.pilotjob.runs.liveness import hosts_with_attempts
from qcg.pilotjob.runs.removal import reason_to_keep
from qcg.pilotjob.runs.states import RunInfo, RunState


@pytest.mark.parametrize(("state", "kept"), [("connected", True), ("unreachable", True), ("closed", False)])
def test_a_run_with_jobs_on_a_remote_host_is_kept(tmp_path: Path, state: str, kept: bool):
    HostMarker(tmp_path, "wizard").set(state)
    run = RunInfo(tmp_path, RunState.CRASHED, 0.0, hosts=hosts_with_attempts(tmp_path))
    reason = "jobs may still run on wizard; resume the run first, which finds or ends them" if kept else ""
    assert reason_to_keep(run, now=1e9, unfinished_too=True) == reason
