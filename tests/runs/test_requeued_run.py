"""The run that an allocation continues after its batch system has queued it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.runs import discovery
from qcg.pilotjob.runs.discovery import requeued_run
from tests.support.memory_batch import VARIABLE, MemoryBatch


def test_a_batch_system_that_does_not_answer_lets_a_new_run_begin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    def no_answer(environ: object) -> int:
        raise ClusterError("the batch system does not answer")

    system = MemoryBatch()
    monkeypatch.setattr(system, "restarts", no_answer)
    monkeypatch.setattr(discovery, "system_in_use", lambda environ: system)
    assert requeued_run(tmp_path, "first.json", None, {VARIABLE: "7"}) is None
    assert "so a new run begins: the batch system does not answer" in caplog.text
