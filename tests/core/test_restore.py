"""Books that are restored say what they said before."""

from __future__ import annotations

import msgspec

from qcg.pilotjob.core.attempt_events import FORGOTTEN
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.effects import Launch
from qcg.pilotjob.core.events import AgentReported, Schedule
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Grant, NodePart
from qcg.pilotjob.core.restore import Restoration
from qcg.pilotjob.core.sanity import check
from qcg.pilotjob.host.records import Running
from tests.core.core_driver import job, line, machine


def launched(core: Core) -> list[str]:
    core.handle(AgentReported(["n1"], []), 9.0)
    check(core.state)
    return [effect.attempt.job.name for effect in core.handle(Schedule(), 9.0) if isinstance(effect, Launch)]


def test_a_job_does_not_wait_for_a_later_one_with_the_name_of_one_that_was_removed() -> None:
    core = Core(machine(4))
    restoration = Restoration(core.state, now=8.0, max_seq=3)
    restoration.unfinished_job(2, "early", 1.0, msgspec.msgpack.encode(job("early", after="again")), 0.0)
    restoration.unfinished_job(3, "again", 2.0, msgspec.msgpack.encode(job("again", after="early")), 0.0)
    restoration.finish()
    assert launched(core) == ["early"]


def test_jobs_of_one_submission_wait_for_each_other_in_any_order() -> None:
    core = Core(machine(4))
    restoration = Restoration(core.state, now=8.0, max_seq=2)
    restoration.unfinished_job(1, "second", 1.0, msgspec.msgpack.encode(job("second", after="first")), 0.0)
    restoration.unfinished_job(2, "first", 1.0, msgspec.msgpack.encode(job("first")), 0.0)
    restoration.finish()
    assert launched(core) == ["first"]


def test_a_run_under_way_keeps_its_cores_until_its_host_tells() -> None:
    core = Core(machine(1))
    restoration = Restoration(core.state, now=8.0, max_seq=2)
    for seq, name in ((1, "runs"), (2, "waits")):
        restoration.unfinished_job(seq, name, 1.0, msgspec.msgpack.encode(job(name)), 0.0)
    earlier = Core(machine(1))
    earlier.handle(AgentReported(["n1"], []), 1.0)
    grant = earlier.state.pool.allocate(job("runs").request)
    assert grant is not None
    restoration.run_under_way((1, -1, 1, grant, 2.0), killed=False)
    restoration.finish()
    assert core.state.jobs["runs"].state is State.SCHEDULED
    check(core.state)
    assert core.handle(Schedule(), 9.0) == []


def test_a_run_that_had_started_is_not_run_again_when_its_host_has_forgotten_it() -> None:
    core = Core(machine(2))
    restoration = Restoration(core.state, now=8.0, max_seq=2)
    restoration.unfinished_job(1, "a", 1.0, msgspec.msgpack.encode(job("a")), 0.0)
    restoration.unfinished_job(2, "it", 1.0, msgspec.msgpack.encode(job("it", its=2)), 2.5)
    for place, core_id in (((1, -1), 0), ((2, 1), 1)):
        grant = Grant((NodePart("n1", (core_id,)),))
        restoration.run_under_way((*place, 1, grant, 2.0), killed=False, pid=77, started=2.5)
    restoration.finish()
    check(core.state)
    assert core.state.jobs["a"].state is State.EXECUTING
    assert core.state.iteration_counts[State.EXECUTING] == 1
    told = [line(effect) for effect in core.handle(AgentReported(["n1"], []), 9.0)]
    assert told == [f"a FAILED: {FORGOTTEN}", f"it:1 FAILED: {FORGOTTEN}"]


def test_a_run_that_had_started_goes_on_as_it_was() -> None:
    core = Core(machine(2))
    restoration = Restoration(core.state, now=8.0, max_seq=1)
    restoration.unfinished_job(1, "a", 1.0, msgspec.msgpack.encode(job("a")), 0.0)
    grant = Grant((NodePart("n1", (0,)),))
    restoration.run_under_way((1, -1, 1, grant, 2.0), killed=False, pid=77, started=2.5)
    restoration.finish()
    assert core.handle(AgentReported(["n1"], [Running("1.1", 77, 2.5, [("n1", (0,), ())])]), 9.0) == []
    attempt = core.state.jobs["a"].attempt
    assert attempt is not None
    assert (attempt.pid, attempt.started) == (77, 2.5)
