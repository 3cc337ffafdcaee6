"""Accepted and rejected submissions."""

from __future__ import annotations

import pytest

from qcg.pilotjob.core.errors import SubmissionRejected
from qcg.pilotjob.core.events import Submit, Withdraw
from qcg.pilotjob.description.model import JobDescription, Sharing
from tests.core.core_driver import CoreDriver, job, machine


def rejection_messages(driver: CoreDriver, *jobs: JobDescription) -> list[str]:
    """The messages of a rejected submission, which must not have had any effect."""
    before = driver.states()
    with pytest.raises(SubmissionRejected) as caught:
        driver.handle(Submit(list(jobs)))
    assert driver.states() == before
    assert driver.core.state.effects == []
    return caught.value.sentences


def test_jobs_are_numbered_in_order_of_arrival() -> None:
    driver = CoreDriver(machine(1))
    assert driver.submit(job("a"), job("b")) == []
    driver.submit(job("c"))
    assert [found.seq for found in driver.core.state.jobs.values()] == [1, 2, 3]
    assert driver.states() == {"a": "QUEUED", "b": "QUEUED", "c": "QUEUED"}


def test_a_submission_of_nothing_changes_nothing() -> None:
    assert CoreDriver(machine(1)).handle(Submit([])) == ["reply {'submitted': 0, 'jobs': []}"]


def test_a_job_that_can_never_run_fails_at_once_and_blocks_no_other() -> None:
    driver = CoreDriver(machine(2))
    assert driver.submit(job("huge", 3), job("after", after="huge"), job("a")) == [
        "huge FAILED: 3 cores requested, but only 2 exist",
        "after OMITTED: it waits for 'huge', which is FAILED",
    ]
    assert driver.schedule() == ["a on n1[0]"]


def test_a_dependent_listed_before_a_job_that_can_never_run_is_omitted() -> None:
    assert CoreDriver(machine(2)).submit(job("after", after="huge"), job("huge", 3)) == [
        "huge FAILED: 3 cores requested, but only 2 exist",
        "after OMITTED: it waits for 'huge', which is FAILED",
        "all done",
    ]


def test_iterations_that_can_never_run_fail_together() -> None:
    driver = CoreDriver(machine(2))
    assert driver.submit(job("huge", 1, gpus=1, its=1000)) == [
        "rest of huge FAILED",
        "huge FAILED: 1 GPU on a node requested, but no node has that",
        "all done",
    ]
    assert set(driver.iteration_states("huge")) == {"FAILED"}


def test_the_name_of_a_job_that_has_ended_is_refused_with_ways_to_use_it_again():
    driver = CoreDriver(machine(2))
    driver.submit(job("good"), job("wide", 3))
    driver.schedule()
    driver.start("good")
    driver.end("good")
    with pytest.raises(SubmissionRejected) as refused:
        driver.submit(job("good"), job("wide"))
    assert refused.value.sentences == [
        "job 'good' already exists, and is SUCCEED; choose another name, or remove it first with: qcg-pm remove good",
        "job 'wide' already exists, and is FAILED; choose another name, or remove it first with: qcg-pm remove wide."
        " To run it again with another description: qcg-pm run --resume DIR --rerun failed --from FILE, or while a"
        " manager runs: qcg-pm rerun --from FILE",
    ]


@pytest.mark.parametrize(
    ("jobs", "sentences"),
    [
        (
            [job("old")],
            ["job 'old' already exists, and is QUEUED; choose another name"],
        ),
        (
            [job("a"), job("a")],
            ["job 'a' is described twice; give each job a name of its own"],
        ),
        ([job("a", after="b")], ["job 'a' waits for 'b', and there is no job 'b'"]),
        ([job("a", after="b:1")], ["job 'a' waits for 'b:1', and there is no job 'b'"]),
        ([job("a", after="old:1")], ["job 'a' waits for 'old:1', and job 'old' has no iterations"]),
        ([job("a", after="it:7")], ["job 'a' waits for 'it:7', and job 'it' has no iteration 7"]),
        ([job("a", after="it:x")], ["job 'a' waits for 'it:x', and job 'it' has no iteration x"]),
        ([job("a", after="it:${it}")], ["job 'a' waits for 'it:${it}', and has no iterations itself"]),
        ([job("a", its=2, after="old:${it}")], ["job 'a' waits for 'old:${it}', and job 'old' has no iterations"]),
        ([job("a", its=4, after="it:${it}")], ["job 'a' waits for 'it:${it}', and job 'it' has no iteration 3"]),
        (
            [job("a", its=range(0, 4, 2), after="odd:${it}")],
            ["job 'a' waits for 'odd:${it}', and job 'odd' has no iteration 0"],
        ),
        (
            [job("a", (3, None), its=2, sharing=Sharing("split-into", "cores", 2)), job("b", after="a c")],
            [
                "job 'a': split-into 2 parts of 4 gives 2 each, less than the minimum of 3",
                "job 'b' waits for 'c', and there is no job 'c'",
            ],
        ),
        (
            [job("a", (5, None), its=2, sharing=Sharing("maximum-iters", "cores")), job("b", its=2, after="a:${it}")],
            ["job 'a': maximum-iters with a minimum of 5 for each iteration does not fit: only 4 exist"],
        ),
        ([job("a", after="a")], ["job 'a' waits for itself and could never start"]),
        ([job("a", its=2, after="a:0")], ["job 'a' waits for itself and could never start"]),
        ([job("a", its=2, after="a:${it}")], ["job 'a' waits for itself and could never start"]),
        (
            [job("a", after="b"), job("b", after="a")],
            ["these jobs wait for each other and could never start: a -> b -> a"],
        ),
        (
            [
                job("a", after="old b"),
                job("b", its=2, after="c:${it} it:1"),
                job("c", its=2, after="d"),
                job("d", after="b:1"),
            ],
            ["these jobs wait for each other and could never start: b -> c -> d -> b"],
        ),
        (
            [job("a", after="b a"), job("b", after="c"), job("c", after="b"), job("d", after="d")],
            [
                "these jobs wait for each other and could never start: b -> c -> b",
                "job 'a' waits for itself and could never start",
                "job 'd' waits for itself and could never start",
            ],
        ),
        (
            [job("a", after="b"), job("b", after="a b"), job("c", after="a d"), job("d", after="c")],
            [
                "these jobs wait for each other and could never start: a -> b -> a",
                "job 'b' waits for itself and could never start",
                "these jobs wait for each other and could never start: c -> d -> c",
            ],
        ),
        (
            [job("lic"), job("a", after="lik")],
            ["job 'a' waits for 'lik', and there is no job 'lik'; did you mean 'lic'?"],
        ),
        (
            [job("prepare"), job("b", after="prepair"), job("c", after="prepare2:1 iit:0 zebra")],
            [
                "job 'b' waits for 'prepair', and there is no job 'prepair'; did you mean 'prepare'?",
                "job 'c' waits for 'prepare2:1', and there is no job 'prepare2'; did you mean 'prepare'?",
                "job 'c' waits for 'iit:0', and there is no job 'iit'; did you mean 'it'?",
                "job 'c' waits for 'zebra', and there is no job 'zebra'",
            ],
        ),
        (
            [job("old"), job("a", after="x y"), job("b", after="b"), job("c", after="it:9 a")],
            [
                "job 'old' already exists, and is QUEUED; choose another name",
                "job 'a' waits for 'x', and there is no job 'x'",
                "job 'a' waits for 'y', and there is no job 'y'",
                "job 'c' waits for 'it:9', and job 'it' has no iteration 9",
                "job 'b' waits for itself and could never start",
            ],
        ),
    ],
    ids=lambda value: value[0] if isinstance(value[0], str) else "",
)
def test_an_invalid_submission_is_rejected_as_a_whole(jobs: list[JobDescription], sentences: list[str]) -> None:
    driver = CoreDriver(machine(4))
    driver.submit(job("old"), job("it", its=3), job("odd", its=range(1, 5, 2)))
    assert rejection_messages(driver, job("fine"), *jobs) == sentences
    assert driver.submit(job("fine"), job("a")) == []


def test_a_long_cycle_is_listed_in_order() -> None:
    size = 5000
    jobs = [job(f"j{number}", after=f"j{(number + 1) % size}") for number in range(size)]
    (sentence,) = rejection_messages(CoreDriver(machine(1)), *jobs)
    names = sentence.rpartition(": ")[2].split(" -> ")
    assert names == [f"j{number}" for number in range(size)] + ["j0"]


def test_only_the_first_of_many_cycles_are_listed() -> None:
    jobs = [job(f"j{number}", after=f"j{number} j{max(number - 1, 0)}") for number in range(3000)]
    sentences = rejection_messages(CoreDriver(machine(1)), *jobs)
    assert len(sentences) == 20
    assert sentences[0] == "job 'j0' waits for itself and could never start"


def test_only_the_first_of_many_unknown_names_get_a_suggestion() -> None:
    driver = CoreDriver(machine(1))
    sentences = rejection_messages(
        driver, job("prepare"), job("a", after=" ".join(f"prepare{number}" for number in range(1000)))
    )
    assert len([sentence for sentence in sentences if "did you mean 'prepare'?" in sentence]) == 20
    many = [job(f"prepare{number}") for number in range(2001)]
    assert "did you mean" not in rejection_messages(driver, *many, job("a", after="prepared"))[0]


def test_two_paths_to_the_same_job_are_no_cycle() -> None:
    driver = CoreDriver(machine(4))
    assert driver.submit(job("d", after="b c"), job("b", after="a"), job("c", after="a"), job("a")) == []


def test_too_many_same_index_prerequisites_are_rejected() -> None:
    driver = CoreDriver(machine(1))
    others = [job(f"j{number}", its=1) for number in range(256)]
    names = " ".join(f"j{number}:${{it}}" for number in range(256))
    assert rejection_messages(driver, *others, job("a", its=1, after=names)) == [
        "job 'a' waits for more than 255 jobs by index; name whole jobs"
    ]


def test_a_withdrawn_submission_leaves_no_trace() -> None:
    driver = CoreDriver(machine(4))
    driver.submit(job("a", its=2))
    driver.submit(job("b"), job("c", its=2), job("d", after="a b"), job("e", its=2, after="a:${it} c:1"), job("f", 9))
    assert driver.handle(Withdraw(["b", "c", "d", "e", "f"])) == [f"removed {name}" for name in "bcdef"]
    assert driver.states() == {"a": "QUEUED"}
    assert driver.schedule() == ["a:0 on n1[0]", "a:1 on n1[1]"]
    assert driver.end("a:0", "a:1") == ["a:0 SUCCEED", "a:1 SUCCEED", "a SUCCEED", "all done"]
    assert driver.schedule() == []
    driver.submit(job("b"))
    assert driver.schedule() == ["b on n1[0]"]


def test_all_done_is_emitted_when_the_only_submission_is_withdrawn() -> None:
    driver = CoreDriver(machine(4))
    driver.submit(job("a"))
    assert driver.handle(Withdraw(["a"])) == ["removed a", "all done"]
