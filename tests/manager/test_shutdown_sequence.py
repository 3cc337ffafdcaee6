"""The shutdown sequence of a manager whose last records cannot be written."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from qcg.pilotjob.common.clock import Clock
from qcg.pilotjob.common.options import Options
from qcg.pilotjob.core.shutdown import Cause
from qcg.pilotjob.manager.deadline import ManagerDeadline
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.manager.shutdown import ShutdownSequence
from tests.manager.wired import Wired, jobs, run


def test_an_unexpected_error_while_the_last_records_are_written_leaves_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def out_of_memory() -> None:
        raise MemoryError("no memory for the last records")

    async def test(wired: Wired) -> None:
        wired.reported()
        await wired.engine.submit(jobs("one"))
        await wired.until("launch 1.1")
        await wired.until_all_is_written()
        request = wired.engine.shutdown
        deadline = ManagerDeadline(Manager(wired.engine, "x"), Options(), None, Clock())
        sequence = ShutdownSequence(wired.engine, request, deadline)
        request.request(Cause.FINISH, "the test ends it")
        monkeypatch.setattr(wired.journal, "commit", out_of_memory)
        await sequence.carry_out()
        assert sequence.run_is_left
        assert request.cause is Cause.DEFECT
        assert not any(line.startswith(("kill", "exit")) for line in wired.happened), "the agent keeps its job"

    logger = logging.getLogger("qcg.pilotjob.manager.shutdown")
    logger.addHandler(caplog.handler)
    run(tmp_path, test)
    logger.removeHandler(caplog.handler)
    assert "no memory for the last records" in caplog.text
