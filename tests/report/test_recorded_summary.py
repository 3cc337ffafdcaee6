"""The summary of a run from its registry."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from qcg.pilotjob.core.effects import Added, Effect, Held, Transition
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Attempt, Grant, Job, NodePart
from qcg.pilotjob.description.iteration import Iteration
from qcg.pilotjob.description.model import Execution, JobDescription
from qcg.pilotjob.journal import run_history
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.journal.metadata import RESOURCES, NodeSize
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.report.formats import to_second
from qcg.pilotjob.report.recorded_summary import recorded_summary
from qcg.pilotjob.report.run_summary import MOST_BINS, History, RunSummary

ONE, TWO = Grant((NodePart("n1", (0,)),)), Grant((NodePart("n1", (0, 1)),))


def job(seq: int, name: str, its: int = 0, after: tuple[str, ...] = (), **execution: str) -> Job:
    iteration = Iteration(0, its) if its else None
    program = Execution(exec="x", **execution)  # type: ignore[arg-type]
    description = JobDescription(name, program, iteration=iteration, after=after)
    made = Job(seq, name, msgspec.msgpack.encode(description), 100.0)
    if iteration is not None:
        made.iterations = Iterations(iteration.indices())
    return made


def ran(
    of: Job, start: float, end: float, state: State = State.SUCCEED, grant: Grant = ONE, message: str = "", at: int = -1
) -> Transition:
    attempt = Attempt(of, at, 1, grant, start)
    attempt.started, attempt.pid = start, 4711
    return Transition(of, at, state, end, attempt, 0 if state is State.SUCCEED else 3, message)


def summary_of(directory: Path, *effects: Effect) -> RunSummary:
    run_dir = directory / ".qcgpjm-service-x"
    run_dir.mkdir(mode=0o700)
    journal = Journal.create(run_dir / "registry.sqlite")
    journal.set_metadata(RESOURCES, [NodeSize(name="n1", cores=4)])
    for effect in effects:
        journal.record(effect)
    journal.commit()
    journal.close(commit=True)
    with snapshot(run_dir / "registry.sqlite") as connection:
        return recorded_summary(connection, run_dir)


def history_of(found: RunSummary) -> History:
    assert found.history is not None
    return found.history


def test_a_run_without_jobs_has_no_history(tmp_path: Path):
    found = summary_of(tmp_path)
    assert (found.run, found.alive, found.started, found.history, found.units) == ("x", False, None, None, {})
    assert (found.cores, [node.name for node in found.nodes]) == (4, ["n1"])


def test_the_use_of_cores_is_that_of_the_attempts(tmp_path: Path):
    a, b = job(1, "a"), job(2, "b")
    found = summary_of(tmp_path, Added([a, b]), ran(a, 100.5, 102.25), ran(b, 101.0, 103.5, grant=TWO))
    history = history_of(found)
    assert (history.first, history.width) == (100.0, 1.0)
    assert history.busy == (0.5, 3.0, 2.25, 1.0)
    assert history.cores == (4.0, 4.0, 4.0, 2.0)
    assert (history.starts, history.ends) == ((1, 1, 0, 0), (0, 0, 1, 1))
    assert (found.started, found.ended) == (100.0, 103.5)
    assert found.units == {"SUCCEED": 2}


def test_a_long_run_has_wide_bins_and_the_same_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_history, "PART", 7)  # several parts
    jobs = [job(seq, f"j{seq}") for seq in range(1, 101)]
    spans = [(100.0 + 31 * seq, 100.0 + 31 * seq + seq) for seq in range(1, 101)]
    ends = [ran(one, *span) for one, span in zip(jobs, spans, strict=True)]
    history = history_of(summary_of(tmp_path, Added(jobs), *ends))
    assert history.width == 8.0
    assert len(history.busy) <= MOST_BINS
    assert sum(history.busy) == pytest.approx(sum(end - start for start, end in spans))
    assert (sum(history.starts), sum(history.ends)) == (100, 100)
    for number, busy in enumerate(history.busy):
        begin, last = 100.0 + 8 * number, 100.0 + 8 * (number + 1)
        exact = sum(max(min(end, last) - max(start, begin), 0.0) for start, end in spans)
        assert busy == pytest.approx(exact, abs=1e-3)


def test_failures_are_grouped_with_an_example_and_its_last_lines(tmp_path: Path):
    (tmp_path / "bad.err").write_text("first\nlast\x1b[31m\n")
    bad = job(1, "bad", stderr="bad.err")
    its = job(2, "its", its=5)
    never = job(3, "never")
    never.message = "it needs 9 cores, and there are only 4"
    assert its.iterations is not None
    failing = [ran(its, 101.0 + at, 102.0 + at, State.FAILED, message="exit code 7", at=at) for at in range(5)]
    found = summary_of(
        tmp_path,
        Added([bad, its, never]),
        ran(bad, 101.0, 102.0, State.FAILED, message="exit code 3"),
        *failing,
        Transition(its, -1, State.FAILED, 106.0),
        Transition(never, -1, State.FAILED, 101.0, message=never.message),
    )
    assert [(group.count, group.reason, group.example) for group in found.failed] == [
        (5, "exit", "its:0"),
        (1, "exit", "bad"),
        (1, "other", "never"),
    ]
    (lines,) = [group.last_lines for group in found.failed if group.example == "bad"]
    assert lines[0] == "first"
    assert "\x1b" not in lines[1]
    assert sum(history_of(found).failures) == 6


def test_unfinished_jobs_are_named(tmp_path: Path):
    done, left = job(1, "done"), job(2, "left", its=3)
    found = summary_of(tmp_path, Added([done, left]), ran(done, 101.0, 102.0))
    assert found.ended is None
    assert [(group.count, group.reason, group.example) for group in found.waiting] == [(3, "left", "left")]
    assert found.units == {"QUEUED": 3, "SUCCEED": 1}


def test_held_jobs_are_explained_with_a_time_to_the_second(tmp_path: Path):
    one = job(1, "one")
    found = summary_of(tmp_path, Added([one]), Held(one, -1, 1_000_000.123456))
    assert [(group.count, group.reason, group.example) for group in found.waiting] == [(1, "held", "one")]
    assert found.waiting[0].sentence == (
        f"it is held since {to_second(1_000_000)}; qcg-pm run --resume DIR --release continues with it"
    )


def test_jobs_that_wait_for_held_ones_are_explained_when_nothing_else_is_left(tmp_path: Path):
    one, two, three = job(1, "one"), job(2, "two", after=("one",)), job(3, "three", after=("two",))
    found = summary_of(tmp_path, Added([one, two]), Held(one, -1, 1_000_000.0))
    assert [(group.count, group.reason, group.sentence) for group in found.waiting if group.example == "two"] == [
        (1, "dependencies", "it waits for 'one', which is held")
    ]
    (tmp_path / "more").mkdir()
    found = summary_of(tmp_path / "more", Added([one, two, three]), Held(one, -1, 1_000_000.0))
    assert [(group.count, group.sentence) for group in found.waiting if group.example == "two"] == [
        (2, "it waits for other jobs, for example 'one', which is held")
    ]
