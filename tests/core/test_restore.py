"""A core that is restored from a registry continues the state of the earlier core."""

from __future__ import annotations

import msgspec

from qcg.pilotjob.core.attempt_events import FORGOTTEN
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.effects import Launch, Transition
from qcg.pilotjob.core.events import HostReported, Schedule
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Grant, NodePart
from qcg.pilotjob.core.restore import LedgerRecords, OpenAttempt, SavedRun, UnfinishedJob, restore
from qcg.pilotjob.core.sanity import check
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.host.records import Ended, Running
from tests.core.core_driver import effect_text, job, machine


def launched(core: Core) -> list[str]:
    core.handle(HostReported(["n1"], []), 9.0)
    check(core.state)
    return [effect.attempt.job.name for effect in core.handle(Schedule(), 9.0) if isinstance(effect, Launch)]


def unfinished(seq: int, description: JobDescription, submitted: float = 1.0, started: float = 0.0) -> UnfinishedJob:
    return UnfinishedJob(seq, description.name, submitted, msgspec.msgpack.encode(description), description, started)


def test_a_job_does_not_wait_for_a_later_one_with_the_name_of_one_that_was_removed() -> None:
    core = Core(machine(4))
    jobs = [unfinished(2, job("early", after="again")), unfinished(3, job("again", after="early"), submitted=2.0)]
    restore(core.state, SavedRun(3, unfinished=jobs), LedgerRecords(), now=8.0)
    assert launched(core) == ["early"]


def test_jobs_of_one_submission_wait_for_each_other_in_any_order() -> None:
    core = Core(machine(4))
    jobs = [unfinished(1, job("second", after="first")), unfinished(2, job("first"))]
    restore(core.state, SavedRun(2, unfinished=jobs), LedgerRecords(), now=8.0)
    assert launched(core) == ["first"]


def test_an_open_attempt_keeps_its_cores_until_its_agent_reports() -> None:
    core = Core(machine(1))
    earlier = Core(machine(1))
    earlier.handle(HostReported(["n1"], []), 1.0)
    grant = earlier.state.pool.allocate(job("runs").request)
    assert grant is not None
    jobs = [unfinished(1, job("runs")), unfinished(2, job("waits"))]
    saved = SavedRun(2, unfinished=jobs, open_attempts=[OpenAttempt(1, -1, 1, grant, 2.0)])
    restore(core.state, saved, LedgerRecords(), now=8.0)
    assert core.state.jobs["runs"].state is State.SCHEDULED
    check(core.state)
    assert core.handle(Schedule(), 9.0) == []


def test_a_started_attempt_is_not_repeated_when_its_agent_does_not_know_it() -> None:
    core = Core(machine(2))
    jobs = [unfinished(1, job("a")), unfinished(2, job("it", its=2), started=2.5)]
    attempts = [
        OpenAttempt(seq, position, 1, Grant((NodePart("n1", (core_id,)),)), 2.0, started=2.5, pid=77)
        for seq, position, core_id in ((1, -1, 0), (2, 1, 1))
    ]
    restore(core.state, SavedRun(2, unfinished=jobs, open_attempts=attempts), LedgerRecords(), now=8.0)
    check(core.state)
    assert core.state.jobs["a"].state is State.EXECUTING
    assert core.state.iteration_counts[State.EXECUTING] == 1
    effects = [effect_text(effect) for effect in core.handle(HostReported(["n1"], []), 9.0)]
    assert effects == [f"a FAILED: {FORGOTTEN}", f"it:1 FAILED: {FORGOTTEN}"]


def test_a_started_attempt_continues_as_it_was() -> None:
    core = Core(machine(2))
    grant = Grant((NodePart("n1", (0,)),))
    started = OpenAttempt(1, -1, 1, grant, 2.0, started=2.5, pid=77)
    saved = SavedRun(1, unfinished=[unfinished(1, job("a"))], open_attempts=[started])
    restore(core.state, saved, LedgerRecords(), now=8.0)
    assert core.handle(HostReported(["n1"], [Running("1.1", 77, 2.5, [("n1", (0,), ())])]), 9.0) == []
    attempt = core.state.jobs["a"].attempt
    assert attempt is not None
    assert (attempt.pid, attempt.started) == (77, 2.5)


def test_a_job_whose_prerequisite_ended_before_the_restart_counts_as_waiting_from_now_on() -> None:
    core = Core(machine(2), patience=10.0)
    jobs = [unfinished(1, job("first")), unfinished(2, job("wide", 2, after="first")), unfinished(3, job("small"))]
    grant = Grant((NodePart("n1", (0,), (), 0),))
    saved = SavedRun(3, unfinished=jobs, open_attempts=[OpenAttempt(1, -1, 1, grant, 2.0, 2.5, 7)])
    ends = LedgerRecords([Ended("1.1", 3.0, 0, "exit", "", 7, 2.5)])
    effects = restore(core.state, saved, ends, now=1000.0)
    assert [(effect.state.name, effect.at) for effect in effects if isinstance(effect, Transition)] == [
        ("SUCCEED", 3.0)
    ]
    assert core.state.jobs["wide"].entries[0].line.served == 1000.0
