"""The report on a whole run for every kind of job."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from qcg.pilotjob.core.effects import Added, Effect, QueuedIterationsFinal, Requeued, Reran, Transition
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Attempt, Grant, Job, NodePart, PastAttempt
from qcg.pilotjob.description.model import Execution, Iteration, JobDescription
from qcg.pilotjob.host.records import Usage
from qcg.pilotjob.journal.journal import FILE_NAME, Journal
from qcg.pilotjob.journal.metadata import RESOURCES, NodeSize
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.report.analysis import analyse
from qcg.pilotjob.report.attempt_table import read_attempts
from qcg.pilotjob.report.errors import ReportError
from qcg.pilotjob.report.render import render_json, render_text
from qcg.pilotjob.report.run_report import RunReport, Statistics
from qcg.pilotjob.report.summary import statistics_of
from qcg.pilotjob.report.tail import last_lines

NODES = [NodeSize(name="n1", cores=4), NodeSize(name="n2", cores=4)]
ONE_CORE = Grant((NodePart("n1", (0,)),))
TWO_CORES = Grant((NodePart("n1", (0, 1)),))


def job(seq: int, name: str, iteration: Iteration | None = None, **execution: str) -> Job:
    description = JobDescription(name, Execution(exec="x", **execution), iteration=iteration)  # type: ignore[arg-type]
    made = Job(seq, name, msgspec.msgpack.encode(description), 100.0)
    if iteration is not None:
        made.iterations = Iterations(iteration.indices())
    return made


def ran(
    of: Job,
    start: float,
    end: float | None,
    state: State = State.SUCCEED,
    position: int = -1,
    grant: Grant = ONE_CORE,
    message: str = "",
    usage: Usage | None = None,
) -> Transition:
    run = Attempt(of, position, 1, grant, start - 1)
    run.started, run.pid, run.usage = start, 4711, usage
    if end is None:
        return Transition(of, position, State.EXECUTING, start, run)
    return Transition(of, position, state, end, run, 0 if state is State.SUCCEED else 3, message)


def report_of(directory: Path, *effects: Effect, resources: bool = True) -> RunReport:
    journal = Journal.create(directory / "registry.sqlite")
    for effect in effects:
        journal.record(effect)
    if resources:
        journal.set_metadata(RESOURCES, NODES)
    journal.close()
    report = analyse(directory)
    assert msgspec.json.decode(render_json(report), type=RunReport) == report
    assert render_text(report).startswith(f"Run {directory}\n")
    return report


def test_a_run_without_jobs_is_reported(tmp_path: Path):
    report = report_of(tmp_path, resources=False)
    assert report.finished
    assert (report.jobs, report.started, report.utilisation, report.run_times) == ({}, None, None, None)
    assert "There are no jobs." in render_text(report)


def test_every_state_is_counted_for_jobs_and_for_iterations(tmp_path: Path):
    names = ["good", "bad", "gone", "late", "waits", "runs"]
    jobs = [job(seq, name) for seq, name in enumerate(names, 1)]
    good, bad, gone, late, _, runs = jobs
    cut = job(7, "cut", Iteration(0, 10))
    wide = job(8, "wide", Iteration(0, 5))
    report = report_of(
        tmp_path,
        Added([*jobs, cut, wide]),
        ran(good, 102, 103),
        ran(bad, 102, 103, State.FAILED),
        Transition(gone, -1, State.CANCELED, 104.0),
        Transition(late, -1, State.OMITTED, 104.0),
        ran(runs, 102, None),
        ran(cut, 102, 103, position=0),
        ran(cut, 102, 103, State.FAILED, position=1),
        Transition(cut, 2, State.CANCELED, 103.0),
        QueuedIterationsFinal(cut, State.OMITTED, 104.0),
        Transition(cut, -1, State.FAILED, 104.0),
        ran(wide, 102, 103, position=0),
        ran(wide, 102, None, position=1),
        Transition(wide, -1, State.EXECUTING, 102.0),
    )
    assert not report.finished
    assert report.jobs == {"QUEUED": 1, "EXECUTING": 2, "SUCCEED": 1, "FAILED": 2, "CANCELED": 1, "OMITTED": 1}
    assert report.iterations == {"QUEUED": 3, "EXECUTING": 1, "SUCCEED": 2, "FAILED": 1, "CANCELED": 1, "OMITTED": 7}
    assert [failure.name for failure in report.failures] == ["bad", "cut:1"]
    text = render_text(report)
    assert "The manager ended before all jobs did." in text
    assert ["OMITTED", "1", "7"] in [line.split() for line in text.splitlines()]


@pytest.mark.parametrize("state", [State.OMITTED, State.CANCELED, State.FAILED, State.SUCCEED])
def test_one_job_of_any_kind_is_reported(tmp_path: Path, state: State):
    one = job(1, "one")
    report = report_of(tmp_path, Added([one]), Transition(one, -1, state, 100.0, message="why"))
    assert report.jobs == {state.name: 1}
    assert (report.queue_times, report.run_times, report.utilisation) == (None, None, None)
    assert [failure.message for failure in report.failures] == (["why"] if state is State.FAILED else [])


def test_cpu_time_and_memory_come_from_the_attempts(tmp_path: Path):
    jobs = [job(1, "one"), job(2, "two"), job(3, "three"), job(4, "unknown")]
    one, two, three, unknown = jobs
    asked = Grant((NodePart("n1", (0,), (), 100),))
    wide = Grant((NodePart("n1", (0,)), NodePart("n2", (0,))))
    report = report_of(
        tmp_path,
        Added(jobs),
        ran(one, 101, 105, grant=asked, usage=Usage(1_000_000, 1_000_000, 50 << 10, 0, 0, 0, 0)),
        ran(two, 103, 109, grant=TWO_CORES, usage=Usage(6_000_000, 0, 7 << 10, 0, 0, 0, 0)),
        ran(three, 103, 104, grant=wide, usage=Usage(500_000, 0, 60 << 10, 0, 0, 0, 0)),
        ran(unknown, 103, 109),
    )
    assert report.cpu_seconds == 8.5
    assert report.cpu_efficiency == pytest.approx((2 + 6) / (4 + 2 * 6)), "only the first of several nodes is counted"
    assert report.max_memory == 60 << 20
    assert report.memory_efficiency == 0.5
    slowest = {slow.name: (slow.cpu_efficiency, slow.max_memory, slow.requested_memory) for slow in report.slowest}
    assert slowest == {
        "one": (0.5, 50 << 20, 100 << 20),
        "two": (0.5, 7 << 20, 0),
        "three": (None, 60 << 20, 0),
        "unknown": (None, 0, 0),
    }
    text = " ".join(render_text(report).split())
    usage = "CPU efficiency 50.0%; at most 60.0 MiB of memory in one attempt; the largest share of its `mem` that an"
    assert f"{usage} attempt used was 50.0%" in text
    assert "one 0:00:04.000 SUCCEED 50.0% 50.0 MiB of 100.0 MiB n1[0]" in text


def test_a_peak_that_may_be_the_memory_of_the_agent_is_a_bound(tmp_path: Path):
    jobs = [job(1, "small"), job(2, "large")]
    asked = Grant((NodePart("n1", (0,), (), 10),))
    enough = Grant((NodePart("n1", (0,), (), 128),))
    small = ran(jobs[0], 101, 105, grant=asked, usage=Usage(1_000_000, 0, 28_364, 0, 0, 0, 0))
    large = ran(jobs[1], 101, 105, grant=enough, usage=Usage(1_000_000, 0, 32 << 10, 0, 0, 0, 0))
    report = report_of(tmp_path, Added(jobs), small, large)
    assert report.memory_efficiency == 0.25
    text = " ".join(render_text(report).split())
    assert "25.0% < 28 MiB of 10.0 MiB n1[0]" in text
    assert "25.0% 32.0 MiB of 128.0 MiB n1[0]" in text


def test_times_and_utilisation_come_from_the_attempts(tmp_path: Path):
    jobs = [job(1, "one"), job(2, "two"), job(3, "three")]
    one, two, three = jobs
    report = report_of(
        tmp_path,
        Added(jobs),
        ran(one, 101, 105),
        ran(two, 103, 109, grant=TWO_CORES),
        ran(three, 105, None),
        Transition(three, -1, State.EXECUTING, 110.0),
    )
    assert report.queue_times == Statistics(3, 1.0, 3.0, 3.0, 5.0, 5.0)
    assert report.run_times == Statistics(2, 4.0, 5.0, 5.0, 6.0, 6.0)
    assert (report.started, report.ended) == (100.0, 109.0)
    assert (report.nodes, report.cores) == (2, 8)
    assert report.busy_core_seconds == 4 + 2 * 6 + (109 - 105)
    assert report.utilisation == pytest.approx(20 / (8 * 9))
    assert [(slow.name, slow.seconds, slow.allocation) for slow in report.slowest] == [
        ("two", 6.0, "n1[0:1]"),
        ("one", 4.0, "n1[0]"),
    ]
    assert "27.8% of 8 cores on 2 nodes" in render_text(report)
    on_fewer_now = msgspec.structs.replace(report, cores=1, nodes=1, utilisation=20 / 9)
    more = "0.006 core-hours used, more than 1 core can give in that time: earlier managers of this run had others"
    assert more in render_text(on_fewer_now)


def test_time_in_the_queue_counts_from_the_last_time_a_job_was_queued(tmp_path: Path):
    jobs = [job(1, "rerun"), job(2, "retried"), job(3, "once")]
    rerun, retried, once = jobs
    first, second, third = (Attempt(rerun, -1, number, ONE_CORE, 101.0 + number) for number in (1, 2, 3))
    first.started, second.started, third.started = 102.0, 103.5, 805.0
    third.scheduled = 804.0
    failed = Attempt(retried, -1, 1, ONE_CORE, 101.0)
    again = Attempt(retried, -1, 3, ONE_CORE, 112.0)  # attempt 2 was taken back before its start
    failed.started, again.started = 102.0, 114.0
    report = report_of(
        tmp_path,
        Added(jobs),
        Requeued(first, PastAttempt("exit", 103.0, 3, counted=True)),
        Transition(rerun, -1, State.FAILED, 104.0, second, 3, "exit code 3"),
        Reran(rerun, (-1,), (), True, False, 800.0),
        Transition(rerun, -1, State.SUCCEED, 806.0, third, 0),
        Requeued(failed, PastAttempt("exit", 110.0, 3, counted=True)),
        Transition(retried, -1, State.SUCCEED, 115.0, again, 0),
        ran(once, 101, 105),
    )
    assert report.queue_times == Statistics(3, 1.0, 4.0, 10 / 3, 5.0, 5.0)
    with snapshot(tmp_path / FILE_NAME) as connection:
        waited = {(row.job, row.attempt): row.queue_seconds for row in read_attempts(connection)}
    assert waited[("rerun", 2)] == 0.0
    assert waited[("rerun", 3)] == 4.0
    assert waited[("retried", 3)] == 2.0


def test_a_limited_number_of_jobs_is_listed_and_the_rest_counted(tmp_path: Path):
    one = job(1, "it", Iteration(10, 210, 2))
    runs = [ran(one, 101, 101 + (7 * n) % 100, State.FAILED, position=n) for n in range(100)]
    report = report_of(tmp_path, Added([one]), *runs, Transition(one, -1, State.FAILED, 300.0))
    assert report.failed == 100
    assert [failure.name for failure in report.failures] == [f"it:{index}" for index in range(10, 30, 2)]
    assert [slow.seconds for slow in report.slowest] == [99, 98, 97, 96, 95, 94, 93, 92, 91, 90]
    text = render_text(report)
    assert f"90 more failed; list them with: qcg-pm jobs 'it:*' --state FAILED --path {report.directory}\n" in text
    assert f"To run failed jobs again: qcg-pm run --resume {report.directory} --rerun failed (and --from FILE" in text
    assert "NAME" not in text
    assert "--rerun" not in render_text(msgspec.structs.replace(report, at_work=True))


@pytest.mark.parametrize("last", [Iteration(0, 2), None], ids=["iterations", "job"])
def test_failures_of_several_jobs_that_are_not_listed_are_found_by_state(tmp_path: Path, last: Iteration | None):
    many, other, unstarted = job(1, "many", Iteration(0, 12)), job(2, "other", last), job(3, "unstarted")
    report = report_of(
        tmp_path,
        Added([many, other, unstarted]),
        *[ran(many, 101, 102, State.FAILED, position=n) for n in range(12)],
        *([ran(other, 101, 102, State.FAILED, position=1)] if last else []),
        Transition(many, -1, State.FAILED, 103.0),
        Transition(other, -1, State.FAILED, 103.0),
        Transition(unstarted, -1, State.OMITTED if last else State.FAILED, 103.0),
    )
    assert report.unlisted == ""
    text = render_text(report)
    assert "more failed; list them with: qcg-pm jobs --state FAILED --path" in text
    assert "With 'NAME:*' behind it, it lists the failed iterations of job NAME." in text


def test_failures_behind_those_of_another_job_belong_to_one_job(tmp_path: Path):
    first, many = job(1, "first"), job(2, "many", Iteration(0, 12))
    failed = [ran(first, 101, 102, State.FAILED)]
    failed += [ran(many, 101, 102, State.FAILED, position=n) for n in range(12)]
    report = report_of(tmp_path, Added([first, many]), *failed, Transition(many, -1, State.FAILED, 103.0))
    assert (report.failed, len(report.failures), report.unlisted) == (13, 10, "many")


def test_repeated_attempts_are_counted_by_cause(tmp_path: Path):
    jobs = [job(1, "one"), job(2, "two"), job(3, "three")]
    one, two, three = jobs
    again = [
        Requeued(Attempt(one, -1, 1, ONE_CORE, 101.0), PastAttempt("exit", 103.0, 3, "exit code 3")),
        Requeued(Attempt(one, -1, 2, ONE_CORE, 104.0), PastAttempt("exit", 105.0, 4, "exit code 4")),
        Requeued(Attempt(two, -1, 1, ONE_CORE, 101.0), PastAttempt("timeout", 105.0, -15, "too long")),
    ]
    report = report_of(
        tmp_path,
        Added(jobs),
        *again,
        ran(three, 101, 102, State.FAILED, message="The job used 9 MiB of memory, more than the 8 MiB of its limit."),
        Reran(three, (-1,), (), True, False, 200.0),
    )
    assert report.repeated == {"exit": 2, "timeout": 1, "memory": 1}
    assert "\n4 attempts were repeated: 2 exit, 1 memory, 1 timeout\n" in render_text(report)
    assert "attempts were repeated" not in render_text(msgspec.structs.replace(report, repeated={}))


def test_a_failure_is_reported_with_the_end_of_its_stderr(tmp_path: Path):
    directory = tmp_path / ".qcgpjm-service-1"
    directory.mkdir()
    (tmp_path / "wd5").mkdir()
    (tmp_path / "wd5" / "err.1").write_text("".join(f"line {n}\n" for n in range(20)) + "the [red]end\x1b[31m")
    one = job(1, "a[b]", Iteration(5, 6), wd="wd${it}", stderr="err.${ncores}")
    report = report_of(directory, Added([one]), ran(one, 101, 102, State.FAILED, 0, message="exit code 3"))
    (failure,) = report.failures
    assert (failure.name, failure.message, failure.exit_code) == ("a[b]:5", "exit code 3", 3)
    assert failure.stderr == str(tmp_path / "wd5" / "err.1")
    assert failure.last_lines == [*(f"line {n}" for n in range(11, 20)), "the [red]end\\x1b[31m"]
    text = render_text(report)
    assert f"a[b]:5 FAILED: exit code 3; the end of {failure.stderr}:\n    line 11\n" in text
    again = f"qcg-pm run --resume {report.directory} --rerun failed"
    last = f"To run failed jobs again: {again} (and --from FILE, if you have corrected FILE)\n"
    assert text.endswith(last) is report.finished


def test_an_iterated_job_that_can_never_run_is_reported_with_the_reason(tmp_path: Path):
    wide = job(1, "wide", Iteration(0, 3))
    wide.message = "9 cores requested, but only 8 exist"
    end = Transition(wide, -1, State.FAILED, 100.0, message=wide.message)
    report = report_of(tmp_path, Added([wide]), QueuedIterationsFinal(wide, State.FAILED, 100.0), end)
    assert (report.jobs, report.iterations) == ({"FAILED": 1}, {"FAILED": 3})
    assert [(failure.name, failure.message) for failure in report.failures] == [("wide", wide.message)]
    assert "wide FAILED: 9 cores requested, but only 8 exist\n" in render_text(report)


def test_an_iterated_job_whose_iterations_were_omitted_one_by_one_is_reported_with_a_reason(tmp_path: Path):
    follow = job(1, "follow", Iteration(0, 1))
    effects = [Transition(follow, 0, State.OMITTED, 103.0, None, None, "it waits for 'it:0', which is FAILED")]
    report = report_of(tmp_path, Added([follow]), *effects, Transition(follow, -1, State.OMITTED, 103.0))
    assert report.omitted == ["follow OMITTED: none of its iterations was started, because of what they wait for"]


def test_an_omitted_job_is_reported_with_the_number_of_iterations_that_succeeded(tmp_path: Path):
    follow = job(1, "follow", Iteration(0, 4))
    done = [ran(follow, 101, 102, State.SUCCEED, index) for index in range(3)]
    last = Transition(follow, 3, State.OMITTED, 103.0, None, None, "it waits for 'it:3', which is FAILED")
    report = report_of(tmp_path, Added([follow]), *done, last, Transition(follow, -1, State.OMITTED, 103.0))
    assert report.omitted == [
        "follow OMITTED: 1 of its 4 iterations was not started, because of what it waits for (the others: 3 SUCCEED)"
    ]


def test_a_failure_without_stderr_is_reported(tmp_path: Path):
    one = job(1, "one", stderr="gone.err")
    (failure,) = report_of(tmp_path, Added([one]), ran(one, 101, 102, State.FAILED)).failures
    assert failure.last_lines == []


def test_the_newest_run_of_a_working_directory_is_used(tmp_path: Path):
    for name, age in (("old", 100), ("new", 0), ("middle", 50)):
        directory = tmp_path / f".qcgpjm-service-{name}"
        directory.mkdir()
        Journal.create(directory / "registry.sqlite").close()
        os.utime(directory, (1e9 - age, 1e9 - age))
    (tmp_path / ".qcgpjm-service-empty").mkdir()
    assert analyse(tmp_path).directory == str(tmp_path / ".qcgpjm-service-new")


def test_a_report_on_a_directory_without_a_readable_run_is_an_error(tmp_path: Path):
    with pytest.raises(ReportError, match="There is no run in"):
        analyse(tmp_path)
    with pytest.raises(ReportError, match="is not there"):
        analyse(tmp_path / "missing")
    (tmp_path / "registry.sqlite").write_bytes(b"x" * 9000)
    with pytest.raises(ReportError, match="not a database"):
        analyse(tmp_path)


@pytest.mark.parametrize(
    ("durations", "expected"),
    [
        ([], None),
        ([2.0], Statistics(1, 2.0, 2.0, 2.0, 2.0, 2.0)),
        ([3.0, 1.0], Statistics(2, 1.0, 2.0, 2.0, 3.0, 3.0)),
        ([float(n) for n in range(100, 0, -1)], Statistics(100, 1.0, 50.5, 50.5, 95.0, 100.0)),
    ],
)
def test_statistics_of_any_number_of_durations(durations: list[float], expected: Statistics | None):
    assert statistics_of(durations) == expected


def test_saved_output_of_failed_jobs_is_shown(tmp_path: Path):
    both, only_out, its, silent = job(1, "both"), job(2, "out"), job(3, "its", Iteration(5, 7)), job(4, "silent")
    saved = tmp_path / "out"
    saved.mkdir()
    for name, text in (("both.err", "wrong"), ("both.out", "said"), ("out.out", "said"), ("its.6.err", "at six")):
        (saved / name).write_text(text)
    ends = [ran(one, 101.0, 102.0, State.FAILED) for one in (both, only_out, silent)]
    ends.append(ran(its, 101.0, 102.0, State.FAILED, position=1))
    report = report_of(tmp_path, Added([both, only_out, its, silent]), *ends)
    found = {failure.name: (failure.stderr, failure.last_lines, failure.last_lines_of) for failure in report.failures}
    assert found == {
        "both": (f"{saved}/both.err", ["wrong"], f"{saved}/both.err"),
        "out": (None, ["said"], f"{saved}/out.out"),
        "its:6": (f"{saved}/its.6.err", ["at six"], f"{saved}/its.6.err"),
        "silent": (None, [], ""),
    }
    text = render_text(report)
    assert f"out FAILED: exit code 3; the end of {saved}/out.out:\n    said\n" in text
    assert "silent FAILED: exit code 3\n" in text


def test_a_report_with_lost_nodes_mentions_on_lost_rerun(tmp_path: Path):
    one = job(1, "one")
    lost = Transition(one, -1, State.FAILED, 103.0, message="node lost: its agent has not been heard for 25 s")
    text = render_text(report_of(tmp_path, Added([one]), lost))
    assert "With --on-lost rerun, jobs whose node is lost are started again." in text


def test_the_last_lines_of_a_long_file_are_whole_ones(tmp_path: Path):
    path = tmp_path / "err"
    path.write_bytes(b"\xff" * 10000 + b"\n" + b"\xe9nd\n")
    assert last_lines(str(path)) == ["�nd"]
    path.write_bytes(b"x" * 10000)
    assert last_lines(str(path)) == ["x" * 8192]


def test_only_files_have_last_lines(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    assert last_lines(str(tmp_path / "pipe")) == []
    assert last_lines(str(tmp_path)) == []
    assert last_lines(str(tmp_path / "missing")) == []
