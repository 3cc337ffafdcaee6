"""The end of a manager: stops, warnings, deadlines, and a resumed run on other nodes."""

from __future__ import annotations

import pytest

from qcg.pilotjob.core import sanity
from qcg.pilotjob.core.can_progress import NO_TIME, UNREACHABLE_GRACE, why_over
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.events import HostReported, Warned
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.model import Sharing
from tests.core.core_driver import CoreDriver, effect_text, job, machine
from tests.core.restart import resume, save_state


def busy(*names: str) -> CoreDriver:
    driver = CoreDriver(machine(4))
    driver.submit(*[job(name) for name in names])
    driver.schedule()
    driver.start(*names)
    return driver


class Resumed(CoreDriver):
    resumed: list[str]
    """Effects of the state before a resume, and the driver of the next manager."""


def resume_on(driver: CoreDriver, nodes: list[NodeSpec]) -> Resumed:
    """The next manager."""
    other = Resumed([], available=False)
    other.now = driver.now
    other.core, effects = resume(save_state(driver.core.state), nodes, driver.now, rerun_lost=False)
    other.resumed = [effect_text(effect) for effect in effects]
    sanity.check(other.core.state)
    other.handle(HostReported([spec.name for spec in nodes], []))
    return other


def test_running_attempts_are_stopped_and_queued_again() -> None:
    driver = busy("a", "b")
    driver.submit(job("late"))
    assert driver.suspend() == ["stop a: closed", "stop b: closed"]
    assert driver.schedule() == []
    assert driver.end("a", exit_code=-15, reason="closed") == ["requeued a", "a QUEUED"]
    assert driver.end("b", exit_code=-15, reason="closed") == ["requeued b", "b QUEUED"]
    assert driver.schedule() == []
    assert driver.core.state.losses == {}


def test_a_shutdown_without_attempts_has_no_effects() -> None:
    assert CoreDriver(machine(1)).suspend() == []


def test_an_attempt_that_succeeds_before_it_is_stopped_has_succeeded() -> None:
    driver = busy("a")
    driver.suspend()
    assert driver.end("a") == ["a SUCCEED", "all done"]


def test_a_stopped_attempt_that_exits_with_an_error_is_queued_again() -> None:
    """The batch system signals every process itself."""
    driver = busy("a")
    driver.suspend()
    assert driver.end("a", exit_code=-15) == ["requeued a", "a QUEUED"]


def test_a_warned_attempt_that_fails_is_queued_again() -> None:
    driver = busy("a", "b", "c")
    assert driver.handle(Warned()) == []
    assert driver.end("a", exit_code=1) == ["requeued a", "a QUEUED"]
    assert driver.end("b") == ["b SUCCEED"]
    assert driver.end("c", exit_code=-15, reason="timeout", message="over") == ["c FAILED: over"]
    driver.schedule()
    assert driver.end("a", exit_code=1) == ["a FAILED: exit code 1", "all done"], "it had more time than it thought"


def test_a_stopped_attempt_that_exceeded_its_wall_time_fails() -> None:
    driver = busy("a")
    driver.suspend()
    assert driver.end("a", exit_code=-15, reason="timeout", message="over") == ["a FAILED: over", "all done"]


def test_a_canceled_attempt_is_not_stopped() -> None:
    driver = busy("a", "b")
    driver.cancel("a")
    assert driver.suspend() == ["stop b: closed"]
    assert driver.cancel("b")[0] == "kill b"
    assert driver.end("b", exit_code=-15, reason="closed") == ["b CANCELED"]


def test_a_stopped_attempt_that_is_lost_is_queued_again_and_not_counted() -> None:
    driver = busy("a")
    driver.suspend()
    assert driver.lose("n1") == ["requeued a", "a QUEUED"]
    assert driver.core.state.losses == {}


def test_an_attempt_closed_by_its_agent_is_queued_again() -> None:
    driver = busy("a")
    assert driver.end("a", exit_code=-15, reason="closed") == ["requeued a", "a QUEUED"]
    assert driver.schedule() == ["a (attempt 2) on n1[0]"]


def test_a_stop_is_repeated_when_the_agent_reports() -> None:
    driver = busy("a")
    driver.suspend()
    assert driver.report("n1", live=[driver.running("a")]) == ["stop a: closed"]


def test_a_second_shutdown_stops_nothing_again() -> None:
    driver = busy("a")
    driver.suspend()
    assert driver.suspend() == []


# -- deadline ------------------------------------------------------------------------------------------------------


def test_only_jobs_that_end_before_the_deadline_are_started() -> None:
    driver = CoreDriver(machine(4))
    driver.deadline(100.0)
    driver.submit(job("long", wt=200), job("short", wt=50), job("any"))
    assert driver.schedule() == ["short on n1[0]", "any on n1[1]"]
    driver.now = 99.0
    driver.submit(job("late"))
    assert driver.schedule() == [], "the deadline has passed"


def test_a_deadline_that_moves_lets_others_start() -> None:
    driver = CoreDriver(machine(4))
    driver.deadline(10.0)
    driver.submit(job("long", wt=200))
    assert driver.schedule() == []
    driver.deadline(1000.0)
    assert driver.schedule() == ["long on n1[0]"]
    driver.submit(job("longer", wt=2000))
    assert driver.schedule() == []
    driver.deadline(None)
    assert driver.schedule() == ["longer on n1[1]"]


def test_no_cores_are_kept_free_for_a_job_with_too_long_a_wall_time() -> None:
    driver = CoreDriver(machine(2), available=False)
    driver.core = Core(machine(2), patience=10)
    driver.handle(HostReported(["n1"], []))
    driver.deadline(1000.0)
    driver.submit(job("long", 2, wt=5000), job("small", its=9))
    driver.now += 100
    assert driver.schedule() == ["small:0 on n1[0]", "small:1 on n1[1]"]


# -- the outlook ---------------------------------------------------------------------------------------------------


def test_progress_is_possible_while_an_attempt_runs_or_a_job_could() -> None:
    driver = busy("a")
    assert why_over(driver.core.state, driver.now) is None
    driver.deadline(driver.now)
    assert why_over(driver.core.state, driver.now) is None, "it runs"
    driver.end("a")
    assert why_over(driver.core.state, driver.now) is None, "nothing is left"
    driver.submit(job("b"))
    assert why_over(driver.core.state, driver.now) == NO_TIME


def test_no_progress_is_possible_when_every_wall_time_is_too_long() -> None:
    driver = CoreDriver(machine(4))
    driver.deadline(100.0)
    driver.submit(job("long", wt=200), job("after", after="long"))
    assert why_over(driver.core.state, driver.now) == NO_TIME
    driver.submit(job("short", wt=20))
    assert why_over(driver.core.state, driver.now) is None


def test_a_lost_node_is_awaited_for_the_patience() -> None:
    driver = CoreDriver(machine(2, 2), available=False)
    driver.core = Core(machine(2, 2), patience=100)
    driver.report("n1", "n2")
    driver.submit(job("wide", nodes=2))
    driver.lose("n2")
    lost = driver.now
    assert why_over(driver.core.state, lost + 99) is None
    sentence = why_over(driver.core.state, lost + 100)
    assert sentence is not None
    assert sentence.endswith("2 nodes requested, but only 1 exists")
    driver.report("n2")
    assert why_over(driver.core.state, lost + 1000) is None


def test_a_node_that_never_came_is_awaited_from_the_first_check_on() -> None:
    driver = CoreDriver(machine(2, 2), available=False)
    driver.core = Core(machine(2, 2), patience=100)
    driver.report("n1")
    driver.submit(job("wide", nodes=2))
    assert why_over(driver.core.state, 1000.0) is None
    assert why_over(driver.core.state, 1099.0) is None
    assert why_over(driver.core.state, 1100.0) is not None


def test_a_node_whose_agent_is_starting_is_awaited_without_patience() -> None:
    driver = CoreDriver(machine(2), available=False)
    driver.core = Core(machine(2), patience=0)
    driver.submit(job("a"))
    assert why_over(driver.core.state, 1000.0) is None
    assert why_over(driver.core.state, 1000.0 + UNREACHABLE_GRACE - 1) is None
    assert why_over(driver.core.state, 1000.0 + UNREACHABLE_GRACE) is not None


# -- other nodes ---------------------------------------------------------------------------------------------------


def test_a_stopped_attempt_is_repeated_on_other_nodes() -> None:
    driver = busy("a")
    driver.suspend()
    other = resume_on(driver, [NodeSpec("x", (4, 5))])
    assert other.resumed == ["requeued a", "a QUEUED"]
    assert other.schedule() == ["a (attempt 2) on x[4]"]


def test_an_attempt_that_was_not_stopped_is_lost_with_its_node() -> None:
    other = resume_on(busy("a"), [NodeSpec("x", (4, 5))])
    assert other.resumed[0] == "a FAILED: the node it ran on is not part of this run any more"


def test_a_job_that_no_longer_fits_waits_for_larger_nodes() -> None:
    driver = CoreDriver(machine(4, 4), available=False)
    driver.submit(job("wide", 8), job("pair", nodes=2), job("small"), job("after", after="wide"))
    small = resume_on(driver, machine(2))
    assert small.schedule() == ["small on n1[0]"]
    assert why_over(small.core.state, small.now) is None
    small.end("small")
    sentence = why_over(small.core.state, small.now)
    assert sentence is not None
    assert sentence.endswith("2 nodes requested, but only 1 exists")
    large = resume_on(small, machine(8, 8))
    assert large.schedule() == ["wide on n1[0:1:2:3:4:5:6:7]"]
    large.end("wide")
    assert large.schedule() == ["pair on n1[0:1:2:3:4:5:6:7],n2[0:1:2:3:4:5:6:7]"]
    large.end("pair")
    assert large.schedule() == ["after on n1[0]"]


def test_a_new_job_that_is_too_large_fails() -> None:
    driver = resume_on(CoreDriver(machine(4)), machine(2))
    assert driver.submit(job("wide", 3)) == ["wide FAILED: 3 cores requested, but only 2 exist", "all done"]


@pytest.mark.parametrize(
    ("sharing", "launched"),
    [
        (Sharing("maximum-iters", "cores"), ["it:0 on n1[0:1:2:3]"]),
        (Sharing("split-into", "cores", 2), ["it:0 on n1[0:1:2]"]),
    ],
)
def test_a_share_below_the_minimum_becomes_the_minimum(sharing: Sharing, launched: list[str]) -> None:
    driver = CoreDriver(machine(8), available=False)
    driver.submit(job("it", (3, None), its=2, sharing=sharing))
    other = resume_on(driver, machine(4))
    assert other.schedule() == launched
    nothing = resume_on(driver, machine(2))
    assert nothing.schedule() == []
    assert nothing.states() == {"it": "QUEUED"}


def test_an_attempt_that_failed_before_the_shutdown_is_not_queued_again_when_its_last_node_answers() -> None:
    driver = CoreDriver(machine(1, 1), sweeping=False)
    driver.submit(job("a", nodes=2))
    driver.schedule()
    driver.start("a")
    assert driver.end("a", exit_code=1) == ["sweep 1.1 on n2"]
    assert driver.suspend() == []
    assert driver.sweep("a", "n2") == ["a FAILED: exit code 1", "all done"]


def test_an_attempt_that_ended_before_its_nodes_confirmed_is_queued_again_with_the_allocation() -> None:
    driver = CoreDriver(machine(1, 1), sweeping=False)
    driver.submit(job("a", nodes=2))
    driver.schedule()
    driver.start("a")
    driver.end("a")
    assert driver.suspend() == []
    assert driver.lose("n1", "n2") == ["requeued a", "a QUEUED"]


def test_an_exit_code_counts_again_when_the_end_was_put_off_after_a_warning() -> None:
    driver = busy("a")
    driver.deadline(driver.now)
    driver.handle(Warned())
    driver.deadline(driver.now + 3600)
    assert driver.end("a", exit_code=1)[0] == "a FAILED: exit code 1"
