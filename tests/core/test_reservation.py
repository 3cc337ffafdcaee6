"""Backfill with reservations: a job may overtake a waiting job only if it does not delay it."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from qcg.pilotjob.core import reservation
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Launch, Sweep, WakeAt
from qcg.pilotjob.core.errors import SubmissionRejected
from qcg.pilotjob.core.events import (
    AttemptEnded,
    AttemptStarted,
    AttemptSwept,
    Event,
    HostReported,
    Schedule,
    Submit,
)
from qcg.pilotjob.core.forecast import ENOUGH_ENDED, MARGIN, Forecast, forecast
from qcg.pilotjob.core.node_group import NodeGroup
from qcg.pilotjob.core.records import Attempt, Job
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.model import JobDescription, ResourceRequest
from qcg.pilotjob.host.records import Ended, Started
from tests.core.core_driver import CoreDriver, job, machine, node, reported_grant
from tests.core.strategies import COUNTERS, node_lists, requests
from tests.support.tiers import per_tier


def driver(nodes: Sequence[NodeSpec], patience: float = math.inf) -> CoreDriver:
    made = CoreDriver(nodes, available=False)
    made.core = Core(nodes, patience=patience)
    made.handle(HostReported([spec.name for spec in nodes], []))
    return made


def kept(made: CoreDriver) -> reservation.Reservation:
    (found,) = made.core.state.reservations.values()
    return found


def on(host: str, description: JobDescription) -> JobDescription:
    return replace(description, request=replace(description.request, host=host))


def teach(made: CoreDriver, seconds: float, exit_code: int = 0) -> None:
    """Let enough jobs with one core and without a wall time end, each after this number of seconds."""
    for number in range(ENOUGH_ENDED):
        name = f"past-{number}"
        made.submit(job(name))
        assert len(made.schedule()) == 1
        made.start(name)
        made.now += seconds - 1.0
        made.end(name, exit_code=exit_code)


# -- who may overtake ---------------------------------------------------------------------------------------------


def test_a_job_that_ends_before_the_reserved_time_overtakes() -> None:
    made = driver(machine(4))
    made.submit(job("first", 3, wt=100), job("wide", 4), job("short", wt=50), job("long", wt=500))
    assert made.schedule() == ["first on n1[0:1:2]", "short on n1[3]"]


def test_a_job_that_would_still_run_at_the_reserved_time_waits() -> None:
    made = driver(machine(4))
    made.submit(job("first", 3, wt=100), job("wide", 4), job("long", wt=500), job("unlimited"))
    assert made.schedule() == ["first on n1[0:1:2]"]
    made.end("first")
    assert made.schedule() == ["wide on n1[0:1:2:3]"]


def test_the_clock_of_a_host_that_is_ahead_delays_no_reserved_job() -> None:
    made = driver(machine(2))
    made.submit(job("first", wt=100), job("wide", 2), job("long", wt=600))
    assert made.handle(Schedule(most=1))
    attempt = made.attempt("first")
    made.handle(AttemptStarted(Started(attempt.id, 1000, made.now + 3600, reported_grant(attempt.grant))))
    assert made.schedule() == []


def test_a_job_may_end_exactly_at_the_reserved_time() -> None:
    made = driver(machine(4))
    made.submit(job("first", 3, wt=100), job("wide", 4), job("longer", wt=100.5), job("as-long", wt=100))
    assert made.schedule() == ["first on n1[0:1:2]", "as-long on n1[3]"]


def test_cores_that_the_reserved_job_leaves_are_used_beyond_its_time() -> None:
    made = driver(machine(4, 4))
    made.submit(job("first", 4, wt=100), job("second", 1, wt=900), job("wide", 6), job("long", its=4))
    assert made.schedule() == ["first on n1[0:1:2:3]", "second on n2[0]", "long:0 on n2[1]"], "six of eight are kept"
    made.end("first")
    assert made.schedule() == ["wide on n1[0:1:2:3],n2[2:3]"]


def test_whole_nodes_are_reserved_and_others_are_used() -> None:
    made = driver(machine(2, 2, 2, 2))
    made.submit(job("a", wt=900), job("b", nodes=1, wt=50), job("wide", nodes=3), job("long", its=9))
    assert made.schedule() == ["a on n1[0]", "b on n2[0:1]", "long:0 on n1[1]"]
    made.end("b")
    assert made.schedule() == ["wide on n2[0:1],n3[0:1],n4[0:1]"]


def test_a_reservation_for_gpus_leaves_the_cores_to_others() -> None:
    made = driver([node("n1", 4, gpus=2)])
    made.submit(job("g1", gpus=1, wt=100), job("g2", gpus=1, wt=100), job("both", gpus=2), job("long", its=9))
    assert made.schedule() == ["g1 on n1[0]", "g2 on n1[1]", "long:0 on n1[2]", "long:1 on n1[3]"]


def test_a_free_gpu_is_kept_for_a_job_that_needs_two() -> None:
    made = driver([node("n1", 4, gpus=2), node("n2", 4)])
    made.submit(
        job("g1", gpus=1, wt=100), job("both", gpus=2), job("other", gpus=1, wt=500), job("brief", gpus=1, wt=9)
    )
    assert made.schedule() == ["g1 on n1[0]", "brief on n1[1]"]


def test_memory_is_kept_for_the_reserved_job() -> None:
    made = driver([node("n1", 4, memory=100)])
    made.submit(job("a", memory=60, wt=100), job("b", memory=80), job("c", memory=40), job("d", memory=20))
    assert made.schedule() == ["a on n1[0]", "d on n1[1]"]


def test_a_range_gets_what_is_not_reserved() -> None:
    made = driver(machine(4, 4))
    made.submit(job("first", 4, wt=100), job("wide", 6), job("range", (1, None)))
    assert made.schedule() == ["first on n1[0:1:2:3]", "range on n2[0:1]"]


def test_a_range_is_reserved_for_its_minimum() -> None:
    made = driver(machine(4))
    made.submit(job("first", 2, wt=100), job("second", 2, wt=200), job("range", (2, 4)), job("brief", wt=90))
    made.schedule()
    made.submit(job("free"))
    made.end("second")
    assert made.schedule() == ["range on n1[2:3]"]


def test_each_remote_host_has_reservations_of_its_own() -> None:
    made = driver([*machine(2), NodeSpec("h1", (0, 1), group="h1")])
    made.submit(job("a", wt=100), job("wide", 2), on("h1", job("b")), on("h1", job("c")), job("long"))
    assert made.schedule() == ["a on n1[0]", "b on h1[0]", "c on h1[1]"]


def test_a_job_for_any_host_is_reserved_where_it_can_start_first() -> None:
    hosts = [NodeSpec(name, (0, 1), group=name) for name in ("h1", "h2")]
    made = driver(hosts)
    made.submit(
        on("h1", job("a", wt=100)),
        on("h2", job("b", wt=50)),
        on("*", job("wide", 2)),
        on("h1", job("c")),
        on("h2", job("d")),
    )
    assert made.schedule() == ["a on h1[0]", "b on h2[0]", "c on h1[1]"]


# -- when there is no reservation -----------------------------------------------------------------------------------


def test_without_wall_times_any_job_overtakes() -> None:
    made = driver(machine(4))
    made.submit(job("first", 3), job("wide", 4), job("long", wt=500))
    assert made.schedule() == ["first on n1[0:1:2]", "long on n1[3]"]


def test_a_reservation_past_the_end_of_the_allocation_is_none() -> None:
    made = driver(machine(4))
    made.deadline(150.0)
    made.submit(job("first", 3, wt=100), job("wide", 4, wt=60), job("long", wt=120))
    assert made.schedule() == ["first on n1[0:1:2]", "long on n1[3]"]


def test_nothing_overtakes_a_job_without_reservation_that_waited_too_long() -> None:
    made = driver(machine(4), patience=10)
    made.submit(job("first", 3), job("wide", 4), job("brief", wt=1))
    made.now += 10
    made.submit(job("second"))
    assert made.schedule() == ["first on n1[0:1:2]"]


def test_a_job_with_a_reservation_is_overtaken_however_long_it_waits() -> None:
    made = driver(machine(4), patience=10)
    made.submit(job("first", 3, wt=1000), job("wide", 4))
    made.schedule()
    made.now += 500
    made.submit(job("brief", wt=100), job("long", wt=900))
    assert made.schedule() == ["brief on n1[3]"]


def test_a_job_that_is_past_its_wall_time_is_expected_to_end_now() -> None:
    made = driver(machine(2, 2))
    made.submit(job("first", wt=100), job("wide", nodes=2))
    made.schedule()
    made.now += 200
    made.submit(job("brief", wt=1), job("long"))
    assert made.schedule() == [], "its host is ending it"


def test_zero_patience_keeps_the_order_also_with_wall_times() -> None:
    made = driver(machine(4), patience=0)
    made.submit(job("first", 3, wt=100), job("wide", 4), job("brief", wt=1))
    assert made.schedule() == ["first on n1[0:1:2]"]


def test_a_job_that_needs_a_lost_node_gets_no_reservation() -> None:
    made = driver(machine(2, 2))
    made.submit(job("first", 1, wt=100), job("wide", nodes=2), job("long", its=2))
    made.lose("n2")
    assert made.schedule() == ["first on n1[0]", "long:0 on n1[1]"]


# -- durations that are learned -------------------------------------------------------------------------------------


def test_durations_are_learned_from_jobs_with_the_same_request() -> None:
    made = driver(machine(2))
    teach(made, 20.0)
    made.submit(job("first"), job("wide", 2), job("brief", wt=10), job("long", wt=900))
    assert made.schedule() == ["first on n1[0]", "brief on n1[1]"]
    assert kept(made).at == made.attempt("first").scheduled + MARGIN * 20.0


def test_jobs_without_wall_times_overtake_if_they_are_expected_to_end_in_time() -> None:
    made = driver(machine(2))
    teach(made, 20.0)
    made.submit(job("first", wt=1000), job("wide", 2), job("one"))
    assert made.schedule() == ["first on n1[0]", "one on n1[1]"]


def test_a_job_that_takes_longer_than_expected_ends_the_reservation() -> None:
    made = driver(machine(3))
    teach(made, 20.0)
    made.submit(job("first"), job("wide", 3), job("long", 2, wt=900))
    assert made.schedule() == ["first on n1[0]"]
    assert [effect.at for effect in made.effects if isinstance(effect, WakeAt)] == [kept(made).at]
    made.now = kept(made).at
    assert made.schedule() == ["long on n1[1:2]"], "as if nothing were known"


def test_nothing_learned_counts_for_overtaking_a_job_that_waited_too_long() -> None:
    made = driver(machine(2), patience=100)
    teach(made, 20.0)
    made.submit(job("first", wt=1000), job("wide", 2))
    made.schedule()
    made.now += 200
    made.submit(job("one"), job("brief", wt=30))
    assert made.schedule() == ["brief on n1[1]"]


def test_durations_are_not_learned_from_jobs_that_fail() -> None:
    made = driver(machine(2))
    teach(made, 1.0, exit_code=1)
    made.submit(job("first"), job("wide", 2), job("long", wt=900))
    assert made.schedule() == ["first on n1[0]", "long on n1[1]"]


# -- what it costs --------------------------------------------------------------------------------------------------


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[ResourceRequest]:
    """The requests for which a reservation was computed."""
    found: list[ResourceRequest] = []

    def counting(core: CoreState, group: NodeGroup, request: ResourceRequest) -> Forecast:
        found.append(request)
        return forecast(core, group, request)

    monkeypatch.setattr(reservation, "forecast", counting)
    return found


def test_nothing_is_computed_while_no_job_could_overtake(computed: list[ResourceRequest]) -> None:
    made = driver(machine(4))
    made.submit(job("first", 3, wt=100), job("wide", 4, its=10))
    made.schedule()
    made.submit(job("two", 2, wt=1))
    made.schedule()
    assert not computed


def test_a_reservation_is_kept_until_an_attempt_has_ended(computed: list[ResourceRequest]) -> None:
    made = driver(machine(6))
    made.submit(job("first", 3, wt=1000), job("wide", 6), job("long"))
    made.schedule()
    for number in range(5):
        made.submit(job(f"brief-{number}", wt=10))
        made.schedule()
    assert len(computed) == 1
    made.end("brief-0")
    made.submit(job("another"))
    made.schedule()
    assert len(computed) == 2


def test_on_many_nodes_a_reservation_outlives_a_few_ends(computed: list[ResourceRequest]) -> None:
    made = driver(machine(*[2] * 400))
    made.submit(job("first", 1, nodes=400, wt=1000), job("wide", nodes=400), job("brief", wt=10, its=300))
    made.schedule()
    assert len(computed) == 1
    made.end(*[f"brief:{index}" for index in range(10)])
    made.submit(job("x", wt=10))
    made.schedule()
    assert len(computed) == 1
    made.end(*[f"brief:{index}" for index in range(10, 200)])
    made.submit(job("y", wt=10))
    made.schedule()
    assert len(computed) == 2


# -- no starvation --------------------------------------------------------------------------------------------------


class TrueWallTimes:
    """Runs jobs that end no later than their wall times, and checks every reservation."""

    def __init__(self, nodes: list[NodeSpec]) -> None:
        self.core = Core(nodes, counters=COUNTERS)
        self.now = 1000.0
        self.ends: list[tuple[float, int, Attempt]] = []
        self.durations: dict[str, float] = {}
        self.promises: dict[str, float] = {}
        """The reserved time of each job that waits."""
        self.with_run_counters: set[str] = set()
        self.handle(HostReported([spec.name for spec in nodes], []))

    def handle(self, event: Event) -> None:
        effects = self.core.handle(event, self.now)
        for effect in effects:
            match effect:
                case Launch(attempt):
                    self.launched(attempt)
                case Sweep(attempt_id, where):
                    self.handle(AttemptSwept(attempt_id, where))
                case _:
                    pass

    def launched(self, attempt: Attempt) -> None:
        name = attempt.job.name
        promised = self.promises.pop(name, math.inf)
        assert self.now <= promised, f"{name} starts at {self.now}, and its reservation was for {promised}"
        self.take_back_promises_after(attempt.job)
        heapq.heappush(self.ends, (self.now + self.durations[name], attempt.job.seq, attempt))

    def schedule(self) -> None:
        self.handle(Schedule())
        for found in self.core.state.reservations.values():
            self.take_back_promises_after(found.job)
            if found.at < math.inf and self.core.state.jobs[found.job.name].attempt is None:
                assert found.at <= self.promises.get(found.job.name, math.inf), "a reservation became later"
                self.promises[found.job.name] = found.at
        for attempt in [attempt for attempt in self.core.state.attempts.values() if not attempt.started]:
            self.handle(AttemptStarted(Started(attempt.id, 7, self.now, reported_grant(attempt.grant))))

    def take_back_promises_after(self, job: Job) -> None:
        """A job that has waited for a counter of the run had no reservation meanwhile. Jobs behind it had one, and may
        be delayed by it."""
        if job.name in self.with_run_counters:
            self.promises = {name: at for name, at in self.promises.items() if self.core.state.jobs[name].seq < job.seq}

    def run_until(self, until: float) -> None:
        while self.ends and self.ends[0][0] <= until:
            self.now = self.ends[0][0]
            while self.ends and self.ends[0][0] == self.now:
                _, _, attempt = heapq.heappop(self.ends)
                self.handle(AttemptEnded(Ended(attempt.id, self.now, 0, "exit", "", 7, attempt.started)))
            self.schedule()
        self.now = max(self.now, until) if until < math.inf else self.now


def arrivals() -> st.SearchStrategy[list[tuple[float, ResourceRequest, float, float]]]:
    """Pauses between submissions, requests, wall times, and the part of it that a job takes."""
    one = st.tuples(
        st.sampled_from([0.0, 0.0, 1.0, 5.0]),
        requests(),
        st.sampled_from([3.0, 10.0, 25.0, 60.0]),
        st.sampled_from([0.1, 0.5, 1.0, 1.0]),
    )
    return st.lists(one, min_size=5, max_size=40)


@pytest.mark.sampled
@settings(max_examples=per_tier(75, 3000), deadline=None)
@given(node_lists(), arrivals())
def test_a_reserved_job_starts_by_its_time_if_wall_times_are_true(
    nodes: list[NodeSpec], wanted: list[tuple[float, ResourceRequest, float, float]]
) -> None:
    run = TrueWallTimes(nodes)
    for number, (pause, request, wall_time, part) in enumerate(wanted):
        run.run_until(run.now + pause)
        name = f"j{number}"
        run.durations[name] = wall_time * part
        if request.extra is not None and request.extra.of_run:
            run.with_run_counters.add(name)
        description = job(name, wt=wall_time)
        with suppress(SubmissionRejected):  # a counter or a part of a GPU that no node has
            run.handle(Submit([JobDescription(name, description.execution, request, wall_time=wall_time)]))
        run.schedule()
    run.run_until(math.inf)
    assert not run.core.state.unfinished
    assert not run.promises
