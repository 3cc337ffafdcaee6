"""Jobs for remote hosts: each host is a group of nodes of its own."""

from __future__ import annotations

import msgspec
import pytest

from qcg.pilotjob.core.can_progress import why_over
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.errors import SubmissionRejected
from qcg.pilotjob.core.events import HostReported, HostUnreachable, Submit
from qcg.pilotjob.core.named_jobs import find
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.core.why import Reason, WaitExplainer
from qcg.pilotjob.description.model import JobDescription, Remote, Sharing
from tests.core.core_driver import CoreDriver, job, machine
from tests.core.restart import resume, save_state
from tests.core.test_prefill import ShortJobs


def host(name: str, cores: int, *, slots: bool = False, owner: str = "") -> NodeSpec:
    return NodeSpec(name, tuple(range(cores)), group=name, slots=slots, owner=owner)


def remote(described: JobDescription, where: str, owner: str = "") -> JobDescription:
    wanted = msgspec.structs.replace(described.request, host=where)
    return msgspec.structs.replace(described, request=wanted, remote=Remote(owner=owner))


def impatient(*nodes: NodeSpec, patience: float) -> CoreDriver:
    driver = CoreDriver(nodes, available=False)
    driver.core = Core(nodes, patience=patience)
    driver.handle(HostReported([spec.name for spec in nodes], []))
    return driver


def next_manager(driver: CoreDriver, nodes: list[NodeSpec]) -> CoreDriver:
    """The driver of a core that is restored from the state of another one; no host has connected yet."""
    again = CoreDriver(nodes, available=False)
    again.core, _ = resume(save_state(driver.core.state), nodes, driver.now, rerun_lost=False)
    again.now = driver.now
    return again


def refusal(driver: CoreDriver, described: JobDescription) -> str:
    with pytest.raises(SubmissionRejected) as refused:
        driver.handle(Submit([described]))
    (sentence,) = refused.value.sentences
    return sentence


def why(driver: CoreDriver, name: str) -> Reason:
    found = find(driver.core.state, name)
    assert not isinstance(found, str), found
    asked, position = found
    assert asked.spec is not None
    description = msgspec.msgpack.decode(asked.spec, type=JobDescription)
    explainer = WaitExplainer(driver.core.state, driver.now, show_time=lambda at: f"second {at:g}")
    return explainer.why_waiting(asked, position, description)


# -- where jobs run ----------------------------------------------------------------------------------------------------


def test_a_job_runs_on_the_nodes_of_the_run_unless_it_names_a_host():
    driver = CoreDriver([*machine(1), host("wizard", 2)])
    driver.submit(job("a"), remote(job("b"), "wizard"), job("c"))
    assert driver.schedule() == ["a on n1[0]", "b on wizard[0]"]
    driver.end("a")
    assert driver.schedule() == ["c on n1[0]"]


def test_a_full_host_keeps_no_job_of_other_nodes_waiting():
    driver = CoreDriver([*machine(2), host("wizard", 1), host("witch", 1)])
    driver.submit(remote(job("w", its=5), "wizard"), job("a", its=2), remote(job("x"), "witch"))
    assert driver.schedule() == ["w:0 on wizard[0]", "a:0 on n1[0]", "a:1 on n1[1]", "x on witch[0]"]


def test_a_job_never_spreads_over_the_nodes_of_two_groups():
    driver = CoreDriver([*machine(2), host("wizard", 2)])
    assert driver.submit(job("a", 3)) == ["a FAILED: 3 cores requested, but only 2 exist", "all done"]
    assert driver.submit(remote(job("b", 3), "*")) == [
        "b FAILED: on host wizard: 3 cores requested, but only 2 exist",
        "all done",
    ]


def test_a_job_for_any_host_runs_on_the_one_with_the_most_free_cores():
    driver = CoreDriver([*machine(8), host("wizard", 2), host("witch", 3)])
    driver.submit(remote(job("a", its=7), "*"))
    assert driver.schedule() == [
        "a:0 on witch[0]",
        "a:1 on wizard[0]",
        "a:2 on witch[1]",
        "a:3 on wizard[1]",
        "a:4 on witch[2]",
    ]


def test_a_job_for_any_host_moves_to_another_host_when_its_host_returns_it():
    driver = CoreDriver([*machine(1), host("wizard", 2), host("witch", 1)])
    driver.submit(remote(job("a"), "*"))
    assert driver.schedule() == ["a on wizard[0]"]
    assert driver.report("wizard") == ["requeued a", "a QUEUED"]
    driver.silent("wizard")
    assert driver.schedule() == ["a (attempt 2) on witch[0]"]


def test_each_attempt_on_a_host_behind_a_batch_system_takes_one_slot():
    driver = CoreDriver([*machine(1), host("cluster", 2, slots=True)])
    driver.submit(
        remote(job("wide", 64), "cluster"),
        remote(job("nodes", nodes=4, gpus=2, memory=9000), "cluster"),
        remote(job("third"), "cluster"),
    )
    assert driver.schedule() == ["wide on cluster[0]", "nodes on cluster[1]"]
    assert why(driver, "third").sentence == "it needs 1 core; on host cluster all job slots are taken"
    driver.end("wide")
    assert driver.schedule() == ["third on cluster[0]"]


def test_a_job_for_any_host_fits_on_a_host_behind_a_batch_system():
    driver = CoreDriver([*machine(1), host("wizard", 2), host("cluster", 1, slots=True)])
    driver.submit(remote(job("wide", 64), "*"))
    assert driver.schedule() == ["wide on cluster[0]"]


# -- patience and prefill ----------------------------------------------------------------------------------------------


def test_a_job_that_waited_too_long_keeps_only_the_cores_of_its_host_free():
    driver = impatient(*machine(1), host("wizard", 2), patience=10)
    driver.submit(remote(job("runs"), "wizard"), remote(job("wide", 2), "wizard"))
    assert driver.schedule() == ["runs on wizard[0]"]
    driver.now += 100
    driver.submit(remote(job("small"), "wizard"), job("here"))
    assert driver.schedule() == ["here on n1[0]"]
    assert why(driver, "small").sentence.startswith("its request, 1 core, fits, but it may not overtake 'wide'")
    driver.end("runs")
    assert driver.schedule() == ["wide on wizard[0:1]"]


def test_for_a_job_for_any_host_that_waited_too_long_one_host_is_kept_free():
    driver = impatient(host("wizard", 2), host("witch", 2), patience=10)
    driver.submit(*[remote(job(f"runs{number}", 1), "*") for number in range(4)], remote(job("wide", 2), "*"))
    assert len(driver.schedule()) == 4
    driver.now += 100
    driver.submit(remote(job("small", its=10), "*"))
    driver.end("runs0", "runs1")
    assert driver.schedule() == ["small:0 on witch[0]"], "wizard is kept for the wide job"
    assert why(driver, "wide").sentence.endswith("so free resources are kept for it")
    driver.end("runs2" if driver.attempt("runs2").grant.parts[0].node == "wizard" else "runs3")
    assert driver.schedule() == ["wide on wizard[0:1]"]


def test_a_host_that_is_away_blocks_no_job():
    driver = impatient(host("wizard", 2), host("witch", 2), patience=10)
    driver.silent("wizard")
    driver.submit(remote(job("waits"), "wizard"))
    driver.now += 100
    driver.submit(remote(job("any"), "*"))
    assert driver.schedule() == ["any on witch[0]"]


def test_short_jobs_are_prefilled_on_each_host_separately():
    driver = ShortJobs([*machine(1), host("wizard", 1)])
    driver.submit(job("a", its=20), remote(job("b", its=20), "wizard"))
    assert driver.sent() == ["a:0", "b:0"]
    driver.over("a:0", "b:0")
    lines = driver.sent()
    assert "a:2 behind a:1" in lines
    assert "b:2 behind b:1" in lines


def test_a_host_whose_first_job_cannot_be_prefilled_does_not_stop_other_nodes():
    driver = ShortJobs([*machine(1), host("wizard", 2)])
    driver.submit(job("a", its=20), remote(job("long", 2), "wizard"), remote(job("wide", 2), "wizard"))
    driver.sent()
    driver.over("a:0")
    assert "a:2 behind a:1" in driver.sent()


def test_nothing_is_prefilled_on_a_batch_system():
    driver = ShortJobs([*machine(1), host("cluster", 1, slots=True)])
    driver.submit(remote(job("a", its=20), "cluster"))
    driver.sent()
    driver.over("a:0")
    assert driver.sent() == ["a:1"]


# -- sizes ---------------------------------------------------------------------------------------------------------


def test_iteration_schedulers_share_out_the_cores_of_the_host():
    driver = CoreDriver([*machine(8), host("wizard", 4), host("witch", 6)])
    shared = job("a", (1, None), its=2, sharing=Sharing("maximum-iters", "cores"))
    driver.submit(remote(shared, "wizard"))
    assert driver.schedule() == ["a:0 on wizard[0:1]", "a:1 on wizard[2:3]"]
    driver.submit(remote(msgspec.structs.replace(shared, name="b"), "*"))
    assert driver.schedule() == ["b:0 on witch[0:1:2]", "b:1 on witch[3:4:5]"]


def test_a_batch_system_has_no_cores_to_share_out():
    driver = CoreDriver([host("cluster", 4, slots=True)])
    shared = job("a", (1, None), its=2, sharing=Sharing("split-into", "cores"))
    assert "may run jobs through a batch system" in refusal(driver, remote(shared, "cluster"))


# -- refusals ------------------------------------------------------------------------------------------------------


def test_an_unknown_host_is_refused_with_the_nearest_name():
    driver = CoreDriver([*machine(1), host("wizard", 1)])
    assert refusal(driver, remote(job("a"), "wizzard")) == (
        'job \'a\': there is no host "wizzard"; did you mean "wizard"? hosts are configured in'
        " ~/.config/qcg-pm/hosts.toml, or in the file given with --hosts"
    )


@pytest.mark.parametrize(("name", "shown"), [("wizard", 'host "wizard"'), ("*", "any host")])
def test_a_remote_job_without_configured_hosts_is_refused(name: str, shown: str):
    sentence = refusal(CoreDriver(machine(1)), remote(job("a"), name))
    assert sentence.startswith(f"job 'a': it is for {shown}, and no remote host is configured; hosts are configured in")


def test_the_owner_must_be_that_of_the_host():
    driver = CoreDriver([host("wizard", 1, owner="hobo"), host("witch", 1)])
    driver.submit(remote(job("a"), "wizard", owner="hobo"))
    assert refusal(driver, remote(job("b"), "wizard", owner="root")) == (
        'job \'b\': its owner is "root", and host "wizard" has the owner "hobo" in hosts.toml; change one of them'
    )
    assert 'host "witch" has no owner in hosts.toml' in refusal(driver, remote(job("c"), "witch", owner="hobo"))


# -- explanations --------------------------------------------------------------------------------------------------


def test_a_job_for_a_host_that_is_away_is_explained_with_the_reason():
    driver = CoreDriver([*machine(1), host("wizard", 1)], available=False)
    driver.report("n1")
    driver.submit(remote(job("a"), "wizard"))
    assert why(driver, "a").sentence == "it waits: host wizard is not connected yet"
    driver.handle(HostUnreachable(["wizard"], "Connection refused"))
    since = driver.now
    reason = why(driver, "a")
    assert reason.sentence == f"it waits: host wizard is unreachable since second {since:g}: Connection refused"
    assert (reason.kind, reason.details["away"]) == ("host", ["wizard"])
    driver.handle(HostUnreachable(["wizard"], "No route to host"))
    assert why(driver, "a").sentence.endswith(f"since second {since:g}: No route to host")
    driver.report("wizard")
    assert why(driver, "a").kind == "next"


def test_a_job_for_any_host_names_all_hosts_that_are_away():
    driver = CoreDriver([host("wizard", 1), host("witch", 1)], available=False)
    driver.handle(HostUnreachable(["wizard"], "Connection refused"))
    driver.submit(remote(job("a"), "*"))
    assert why(driver, "a").sentence == (
        "it waits: host wizard is unreachable since second 1: Connection refused; host witch is not connected yet"
    )


def test_a_job_that_waits_for_cores_of_a_host_is_explained_with_its_numbers():
    driver = CoreDriver([*machine(5), host("wizard", 3)])
    driver.submit(remote(job("a", 2), "wizard"), remote(job("b", 2), "wizard"))
    driver.schedule()
    reason = why(driver, "b")
    assert reason.sentence == "it needs 2 cores; on host wizard 1 of 3 is free"
    assert reason.details["wanted"] == {"cores": {"min": 2, "max": 2}, "host": "wizard"}
    assert (reason.details["free"]["cores"], reason.details["total"]["cores"]) == (1, 3)


# -- the end of a manager, and the next one -------------------------------------------------------------------------


def test_a_run_does_not_end_while_its_jobs_wait_for_a_host_that_is_away():
    driver = impatient(*machine(1), host("wizard", 1), patience=10)
    driver.silent("wizard")
    driver.submit(remote(job("a"), "wizard"))
    assert why_over(driver.core.state, driver.now + 100_000) is None


def test_a_resumed_run_finds_its_remote_jobs_again():
    nodes = [*machine(1), host("wizard", 2)]
    driver = CoreDriver(nodes)
    driver.submit(remote(job("a"), "wizard"), remote(job("b", 2), "wizard"))
    driver.schedule()
    driver.start("a")
    running = driver.running("a")
    again = next_manager(driver, nodes)
    assert again.report("wizard", live=[running]) == []
    assert again.states() == {"a": "EXECUTING", "b": "QUEUED"}
    again.end("a")
    assert again.schedule() == ["b on wizard[0:1]"]


def test_a_waiting_job_of_a_host_that_is_configured_no_longer_waits():
    driver = CoreDriver([*machine(1), host("wizard", 2)])
    driver.submit(remote(job("a"), "wizard"))
    again = next_manager(driver, machine(1))
    assert again.schedule() == []
    assert "there is no host 'wizard' now" in why(again, "a").sentence
