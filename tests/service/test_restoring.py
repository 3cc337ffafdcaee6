"""What a manager reads when it takes up a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob import resume
from qcg.pilotjob.agent.protocol import EndedRecord
from qcg.pilotjob.core.state import CoreState
from qcg.pilotjob.core.states import State
from qcg.pilotjob.host.records import Ended
from qcg.pilotjob.journal import reading
from qcg.pilotjob.ledgers import Untold
from tests.service.wired import Wired, jobs, run


def test_of_the_iterations_of_a_job_that_failed_nothing_but_their_states_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def test(wired: Wired) -> None:
        wired.reported()
        await wired.engine.submit(jobs("many", iteration={"start": 5, "stop": 9}))
        for position in range(4):
            await wired.until(f"launch 1:{position}.1")
            ended = Ended(f"1:{position}.1", 2.0, int(position == 2), "exit", "", 7, 1.0)
            wired.engine.agent_told("local", [EndedRecord(position + 1, ended)])
        await wired.until_all_is_written()
        monkeypatch.setattr(reading, "to_run", lambda row: pytest.fail(f"{row} was read"))
        core = CoreState(wired.engine.state.nodes)
        resume.restore(core, wired.journal, Untold([], set(), True))
        iterations = core.jobs["many"].iterations
        assert iterations is not None
        states = [iterations.state(position) for position in range(4)]
        assert states == [State.SUCCEED, State.SUCCEED, State.FAILED, State.SUCCEED]

    run(tmp_path, test)
