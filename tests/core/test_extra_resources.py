"""Named counters of the run and of nodes, and parts of GPUs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from qcg.pilotjob.core import sanity
from qcg.pilotjob.core.can_progress import why_over
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.errors import SubmissionRejected
from qcg.pilotjob.core.events import HostReported, Schedule
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.model import ExtraResources, JobDescription
from qcg.pilotjob.host.records import Running
from tests.core.core_driver import CoreDriver, extra, job, machine, node, reported_grant
from tests.core.restart import resume, save_state
from tests.core.test_prefill import ShortJobs
from tests.core.test_why import why

LICENSE = extra(license=1)


def licensed(cores: int, licenses: int, patience: float = float("inf")) -> CoreDriver:
    driver = CoreDriver(machine(cores), available=False)
    driver.core = Core(machine(cores), patience=patience, counters={"license": licenses})
    driver.handle(HostReported(["n1"], []))
    return driver


def on_host(description: JobDescription, host: str) -> JobDescription:
    return replace(description, request=replace(description.request, host=host))


def gpus_of(driver: CoreDriver, *names: str) -> list[tuple[str, ...]]:
    return [driver.attempt(name).grant.parts[0].gpus for name in names]


# -- counters of the run ----------------------------------------------------------------------------------------------


def test_no_more_jobs_run_at_once_than_a_counter_allows() -> None:
    driver = licensed(8, 2)
    driver.submit(job("it", extra=LICENSE, its=4), job("plain"))
    assert driver.schedule() == ["it:0 on n1[0]", "it:1 on n1[1]", "plain on n1[2]"]
    driver.end("it:0")
    assert driver.schedule() == ["it:2 on n1[0]"]


def test_a_counter_counts_once_for_a_job_on_many_nodes() -> None:
    driver = CoreDriver(machine(1, 1, 1), counters={"license": 2})
    driver.submit(job("wide", nodes=3, extra=extra(license=2)))
    assert driver.schedule() == ["wide on n1[0],n2[0],n3[0]"]
    assert driver.core.state.pool.counters.free == {"license": 0}


def test_a_counter_is_held_until_the_end_is_reported_however_the_attempt_ends() -> None:
    driver = licensed(8, 1)
    driver.submit(job("a", extra=LICENSE), job("b", extra=LICENSE), job("c", extra=LICENSE))
    driver.schedule()
    driver.cancel("a")
    assert driver.schedule() == [], "a is being killed, and has its license until it has ended"
    driver.end("a", exit_code=-15, reason="cancel")
    assert driver.schedule() == ["b on n1[0]"]
    driver.end("b", exit_code=1)
    assert driver.schedule() == ["c on n1[0]"]


def test_a_counter_of_a_lost_node_is_free_again() -> None:
    driver = CoreDriver(machine(1, 1), counters={"license": 1})
    driver.submit(job("a", extra=LICENSE), job("b", extra=LICENSE))
    assert driver.schedule() == ["a on n1[0]"]
    driver.lose("n1")
    assert driver.schedule() == ["b on n2[0]"]


@pytest.mark.parametrize("known", [True, False], ids=["in the journal", "not in the journal"])
def test_counters_are_right_after_a_crash_of_the_manager(known: bool) -> None:
    driver = licensed(8, 3)
    driver.submit(job("a", extra=extra(license=2)), job("b", extra=LICENSE), job("c", extra=LICENSE))
    before = save_state(driver.core.state)
    driver.schedule()
    driver.start("a", "b")
    attempts = [driver.attempt(name) for name in ("a", "b")]
    saved = save_state(driver.core.state) if known else before
    core, _ = resume(saved, machine(8), driver.now, rerun_lost=False, counters={"license": 3})
    live = [Running(attempt.id, 1000, 1.0, reported_grant(attempt.grant)) for attempt in attempts]
    core.handle(HostReported(["n1"], live), driver.now + 1)
    sanity.check(core.state)
    assert core.state.pool.counters.free == {"license": 0}
    assert core.handle(Schedule(), driver.now + 2) == []


def test_a_run_that_is_resumed_with_fewer_waits_until_enough_are_free() -> None:
    driver = licensed(8, 3)
    driver.submit(job("a", extra=extra(license=3)), job("b", extra=LICENSE), job("c", extra=extra(license=2)))
    driver.schedule()
    core, _ = resume(save_state(driver.core.state), machine(8), driver.now, rerun_lost=False, counters={"license": 1})
    assert core.state.pool.counters.free == {"license": -2}
    resumed = CoreDriver(machine(8), available=False)
    resumed.core, resumed.now = core, driver.now
    resumed.report("n1", live=[driver.running("a")])
    assert resumed.schedule() == []
    resumed.end("a")
    assert resumed.schedule() == ["b on n1[0]"]
    resumed.end("b")
    assert resumed.schedule() == [], "no manager of this run can start c"
    assert why_over(core.state, resumed.now) == (
        "the remaining nodes cannot satisfy any request: 2 license requested, but this run has 1"
    )


def test_a_job_that_waited_too_long_for_a_counter_is_not_overtaken_by_others_that_need_it() -> None:
    driver = licensed(8, 2, patience=10)
    driver.submit(job("first", extra=LICENSE), job("both", extra=extra(license=2)), job("it", extra=LICENSE, its=20))
    assert driver.schedule() == ["first on n1[0]", "it:0 on n1[1]"]
    driver.end("it:0")
    assert driver.schedule() == ["it:1 on n1[1]"], "it has not waited long"
    driver.now += 10
    driver.end("it:1")
    assert driver.schedule() == [], "the license is kept"
    driver.submit(job("plain"))
    assert driver.schedule() == ["plain on n1[1]"], "no core is kept for a job that waits for licenses"
    driver.end("first")
    assert driver.schedule() == ["both on n1[0]"]


def test_cores_are_kept_for_a_job_that_waited_too_long_once_it_has_its_counters() -> None:
    driver = licensed(2, 1, patience=10)
    driver.submit(job("a", extra=LICENSE), job("wide", 2, extra=LICENSE), job("it", its=20))
    assert driver.schedule() == ["a on n1[0]", "it:0 on n1[1]"]
    driver.now += 10
    driver.end("it:0")
    assert driver.schedule() == ["it:1 on n1[1]"]
    driver.end("a")
    assert driver.schedule() == []
    driver.end("it:1")
    assert driver.schedule() == ["wide on n1[0:1]"]


def test_a_counter_is_kept_for_a_job_with_a_reservation() -> None:
    driver = licensed(4, 1)
    driver.submit(job("first", 3, wt=100), job("wide", 4, extra=LICENSE), job("short", extra=LICENSE, wt=50))
    driver.submit(job("brief", wt=50))
    assert driver.schedule() == ["first on n1[0:1:2]", "brief on n1[3]"]
    driver.end("brief")
    driver.submit(job("long", wt=500))
    assert driver.schedule() == [], "wide has its reservation although short would end in time"
    reason = why(driver, "short")
    assert reason.kind == "reservation"
    assert reason.details["behind"] == "wide"
    driver.end("first")
    assert driver.schedule() == ["wide on n1[0:1:2:3]"]


def test_counters_that_a_job_with_a_reservation_leaves_are_used_beyond_its_time() -> None:
    driver = licensed(8, 2)
    driver.submit(job("first", 6, wt=100), job("wide", 7, extra=LICENSE), job("long", extra=LICENSE, its=2))
    assert driver.schedule() == ["first on n1[0:1:2:3:4:5]", "long:0 on n1[6]"]
    driver.end("first")
    assert driver.schedule() == ["wide on n1[0:1:2:3:4:5:7]"]


# -- prefill ----------------------------------------------------------------------------------------------------------


def short_licensed_jobs(cores: int, licenses: int) -> ShortJobs:
    driver = ShortJobs(machine(cores), counters={"license": licenses})
    driver.submit(job("it", extra=LICENSE, its=100))
    driver.schedule()
    driver.over("it:0")
    return driver


def test_lanes_hold_a_counter_once() -> None:
    driver = short_licensed_jobs(4, 1)
    sent = driver.sent()
    assert sent[:3] == ["it:1", "it:2 behind it:1", "it:3 behind it:2"]
    assert sum("behind" not in one for one in sent) == 1
    assert driver.core.state.pool.counters.free == {"license": 0}
    for index in range(1, 100):
        driver.over(f"it:{index}")
    assert driver.core.state.pool.counters.free == {"license": 1}


def test_a_job_that_waits_for_a_counter_is_not_overtaken_in_lanes() -> None:
    driver = short_licensed_jobs(4, 2)
    driver.sent()
    driver.over(*[f"it:{index}" for index in range(1, 100)])
    driver.submit(job("long", extra=LICENSE))
    driver.sent()
    driver.submit(job("both", extra=extra(license=2)), job("more", extra=LICENSE, its=5))
    assert driver.sent() == ["more:0"], "both does not fit, and nothing is sent ahead of it for its licenses"


def test_a_job_that_waits_for_a_counter_keeps_others_out_of_no_lane() -> None:
    driver = ShortJobs(machine(2), counters={"license": 1})
    driver.submit(job("it", its=10))
    driver.schedule()
    driver.over("it:0")
    driver.cancel("it")
    driver.over("it:1", reason="cancel")
    driver.submit(job("a", extra=LICENSE), job("b", extra=LICENSE), job("plain", its=3))
    assert driver.sent() == ["a", "plain:0", "plain:1 behind plain:0", "plain:2 behind plain:1"]


# -- counters of nodes ------------------------------------------------------------------------------------------------


def test_a_job_runs_on_a_node_that_has_its_counter_free() -> None:
    driver = CoreDriver([node("n1", 4), node("n2", 4, fpga=2)])
    driver.submit(job("it", extra=extra(fpga=1), its=3))
    assert driver.schedule() == ["it:0 on n2[0]", "it:1 on n2[1]"]
    driver.end("it:0")
    assert driver.schedule() == ["it:2 on n2[0]"]


def test_a_counter_of_nodes_is_taken_on_each_node() -> None:
    driver = CoreDriver([node("n1", 4, fpga=1), node("n2", 4, fpga=1), node("n3", 4, fpga=1)])
    driver.submit(
        job("two", nodes=2, extra=extra(fpga=1)), job("one", extra=extra(fpga=1)), job("late", extra=extra(fpga=1))
    )
    assert driver.schedule() == ["two on n1[0:1:2:3],n2[0:1:2:3]", "one on n3[0]"]


def test_a_host_behind_a_batch_system_has_counters() -> None:
    slots = NodeSpec("h1", (0, 1, 2), group="h1", slots=True, counters=(("fpga", 1),))
    driver = CoreDriver([*machine(1), slots])
    wanted = [job("a", 5, extra=extra(fpga=1)), job("b", extra=extra(fpga=1)), job("c")]
    driver.submit(*[on_host(one, "h1") for one in wanted])
    assert driver.schedule() == ["a on h1[0]", "c on h1[1]"]
    driver.end("a")
    assert driver.schedule() == ["b on h1[0]"]


def test_a_host_behind_a_batch_system_gives_no_part_of_a_gpu() -> None:
    slots = NodeSpec("h1", (0, 1, 2), group="h1", slots=True)
    driver = CoreDriver([*machine(1), slots])
    assert driver.submit(on_host(job("a", extra=extra(500)), "h1")) == [
        "a FAILED: on host h1: 0.5 GPU requested, but jobs go through a batch system there, which gives whole GPUs"
        " only",
        "all done",
    ]


# -- parts of GPUs ----------------------------------------------------------------------------------------------------


def test_jobs_share_a_gpu() -> None:
    driver = CoreDriver([node("n1", 8, gpus=2)])
    driver.submit(job("it", extra=extra(500), its=5))
    driver.schedule()
    assert gpus_of(driver, "it:0", "it:1", "it:2", "it:3") == [("0",), ("0",), ("1",), ("1",)]
    driver.end("it:2")
    driver.schedule()
    assert gpus_of(driver, "it:4") == [("1",)]


def test_a_whole_gpu_needs_an_unused_one() -> None:
    driver = CoreDriver([node("n1", 8, gpus=2)])
    driver.submit(job("part", extra=extra(100)), job("whole", gpus=1), job("another", gpus=1))
    assert driver.schedule() == ["part on n1[0]", "whole on n1[1]"]
    assert gpus_of(driver, "part", "whole") == [("0",), ("1",)]
    driver.end("part")
    assert driver.schedule() == ["another on n1[0]"]


def test_a_part_comes_from_the_fullest_gpu_that_has_room() -> None:
    driver = CoreDriver([node("n1", 8, gpus=3)])
    driver.submit(
        job("a", extra=extra(600)), job("b", extra=extra(700)), job("c", extra=extra(300)), job("d", extra=extra(400))
    )
    driver.schedule()
    assert gpus_of(driver, "a", "b", "c", "d") == [("0",), ("1",), ("1",), ("0",)]
    assert driver.core.state.pool.nodes[0].gpus == ["2"]


def test_thirds_of_a_gpu_are_exact() -> None:
    driver = CoreDriver([node("n1", 8, gpus=1)])
    driver.submit(job("it", extra=extra(333), its=4), job("tenths", extra=extra(100), its=1))
    assert driver.schedule() == ["it:0 on n1[0]", "it:1 on n1[1]", "it:2 on n1[2]"]
    driver.end("it:0")
    assert driver.core.state.pool.nodes[0].gpus_taken == {"0": 666}


def test_parts_of_a_gpu_are_right_after_a_crash_of_the_manager() -> None:
    nodes = [node("n1", 8, gpus=1)]
    driver = CoreDriver(nodes)
    driver.submit(job("it", extra=extra(500), its=3))
    driver.schedule()
    driver.start("it:0", "it:1")
    live = [driver.running("it:0"), driver.running("it:1")]
    core, _ = resume(save_state(driver.core.state), nodes, driver.now, rerun_lost=False)
    core.handle(HostReported(["n1"], live), driver.now + 1)
    sanity.check(core.state)
    assert core.state.pool.nodes[0].gpus_taken == {"0": 1000}
    assert not core.state.pool.nodes[0].contested


def test_half_a_gpu_where_there_is_none_fails_the_job() -> None:
    driver = CoreDriver(machine(2))
    assert driver.submit(job("a", extra=extra(500))) == [
        "a FAILED: 0.5 GPU on a node requested, but no node has that",
        "all done",
    ]


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        (extra(licence=1), 'it needs 1 licence, and this run has no resource of that name; did you mean "license"?'),
        (extra(license=5), "it needs 5 license, and this run has only 4"),
        (extra(disk=1), "it needs 1 disk, and this run has no resource of that name; known here: fpga, license"),
        (extra(fpga=3), "it needs 3 fpga on a node, and no node has more than 2"),
    ],
)
def test_requests_for_more_than_the_run_has_are_refused(wanted: ExtraResources, sentence: str) -> None:
    driver = CoreDriver([node("n1", 4, fpga=2)], counters={"license": 4})
    with pytest.raises(SubmissionRejected) as caught:
        driver.submit(job("a", extra=wanted))
    assert str(caught.value) == f"job 'a': {sentence}"
    assert not driver.core.state.jobs


# -- explanations ------------------------------------------------------------------------------------------------------


def test_why_names_the_jobs_that_hold_a_counter() -> None:
    driver = licensed(8, 4)
    driver.submit(job("it", extra=LICENSE, its=4), job("b", extra=LICENSE), job("c", extra=extra(license=2)))
    driver.schedule()
    reason = why(driver, "b")
    assert (reason.kind, reason.sentence) == (
        "resources",
        "it needs 1 license; all 4 of this run are taken by 'it:0', 'it:1', 'it:2' and 1 more",
    )
    holders = ["it:0", "it:1", "it:2", "it:3"]
    assert reason.details["named"] == {"license": {"wanted": 1, "free": 0, "total": 4, "holders": holders}}
    assert reason.details["wanted"]["named"] == {"license": 1}
    driver.end("it:0", "it:1", "it:2")
    driver.schedule()
    driver.end("b")
    driver.submit(job("d", extra=extra(license=4)))
    assert why(driver, "d").sentence == ("it needs 4 license; 3 of the 4 of this run are taken by 'it:3' and 'c'")


def test_why_names_the_job_for_which_a_counter_is_kept() -> None:
    driver = licensed(8, 2, patience=10)
    driver.submit(job("first", extra=LICENSE), job("both", extra=extra(license=2)))
    driver.schedule()
    driver.now += 10
    driver.submit(job("late", extra=LICENSE))
    driver.schedule()
    reason = why(driver, "late")
    assert (reason.kind, reason.details["behind"]) == ("patience", "both")
    assert reason.sentence == (
        "its request, 1 core and 1 license, fits, but it may not overtake 'both', which needs 1 core and 2 license and"
        " has waited longer than the patience of 10 s"
    )


def test_why_explains_waits_for_a_counter_of_a_node_or_a_part_of_a_gpu() -> None:
    driver = CoreDriver([node("n1", 8, gpus=1, fpga=1)])
    driver.submit(job("a", extra=extra(700, fpga=1)), job("b", extra=extra(fpga=1)), job("c", extra=extra(500)))
    driver.schedule()
    assert why(driver, "b").sentence == "it needs 1 core on one node and 1 fpga, and no node has 1 fpga free"
    assert why(driver, "c").sentence == (
        "it needs 1 core on one node and 0.5 GPU, and no node has 0.5 GPU free; 1 job ahead of it"
    )
    assert why(driver, "c").details["wanted"]["gpus"] == 0.5


def test_no_start_is_promised_that_a_job_ahead_without_its_counters_may_prevent() -> None:
    driver = licensed(4, 1, patience=1000.0)
    driver.submit(
        job("lic", extra=LICENSE, wt=8, priority=20),
        job("hi", 4, extra=LICENSE, wt=8, priority=10),
        job("wide", 4, wt=5),
    )
    driver.schedule()
    driver.start("lic")
    sentence = why(driver, "wide").sentence
    assert "expected to start by" in sentence
    assert sentence.endswith(", unless 'hi' starts first, which is ahead and waits for named resources")
    driver.end("lic")
    assert driver.schedule() == ["hi on n1[0:1:2:3]"]


def test_a_job_behind_that_lacks_counters_takes_nothing_from_a_promised_start() -> None:
    driver = licensed(4, 1, patience=1000.0)
    driver.submit(job("lic", extra=LICENSE, wt=8), job("wide", 4, wt=5), job("late", 4, extra=LICENSE, wt=8))
    driver.schedule()
    driver.start("lic")
    assert "unless" not in why(driver, "wide").sentence
