"""Queue lines, their entries and their heads."""

from __future__ import annotations

import math

from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.pool import Pool
from qcg.pilotjob.core.queue import MANY_LINES, Queue, QueueEntry
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.description.iteration_schedulers import MaximumIters
from tests.core.core_driver import machine, request


def queue_on(cores: int, taken: int = 0) -> Queue:
    """The queue of a run on one node, of which some cores are taken."""
    pool = Pool(machine(cores))
    pool.set_available("n1", True)
    if taken:
        assert pool.allocate(request(taken)) is not None
    return Queue(pool)


def make_job(seq: int, its: int | None = None, plan: MaximumIters | None = None) -> Job:
    job = Job(seq, f"j{seq}", b"", 0.0)
    if its is not None:
        job.iterations = Iterations(range(its), plan)
    return job


def ready(queue: Queue, job: Job, cores: int = 1, size: int | None = None) -> QueueEntry:
    entry = QueueEntry(job, queue.line(request(cores)), size)
    if job.iterations is None:
        entry.make_ready(-1)
    else:
        entry.fresh = 0
    queue.add(entry, 0.0)
    return entry


def drain(queue: Queue) -> list[tuple[int, int]]:
    """The (job, iteration) pairs taken from the heads when every request fits."""
    taken = []
    while heads := queue.heads(-1.0, math.inf):
        seq, position, _, line = heads[0]
        job = line.take(position, 0.0)
        assert job.seq == seq
        if job.iterations is None:
            job.state = State.SCHEDULED
        else:
            job.iterations.set_state(position, State.SCHEDULED)
        taken.append((seq, position))
    return taken


def test_equal_requests_share_a_line() -> None:
    queue = queue_on(4)
    assert queue.line(request(2)) is queue.line(request(2))
    assert queue.line(request(2)) is not queue.line(request((2, 2), one=True))


def test_each_wall_time_has_its_own_line() -> None:
    queue = queue_on(4)
    assert queue.line(request(2), 60.0) is queue.line(request(2), 60.0)
    assert queue.line(request(2), 60.0) is not queue.line(request(2), 61.0)
    assert queue.line(request(2), 60.0) is not queue.line(request(2))


def test_many_similar_wall_times_share_few_lines() -> None:
    queue = queue_on(4)
    times = [10.0 + number / 7 for number in range(50_000)]
    for wall_time in times:
        assert wall_time <= queue.line(request(1), wall_time).key[1] <= wall_time * 17 / 16
    assert len(queue.lines) < 500
    assert queue.line(request(1), times[5]).key[1] == times[5], "the first ones have lines of their own"


def test_an_entry_in_a_shared_line_is_a_head_as_long_as_its_own_wall_time_fits() -> None:
    queue = queue_on(4)
    for number in range(MANY_LINES):
        queue.line(request(1), 1.0 + number)
    timed(queue, 1, 86_100.0)
    assert [head[0] for head in queue.heads(-1.0, 86_279.0)] == [1]
    assert queue.heads(-1.0, 86_000.0) == []


def test_lines_with_the_same_request_share_durations() -> None:
    queue = queue_on(4)
    assert (
        queue.line(request(1), 60.0).durations
        is queue.line(request(1), 61.0).durations
        is queue.line(request(1)).durations
    )
    assert queue.line(request(1)).durations is not queue.line(request(2)).durations


def timed(queue: Queue, seq: int, wall_time: float | None) -> None:
    """An entry that replaces another one, with this wall time."""
    job = make_job(seq)
    entry = QueueEntry(job, queue.line(request(1), wall_time), wall_time)
    job.entries = (entry,)
    entry.make_ready(-1)
    queue.add(entry, 0.0)


def test_heads_skip_entries_with_too_long_wall_times() -> None:
    queue = queue_on(4)
    for seq, wall_time in enumerate([50.0, None, 49.0], 1):
        timed(queue, seq, wall_time)
    assert [head[0] for head in queue.heads(-1.0, 49.5)] == [2, 3]


def test_a_line_knows_when_it_can_never_be_served() -> None:
    assert queue_on(4).line(request(5)).never == "5 cores requested, but only 4 exist"


def test_heads_of_all_lines_are_in_order_of_arrival() -> None:
    queue = queue_on(4)
    for seq, cores in [(3, 1), (1, 2), (2, 1), (4, 2)]:
        ready(queue, make_job(seq), cores)
    assert drain(queue) == [(1, -1), (2, -1), (3, -1), (4, -1)]


def test_heads_skip_lines_that_need_more_cores_than_are_free() -> None:
    queue = queue_on(4, taken=2)
    ready(queue, make_job(1), 3)
    assert queue.heads(-1.0, math.inf) == []


def test_heads_have_lines_that_need_more_cores_than_are_free_if_another_one_could_overtake() -> None:
    queue = queue_on(4, taken=2)
    ready(queue, make_job(1), 3)
    ready(queue, make_job(2), 1)
    assert [head[0] for head in queue.heads(-1.0, math.inf)] == [1, 2]


def test_iterations_of_several_sizes_are_in_order() -> None:
    queue = queue_on(10)
    plan = MaximumIters(7, 10, 2)
    job = make_job(1, 7, plan)
    entries = [ready(queue, job, size, size) for size in plan.sizes()]
    assert len(entries) > 1
    assert drain(queue) == [(1, position) for position in range(7)]


def test_an_entry_skips_positions_that_are_not_queued() -> None:
    queue = queue_on(4)
    job = make_job(1, 5)
    ready(queue, job)
    assert job.iterations is not None
    for position in (0, 3):
        job.iterations.set_state(position, State.CANCELED)
    assert drain(queue) == [(1, 1), (1, 2), (1, 4)]


def test_an_entry_with_nothing_to_start_leaves_its_line_and_can_come_back() -> None:
    queue = queue_on(4)
    job = make_job(1, 1)
    entry = ready(queue, job)
    assert drain(queue) == [(1, 0)]
    assert not entry.in_line
    assert job.iterations is not None
    job.iterations.set_state(0, State.QUEUED)
    entry.make_ready(0)
    queue.add(entry, 0.0)
    queue.add(entry, 0.0)
    assert drain(queue) == [(1, 0)]


def test_a_repeated_iteration_keeps_its_order_among_the_others() -> None:
    queue = queue_on(4)
    job = make_job(1, 5)
    entry = ready(queue, job)
    assert job.iterations is not None
    entry.take(0)
    job.iterations.set_state(0, State.SCHEDULED)
    entry.make_ready(3)
    entry.make_ready(0)
    job.iterations.set_state(0, State.QUEUED)
    assert drain(queue) == [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4)]


def test_a_line_that_is_not_served_drops_final_jobs() -> None:
    queue = queue_on(4)
    jobs = [make_job(seq) for seq in range(1, 101)]
    for job in jobs:
        job.entries = (ready(queue, job),)
    (line,) = queue.lines.values()
    for job in jobs[:99]:
        job.state = State.CANCELED
        queue.note_final(job)
        assert len(line.entries) <= 2 * sum(one.state is State.QUEUED for one in jobs) + 1
    assert [entry.job for entry in line.entries if entry.job.state is State.QUEUED] == [jobs[99]]
    assert len(line.entries) <= 2
    assert drain(queue) == [(100, -1)]
