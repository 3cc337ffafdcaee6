"""Small benchmarks produce every figure, with plausible values."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from bench import dashboard, growth, idle, latency, manager, memory, noop, outputs, questions, utilisation
from bench.finding import BenchError, Finding, Result, Setting
from bench.growth import chained_jobs, mixed_jobs, plain_jobs, prioritized_jobs
from bench.limit import build, limit_seconds
from bench.utilisation import ideal_seconds, mix
from qcg.pilotjob.cli.bench_runs import Figures
from qcg.pilotjob.cli.commands import bench as command_for_users
from tests.support.pilot import run, start
from tests.support.processes import descendants
from tests.support.waiting import wait_for

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (package gcc)")


def setting(directory: Path, scale: float = 0.01) -> Setting:
    return Setting(directory=directory, rounds=1, scale=scale, parallel=2, peers=[])


def by_name(result: Result) -> dict[str, Finding]:
    return {finding.name: finding for finding in result.findings}


@needs_compiler
@pytest.mark.parametrize(("threads", "bound"), [(1, False), (2, False), (3, True)])
def test_the_limit_starts_each_process_once_with_an_output_file(tmp_path: Path, threads: int, bound: bool):
    assert 0 < limit_seconds(tmp_path, 50, 3, threads, bound=bound) < 60
    assert sorted(int(path.name) for path in (tmp_path / "limit-out").glob("*/*")) == list(range(50))


@needs_compiler
def test_a_limit_that_cannot_be_measured_is_explained(tmp_path: Path):
    with pytest.raises(BenchError, match="the limit cannot be measured: limit: COUNT and THREADS are at least 1"):
        limit_seconds(tmp_path, 0, 2, 1)


@pytest.mark.parametrize(("rounds", "scale", "can"), [(5, 1.0, True), (4, 1.0, False), (5, 0.9, False), (9, 1.0, True)])
def test_bars_are_judged_at_full_size_and_from_five_rounds_on(tmp_path: Path, rounds: int, scale: float, can: bool):
    assert Setting(directory=tmp_path, rounds=rounds, scale=scale, parallel=2).can_judge is can


@needs_compiler
def test_the_limit_program_reports_invalid_arguments(tmp_path: Path):
    done = subprocess.run([build("limit", tmp_path), "0", "2", "1", tmp_path], capture_output=True, text=True)
    assert done.returncode == 2
    assert "COUNT and THREADS are at least 1" in done.stderr


@needs_compiler
@pytest.mark.timeout(600)
def test_a_small_run_of_the_main_benchmarks_gives_plausible_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """Ratios for the log. Only impossible values are failures, because the load of this machine is unknown."""
    monkeypatch.setattr(growth, "SHORT_STEPS", 5)
    # A machine that stops for two seconds makes nonsense of a measurement of one, but hardly of three in a row.
    for _ in range(3):
        found = {
            name: finding
            for module in (noop, manager, growth)
            for name, finding in by_name(module.run(setting(tmp_path))).items()
        }
        shares = [found[f"noop: {name} / limit"].value for name in (noop.SEPARATE, noop.ITERATED)]
        alone = [finding.value for name, finding in found.items() if name.startswith("manager: ")]
        growths = [finding.value for name, finding in found.items() if name.startswith("growth: ")]
        assert found["growth: priorities"].what == "cost of a job at 10,000 queued, with 10 priorities over without"
        assert found["growth: priorities"].limit == 1.2
        makes_sense = (
            all(0.01 < share < 2 for share in shares)
            and all(100 < rate < 10_000_000 for rate in alone)
            # Between 0.7 and 1.3 is usual; 100 would be a cost that follows the queue, and 10 one that follows a chain.
            and all(0.1 < growth < 5 for growth in growths)
        )
        if makes_sense:
            break
    with capsys.disabled():
        print("\nagainst the limit in C:", ", ".join(f"{share:.2f}" for share in shares))
        print("the manager alone, jobs/s:", ", ".join(f"{rate:,.0f}" for rate in alone))
        print(
            "cost of a job with 100 times as many queued, with priorities, and in a chain of 10 times as many:",
            ", ".join(f"{growth:.2f}" for growth in growths),
        )
    assert makes_sense, (shares, alone, growths)


def test_memory_is_counted_for_each_job_and_each_iteration(tmp_path: Path):
    found = by_name(memory.run(setting(tmp_path)))
    assert 100 < found["memory: job"].value < 100_000
    assert 0.5 < found["memory: iteration"].value < 1000
    assert 0 < found["memory: accepted"].value < 60


def test_queries_are_answered_while_jobs_are_started(tmp_path: Path):
    found = by_name(questions.run(setting(tmp_path, scale=0.002)))
    assert set(found) == {"questions: status", "questions: jobs", "questions: summary"}
    assert all(0 < one.value < 60 for one in found.values())
    assert found["questions: summary"].value < found["questions: status"].value
    assert "`python -c pass` in turns: " in found["questions: status"].note


@needs_compiler
def test_latencies_are_recorded_by_the_jobs_themselves(tmp_path: Path):
    found = by_name(latency.run(setting(tmp_path, scale=0.1)))
    assert 0 < found["latency: median"].value <= found["latency: 99 %"].value < 60_000
    assert 0 < found["latency: dependent"].value < 60_000
    assert 0 < found["latency: start"].value < 60


def test_a_mix_takes_at_least_as_long_as_without_overhead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Approximately: another order may be better, and a little overhead may lead to another order."""
    monkeypatch.setattr(utilisation, "LONGEST", 0.3)
    for finding in utilisation.run(setting(tmp_path)).findings:
        assert 0.01 < finding.value < 1.5


def test_an_idle_service_uses_almost_no_processor_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(idle, "WINDOW", 0.5)
    assert 0 <= by_name(idle.run(setting(tmp_path)))["idle"].value < 20


def test_a_dashboard_is_measured_with_browsers(tmp_path: Path):
    found = by_name(dashboard.run(setting(tmp_path)))
    assert found[f"dashboard: {dashboard.ALONE}"].value > 10
    assert found[f"dashboard: {dashboard.WATCHED}"].value > 10
    assert "of a core" in found["dashboard: ratio"].note


def test_without_overhead_jobs_follow_each_other_at_once():
    jobs = [{"name": f"j{number}", "exec": "sleep", "args": ["2"], "numCores": 2} for number in range(5)]
    assert ideal_seconds(jobs, nodes=1, cores=4) == pytest.approx(6)
    assert ideal_seconds(jobs, nodes=2, cores=4) == pytest.approx(4)


def test_a_mix_has_short_and_long_narrow_and_wide_jobs_and_is_the_same_for_a_seed():
    jobs = mix(500, seed=1)
    lengths = [float(job["args"][0]) for job in jobs]
    assert 0.1 <= min(lengths) < 0.2
    assert 8 < max(lengths) <= 10
    assert {job["numCores"] for job in jobs} == set(range(1, 9))
    assert jobs == mix(500, seed=1) != mix(500, seed=2)


def test_growing_workloads_have_dependencies_and_sizes_of_all_kinds():
    jobs = [job for _, job in zip(range(100), mixed_jobs(), strict=False)]
    assert any("numNodes" in job for job in jobs)
    assert any(isinstance(job.get("numCores"), dict) for job in jobs)
    assert sum("after" in job for job in jobs) == 33
    assert [job.get("after") for job in chained_jobs(3)] == [None, "job0", "job1"]


def test_jobs_with_priorities_differ_from_plain_ones_in_nothing_else():
    for number, job, plain in zip(range(100), prioritized_jobs(), plain_jobs(), strict=False):
        assert job == {**plain, "priority": number % 10}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["speed"], "there is no benchmark 'speed'; there are noop, manager,"),
        (["--rounds", "0"], "--rounds: '0' is no whole number of 1 or more"),
        (["--scale", "0"], "--scale: '0' is no part of the full size: give a number above 0, at most 1"),
        (["--scale=-1"], "--scale: '-1' is no part"),
        (["--scale", "nan"], "--scale: 'nan' is no part"),
        (["--directory", "/proc/x"], "nothing can be made in /proc/x: No such file or directory; choose another"),
    ],
)
def test_invalid_benchmark_arguments_are_reported_in_one_sentence(arguments: list[str], told: str):
    done = bench(*arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_python_without_dependencies_gets_a_message_that_names_the_right_one():
    done = bench("latency", python=[sys.executable, "-S"])
    assert done.returncode == 2
    assert "has no module 'msgspec': call `make bench`, or, after `make setup`, `.venv/bin/python -m" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_small_benchmark_judges_no_bar(tmp_path: Path):
    done = bench("memory,", "memory", "--rounds", "1", "--scale", "0.01", "--directory", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "; medians of 1 round, in turns; " in done.stdout
    assert "This is 0.01 of the full size: bars are in brackets, and are not checked.\n" in done.stdout
    assert done.stdout.count("a queued job, of 4,000") == 1
    assert "(at most 1,024 bytes)" in done.stdout
    assert "reached " not in done.stdout.partition("a queued job")[2]
    assert "MISSED" not in done.stdout


def bench(*arguments: str, python: Sequence[str] = (sys.executable,)) -> subprocess.CompletedProcess[str]:
    command = [*python, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)


def test_the_command_for_users_measures_and_leaves_nothing_behind(run_dir: Path):
    done = run("qcg-pm", "bench", "--nodes", "2", "--seconds", "1", "--json", timeout=100)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert (figures["nodes"], figures["cores"], figures["ideal"]) == (1, 2, 1.0)
    assert 0 < figures["latency"] <= figures["latency_99"] < 60
    assert min(figures["separate"], figures["iterated"]) > 1
    assert figures["real"] >= 1.0
    assert list(run_dir.iterdir()) == []


def test_the_command_without_processes_accepts_any_number_of_nodes(run_dir: Path):
    done = run("qcg-pm", "bench", "--pretend", "50x20", "--seconds", "1", timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1000 cores on 50 nodes, virtual, without processes\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--pretend", "10"], "'10' is not NODESxCORES; write 1000x128 for 1,000 nodes of 128 cores each"),
        (["--pretend", "0x4"], "0x4 has no nodes; give it at least 1x1"),
        (["--pretend", "4x0"], "4x0 has no cores; give it at least 1x1"),
        (["--pretend", "10001x1"], "10001x1 is too much; it can be 10,000 nodes and 10,000,000 cores in all"),
        (["--pretend", "1x10001"], "at most, and 10,000 cores on one node"),
        (["--pretend", "100x1000000"], "100x1000000 is too much"),
        (["--pretend", "2x4", "--nodes", "2"], "--pretend makes up nodes of its own: leave out --nodes, or --pretend"),
        (["--nodes", "0"], "node 'n0' cannot have 0 cores"),
        (["--nodes", "abc"], "--nodes: 'abc' is not a node; write 4,"),
        (["--wd", "missing"], "nothing can be made in missing: No such file or directory; choose another --wd"),
    ],
)
def test_impossible_measurements_are_reported_in_one_sentence(run_dir: Path, arguments: list[str], told: str):
    done = run("qcg-pm", "bench", *arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("Error") == 1
    assert "starting a pilot" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("moment", ["starting", "running"])
def test_a_measurement_that_is_ended_by_a_signal_leaves_nothing_behind(
    run_dir: Path, number: signal.Signals, moment: str
):
    before = descendants()
    with start("qcg-pm", "bench", "--nodes", "2", "--seconds", "60") as process:
        assert process.stderr is not None
        assert any(line.startswith(moment) for line in process.stderr)
        assert list(run_dir.iterdir()) != []
        process.send_signal(number)
        process.stderr.read()
        assert process.wait() == 128 + number
    assert list(run_dir.iterdir()) == []
    wait_for(lambda: descendants() <= before, what="the end of the pilot, which hears that nobody is there any more")


@pytest.mark.parametrize("there", [True, False])
def test_the_command_reports_whether_it_uses_the_compiled_part(there: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "qcg.pilotjob.agent._relay", ModuleType("_relay") if there else None)
    figures = Figures(1, 2, 0.3, 0.001, 0.002, 100, 1000.0, 1000.0, 4, 2, 1.0, 1.1)
    monkeypatch.setattr(command_for_users, "measure", lambda *arguments: figures)
    done = CliRunner().invoke(command_for_users.command, [])
    told = "with the compiled part" if there else "without the compiled part that starts short jobs faster (see README)"
    assert done.stdout.startswith(f"2 cores on 1 node, {told}")


def test_captured_output_is_compared_with_dropped_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    outputs.main(30, 1)
    *ways, capturing = capsys.readouterr().out.splitlines()
    files = {line.split(":")[0]: int(line.split()[-2]) for line in ways}
    assert list(files) == list(outputs.WAYS)
    assert files["captured"] == files["dropped"], "output of jobs that succeed is not saved"
    assert files["stdout and stderr in files"] == files["dropped"] + 60
    found = re.fullmatch(
        r"capturing: [+-]\S+% time in the median of 1 rounds, ([+-]\S+)% CPU time \(at most 3%: (reached|MISSED)\)",
        capturing,
    )
    assert found is not None
    if abs(float(found[1]) - 3) > 0.1:
        assert (found[2] == "reached") == (float(found[1]) < 3)
