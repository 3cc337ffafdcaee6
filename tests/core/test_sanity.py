"""The sanity check finds contradictions in the core's state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qcg.pilotjob.core import sanity
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.errors import SanityError
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Cleanup, Grant
from tests.core.core_driver import CoreDriver, extra, job, node


def busy() -> CoreDriver:
    """`a` runs with a GPU, memory and counters, `it:0` runs, the other iterations are queued; `done` has ended, `late`
    waits."""
    nodes = [node("n1", 3, gpus=2, memory=100, fpga=3), node("n2", 4)]
    driver = CoreDriver(nodes, counters={"license": 4})
    driver.submit(job("done"))
    driver.schedule()
    driver.end("done")
    driver.submit(
        job("a", 2, gpus=1, memory=50, extra=extra(fpga=2, license=1)),
        job("it", 4, its=3),
        job("late", after="a"),
        job("c", 4),
    )
    driver.schedule()
    return driver


def release(core: CoreState) -> None:
    core.pool.release(next(iter(core.attempts.values())).grant)


def claim(core: CoreState) -> None:
    core.pool.claim(next(iter(core.attempts.values())).grant)


def lend_memory(core: CoreState) -> None:
    core.pool.nodes[0].memory += 1


def free_a_core(core: CoreState) -> None:
    core.pool.nodes[0].free |= 1


def count_a_core(core: CoreState) -> None:
    core.pool.nodes[0].nfree += 1


def free_cores(core: CoreState) -> None:
    core.pool.local.free_cores += 1


def idle(core: CoreState) -> None:
    core.pool.local.idle ^= 1


def mask(core: CoreState) -> None:
    core.pool.local.with_free[1] ^= 2


def gpu(core: CoreState) -> None:
    core.pool.nodes[0].gpus.append("0")


def take_a_part_of_a_gpu(core: CoreState) -> None:
    core.pool.nodes[0].gpus_taken["0"] -= 1


def contest_a_gpu(core: CoreState) -> None:
    core.pool.nodes[0].contested["0"] = 500


def count_a_counter_of_a_node(core: CoreState) -> None:
    core.pool.nodes[0].counters["fpga"] += 1


def count_a_counter_of_the_run(core: CoreState) -> None:
    core.pool.counters.free["license"] += 1


def leave_the_line(core: CoreState) -> None:
    core.jobs["c"].entries[0].line.entries.keep(lambda entry: False)


def forget_an_iteration(core: CoreState) -> None:
    core.jobs["it"].entries[0].fresh = 2


def forget_a_job(core: CoreState) -> None:
    core.jobs["c"].entries[0].fresh = None


def requeue_a_running_job(core: CoreState) -> None:
    core.jobs["a"].state = State.QUEUED


def forget_an_attempt(core: CoreState) -> None:
    core.jobs["a"].attempt = None


def count_iterations(core: CoreState) -> None:
    iterations = core.jobs["it"].iterations
    assert iterations is not None
    iterations.counts[State.QUEUED] += 1


def end_too_early(core: CoreState) -> None:
    core.jobs["it"].state = State.SUCCEED


def keep_entries_of_a_final_job(core: CoreState) -> None:
    core.jobs["done"].entries = core.jobs["c"].entries


def unregister_a_running_job(core: CoreState) -> None:
    del core.jobs["a"]


def count_jobs(core: CoreState) -> None:
    core.job_counts[State.QUEUED] += 1


def count_all_iterations(core: CoreState) -> None:
    core.iteration_counts[State.QUEUED] += 1


def stray_cleanup() -> Cleanup:
    return Cleanup("2.1", Grant(()), "n1", {"n1"}, None)


def clean_up_another_attempt(core: CoreState) -> None:
    core.cleanups["2.1"] = stray_cleanup()


def clean_up_without_reason(core: CoreState) -> None:
    cleanup = core.cleanups["2.1"] = stray_cleanup()
    cleanup.attempt = core.jobs["a"].attempt


def clean_up_without_pending_nodes(core: CoreState) -> None:
    clean_up_without_reason(core)
    core.cleanups["2.1"].pending.clear()


def clean_up_on_lost_nodes(core: CoreState) -> None:
    clean_up_without_reason(core)
    core.lost_nodes.add("n1")


DEFECTS: list[tuple[Callable[[CoreState], None], str]] = [
    (release, "0 of n1 is free and held, or neither"),
    (claim, "0 of n1 is held by 1 attempts, and 1 contest it"),
    (lend_memory, "n1 counts 51 MiB of free memory"),
    (free_a_core, "0 of n1 is free and held, or neither"),
    (count_a_core, "n1 counts 2 free cores"),
    (free_cores, "the pool counts 2 free cores, and 1 are"),
    (idle, "the pool has 1 as idle nodes, and 0 are"),
    (mask, "the pool has 11 as nodes with 1 free cores, and 1 are"),
    (gpu, "n1 has ['1', '0'] as free GPUs"),
    (take_a_part_of_a_gpu, "n1 counts {'0': 999} thousandths of GPUs, and {'0': 1000} are held"),
    (contest_a_gpu, "n1 has {'0': 500} as contested GPUs, and {} are"),
    (count_a_counter_of_a_node, "2 fpga of n1 are counted as free, and 1 are"),
    (count_a_counter_of_the_run, "4 license of the run are counted as free, and 3 are"),
    (leave_the_line, "it has a wrong `in_line`"),
    (forget_an_iteration, "it:1 is ready, and the scheduler would not find it"),
    (forget_a_job, "c is ready, and the scheduler would not find it"),
    (requeue_a_running_job, "attempt 2.1 is registered, and a is QUEUED"),
    (forget_an_attempt, "attempt 2.1 is registered, and a has another one"),
    (count_iterations, "it counts [3, 1, 0, 0, 0, 0, 0], and [2, 1, 0, 0, 0, 0, 0] are"),
    (end_too_early, "it is SUCCEED, its iterations are [2, 1, 0, 0, 0, 0, 0]"),
    (keep_entries_of_a_final_job, "done is final, and has queue entries, dependencies or holds"),
    (unregister_a_running_job, "attempt 2.1 belongs to a job that is not registered"),
    (clean_up_another_attempt, "attempt 2.1 has a cleanup with another attempt"),
    (clean_up_without_reason, "attempt 2.1 has a cleanup without a reason"),
    (clean_up_without_pending_nodes, "attempt 2.1 is gone from all its nodes, and its cleanup continues"),
    (clean_up_on_lost_nodes, "attempt 2.1 has a cleanup that waits for lost nodes"),
    (count_jobs, "the registry counts [4, 1, 0, 1, 0, 0, 0], and [3, 1, 0, 1, 0, 0, 0] are"),
    (count_all_iterations, "the registry counts iterations [3, 1, 0, 0, 0, 0, 0], and [2, 1, 0, 0, 0, 0, 0] are"),
]


@pytest.mark.parametrize(("spoil", "sentence"), DEFECTS, ids=[spoil.__name__ for spoil, _ in DEFECTS])
def test_each_contradiction_is_found(spoil: Callable[[CoreState], None], sentence: str) -> None:
    state = busy().core.state
    spoil(state)
    with pytest.raises(SanityError) as caught:
        sanity.check(state)
    assert str(caught.value) == sentence
