"""A wide job is overtaken only for a limited time."""

from __future__ import annotations

from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.effects import Transition
from qcg.pilotjob.core.events import AttemptEnded, HostReported
from qcg.pilotjob.host.records import Ended
from tests.core.core_driver import CoreDriver, job, machine


def driver(*cores: int, patience: float) -> CoreDriver:
    made = CoreDriver(machine(*cores), available=False)
    made.core = Core(machine(*cores), patience=patience)
    made.handle(HostReported([f"n{number}" for number in range(1, len(cores) + 1)], []))
    return made


def test_a_wide_job_that_waited_too_long_is_not_overtaken_any_more():
    made = driver(2, patience=10)
    made.submit(job("first"), job("wide", 2), job("small", its=100))
    assert made.schedule() == ["first on n1[0]", "small:0 on n1[1]"]
    made.end("first")
    assert made.schedule() == ["small:1 on n1[0]"], "it has not waited long"
    made.now += 10
    made.end("small:0")
    assert made.schedule() == [], "the free core is kept for the wide job"
    made.end("small:1")
    assert made.schedule() == ["wide on n1[0:1]"]
    made.end("wide")
    assert made.schedule() == ["small:2 on n1[0]", "small:3 on n1[1]"]


def test_earlier_jobs_still_start_before_one_that_waited_too_long():
    made = driver(3, patience=10)
    made.submit(job("running", 2), job("older", after="running"), job("wide", 3), job("small", its=9))
    assert made.schedule() == ["running on n1[0:1]", "small:0 on n1[2]"]
    made.now += 100
    made.end("running")
    assert made.schedule() == ["older on n1[0]"]


def test_a_line_that_is_served_now_and_then_blocks_no_job():
    made = driver(2, patience=10)
    made.submit(job("pair", 2, its=50), job("small", its=50))
    assert made.schedule() == ["pair:0 on n1[0:1]"]
    made.now += 100
    made.end("pair:0")
    assert made.schedule() == ["pair:1 on n1[0:1]"]


def test_no_cores_are_kept_free_for_a_job_that_needs_a_lost_node():
    made = driver(2, 2, patience=10)
    made.submit(job("wide", nodes=2), job("small", its=9))
    made.lose("n2")
    assert made.schedule() == ["small:0 on n1[0]", "small:1 on n1[1]"]
    made.now += 100
    made.end("small:0")
    assert made.schedule() == ["small:2 on n1[0]"]


def test_a_job_whose_prerequisite_ended_long_ago_counts_as_waiting_from_now_on():
    """After a time without a manager, hosts report ends that are hours old."""
    made = driver(2, patience=10)
    made.submit(job("first"), job("wide", 2, after="first"), job("small", its=9))
    assert made.schedule() == ["first on n1[0]", "small:0 on n1[1]"]
    ended = made.now
    attempt = made.attempt("first")
    made.now += 1000
    made.handle(AttemptEnded(Ended(attempt.id, ended, 0, "exit", "", 7, ended - 1)))
    assert [(effect.state.name, effect.at) for effect in made.effects if isinstance(effect, Transition)] == [
        ("EXECUTING", ended - 1),
        ("SUCCEED", ended),
    ]
    assert made.schedule() == ["small:1 on n1[0]"], "the wide job has not waited long"


def test_a_job_that_is_requeued_by_an_old_record_counts_as_waiting_from_now_on():
    made = driver(2, patience=10)
    made.submit(job("wide", 2), job("small", its=9))
    assert made.schedule() == ["wide on n1[0:1]"]
    attempt = made.attempt("wide")
    ended = made.now
    made.now += 1000
    made.handle(AttemptEnded(Ended(attempt.id, ended, -1, "closed", "", 0, 0.0)))
    (queued,) = [effect for effect in made.effects if isinstance(effect, Transition)]
    assert (queued.state.name, queued.at) == ("QUEUED", ended)
    line = made.core.state.jobs["wide"].entries[0].line
    assert line.served == made.now


def test_zero_patience_means_strict_order_of_arrival():
    made = driver(2, patience=0)
    made.submit(job("first"), job("wide", 2), job("small"))
    assert made.schedule() == ["first on n1[0]"]
