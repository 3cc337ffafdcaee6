"""The state of a resumed run, and errors when there is nothing to resume."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.common.exit_codes import JOBS_LEFT
from tests.support.crashing import Crashing, marking, waiting
from tests.support.pilot import WAIT, job, run, start, write_requests
from tests.support.processes import children, is_alive
from tests.support.waiting import wait_for

NODES = ("--nodes", "4")


def begin(tmp_path: Path, *requests: Any, options: tuple[str, ...] = NODES) -> Crashing:
    crashing = Crashing(tmp_path, write_requests(tmp_path / "requests.json", *requests), *options)
    crashing.start()
    return crashing


def answered(crashing: Crashing, number: int) -> None:
    """Wait until this number of requests have been answered; a killed manager may not have logged one of them."""

    def is_answered() -> bool:
        return any(int(request) >= number for request in re.findall(r"request (\d+) answered", crashing.log_so_far()))

    wait_for(is_answered, what=f"the answer to request {number}")


def test_results_outlive_manager_and_agent_and_are_known_an_hour_later(tmp_path: Path):
    jobs = [waiting("long"), marking("bad", "sleep 0.1; exit 3"), marking("many", "sleep 0.1", iteration=10)]
    jobs += [marking("next", after=["long"]), marking("never", after=["bad"])]
    crashing = begin(tmp_path, jobs, options=(*NODES, "--agent-linger", "1"))
    crashing.pid_of("long")
    crashing.wait_for_marks(3)
    crashing.kill_manager()
    marks = len(crashing.marks())
    agent = crashing.agent_pid()
    crashing.release()
    wait_for(lambda: not is_alive(agent), what="the end of the agent")
    assert not (crashing.run_dir / "agent-local.json").exists()
    assert len(crashing.marks()) <= marks + 4, "an agent starts only what it was given"
    done = crashing.finish()
    assert done.returncode == 1, done.stderr
    runs = {"long", "bad", "next", *(f"many:{index}" for index in range(10))}
    crashing.check_starts(runs)
    states = {name: entry["state"] for name, entry in crashing.entries().items()}
    assert states == {**dict.fromkeys(runs, "SUCCEED"), "many": "SUCCEED", "bad": "FAILED", "never": "OMITTED"}
    assert crashing.entries()["bad"]["runtime"]["exit_code"] == "3"
    crashing.check_registry(states)
    crashing.check_nothing_left()


def test_ended_iterations_out_of_order_are_restored_by_their_index(tmp_path: Path):
    """Iterations 1 to 5 have ended, and 0 still runs when the manager dies."""
    then = "if [ ${it} = 0 ]; then echo $$ > zero.pid; until [ -e release ]; do sleep 0.05; done; fi"
    crashing = begin(tmp_path, [marking("many", then, iteration=6), marking("each", iteration=6, after=["many:${it}"])])
    crashing.wait_for_marks(11)
    crashing.kill_manager()
    pid = crashing.pid_of("zero")
    before = crashing.log().count("agent local connected")
    crashing.start()
    wait_for(lambda: crashing.log().count("agent local connected") > before, what="the agent to be found again")
    assert is_alive(pid)
    crashing.release()
    assert crashing.wait() == 0
    runs = {f"{name}:{index}" for name in ("many", "each") for index in range(6)}
    crashing.check_starts(runs)
    crashing.check_success(runs, {"many", "each"})
    assert int(crashing.entries()["many:0"]["runtime"]["pid"]) == pid


def test_a_cancel_that_was_acknowledged_survives_a_crash(tmp_path: Path):
    """The cancellation of a job that ignores SIGTERM and runs on, and of a job that waits."""
    deaf = marking("deaf", "trap '' TERM; echo $$ > deaf.pid; while :; do sleep 0.1; done")
    jobs = [deaf, marking("waits", after=["deaf"]), marking("some", "sleep 100", iteration=3, numCores=4)]
    wait_for_start = marking("first", "until [ -e deaf.pid ]; do sleep 0.02; done")
    cancel = {"request": "cancelJob", "jobNames": ["deaf", "some:1"]}
    requests = write_requests(tmp_path / "requests.json", [*jobs, wait_for_start], cancel, WAIT)
    crashing = Crashing(tmp_path, requests, *NODES)
    crashing.start()
    answered(crashing, 2)
    crashing.kill_manager()
    before = crashing.log().count("agent local connected")
    crashing.start()
    wait_for(lambda: crashing.log().count("agent local connected") > before, what="the agent")
    manager = crashing.manager
    assert manager is not None
    wait_for(lambda: {"deaf", "some:1"} <= crashing.entries_so_far().keys(), what="the cancelled jobs")
    manager.send_signal(signal.SIGINT)
    assert crashing.wait() == 128 + signal.SIGINT
    states = {name: entry["state"] for name, entry in crashing.entries().items()}
    assert (states["deaf"], states["waits"], states["some:1"]) == ("CANCELED", "OMITTED", "CANCELED")
    deaf_pid = tmp_path / "deaf.pid"
    assert not (deaf_pid.exists() and is_alive(int(deaf_pid.read_text())))


def test_requests_of_the_file_are_run_once_and_the_rest_of_them_by_the_next_manager(tmp_path: Path):
    submissions = [[marking(f"job-{n}-${{rcnt}}", "sleep 0.01")] for n in range(60)]
    bad = {"request": "submit", "jobs": [{"name": "no execution"}]}
    path = write_requests(tmp_path / "requests.json", bad, *submissions, WAIT)
    crashing = Crashing(tmp_path, path, *NODES)
    for number in (1, 20, 40):
        crashing.start("qcg-pm-service")
        answered(crashing, number)
        crashing.kill_manager()
    assert crashing.finish("qcg-pm-service").returncode == 1, "a request was refused, in another life"
    assert [line.split("-")[1] for line in sorted(crashing.marks())] == sorted(str(n) for n in range(60))
    # The first request was refused before or after it counted as a submission: all others follow.
    counts = sorted(int(mark.split("-")[2]) for mark in crashing.marks())
    assert counts == list(range(counts[0], counts[0] + 60)), "counted on"
    path.unlink()
    assert crashing.finish().returncode == 1, "the file is not needed any more"


def test_after_a_finish_in_the_file_a_resumed_run_continues_with_the_rest_of_it(tmp_path: Path):
    crashing = begin(tmp_path, [waiting("first")], {"request": "finish"}, [marking("late")])
    assert crashing.wait() == JOBS_LEFT
    assert crashing.marks() in ([], ["first"])
    crashing.release()
    done = crashing.finish()
    states = {name: entry["state"] for name, entry in crashing.entries().items()}
    # The first job had started and was cancelled, or was still waiting.
    assert (done.returncode, states["first"]) in ((1, "CANCELED"), (0, "SUCCEED"))
    assert states["late"] == "SUCCEED"
    crashing.check_nothing_left()


def test_the_options_of_the_run_are_kept_and_can_be_changed(tmp_path: Path):
    script = "echo $QCG_PM_NODELIST > nodes; until [ -e release ]; do sleep 0.05; done"
    jobs = [job("long", "sh", "-c", script), job("after", "sh", "-c", "echo ${nlist} > nodes-after", after=["long"])]
    path = write_requests(tmp_path / "requests.json", jobs)
    options = ["--nodes", "a:1,b:2", "--report-file", "ends.json", "--report-format", "json", "--id", "y"]
    first = start("qcg-pm", "run", path, "--wd", tmp_path, *options)
    wait_for(lambda: (tmp_path / "nodes").exists(), what="the job")
    first.kill()
    first.communicate()
    (tmp_path / "release").touch()
    done = run("qcg-pm", "run", "--resume", tmp_path, "--log", "debug")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "nodes-after").read_text() == "a\n"
    run_dir = tmp_path / ".qcgpjm-service-y"
    assert [json.loads(line)["name"] for line in (run_dir / "ends.json").read_text().splitlines()] == ["long", "after"]
    assert "DEBUG" in (run_dir / "service.log").read_text()
    assert "resuming" in (run_dir / "service.log").read_text()


def test_a_run_that_has_ended_ends_again_with_the_same_code(tmp_path: Path):
    crashing = begin(tmp_path, [marking("good"), marking("bad", "exit 1"), marking("many", iteration=3)])
    assert crashing.wait() == 1
    report = (crashing.run_dir / "jobs.report").read_bytes()
    for _ in range(2):
        assert crashing.finish().returncode == 1
    assert (crashing.run_dir / "jobs.report").read_bytes() == report
    crashing.check_starts({"good", "bad", "many:0", "many:1", "many:2"})
    crashing.check_nothing_left()


def test_a_run_has_only_one_manager(tmp_path: Path):
    crashing = begin(tmp_path, [waiting("long")])
    crashing.pid_of("long")
    refused = run("qcg-pm", "run", "--resume", crashing.run_dir)
    assert refused.returncode == 2
    assert "is at work in" in refused.stderr
    crashing.kill_manager()
    together = [start("qcg-pm", "run", "--resume", crashing.run_dir) for _ in range(3)]
    ended = wait_for(lambda: [one for one in together if one.poll() is not None][1:], what="two of three to be refused")
    time.sleep(0.5)
    assert [one.poll() for one in together if one.poll() is not None] == [2, 2]
    assert all("manager" in one.communicate()[1] for one in together if one.poll() is not None)
    crashing.release()
    assert sorted(one.wait(60) for one in together) == [0, 2, 2], ended
    for one in together:
        one.communicate()
    crashing.check_starts({"long"})


def test_a_torn_report_is_repaired(tmp_path: Path):
    crashing = begin(tmp_path, [marking("early"), waiting("long")])
    wait_for(lambda: "early" in crashing.entries_so_far(), what="the first entry")
    wait_for(lambda: crashing.stored_report_size() > 0, what="the registry to know it")
    crashing.kill_manager()
    with (crashing.run_dir / "jobs.report").open("a") as report:
        report.write('{"name":"early","state":"SUCC')
    crashing.release()
    assert crashing.finish().returncode == 0
    crashing.check_success({"early", "long"}, set())
    crashing.check_nothing_left()


def test_wall_times_end_jobs_without_a_manager_and_after_it_is_back(tmp_path: Path):
    # The short job leaves no mark: its wall time may be over before it starts to work.
    jobs = [job("short", "sleep", "100", wt="1s")]
    jobs += [marking("long", "echo $$ > long.pid; sleep 100", wt="8s"), waiting("other", wt="1h")]
    crashing = begin(tmp_path, jobs)
    long = crashing.pid_of("long")
    crashing.kill_manager()
    [short] = wait_for(lambda: _ended_by_wall_times(crashing), what="the first wall time to be over")
    assert not is_alive(short)
    assert is_alive(long)
    crashing.start()
    wait_for(lambda: not is_alive(long), what="the second wall time to be over")
    crashing.release()
    assert crashing.wait() == 1
    entries = crashing.entries()
    assert {name: entry["state"] for name, entry in entries.items()} == {
        "short": "FAILED",
        "long": "FAILED",
        "other": "SUCCEED",
    }
    assert "The job exceeded its wall time of 1 s" in entries["short"]["messages"]
    assert "The job exceeded its wall time of 8 s" in entries["long"]["messages"]
    crashing.check_starts({"long", "other"})


def _ended_by_wall_times(crashing: Crashing) -> list[int]:
    """The pids of the jobs that the ledger reports as ended by their wall times."""
    ledger = (crashing.run_dir / "agent-local.ledger").read_text()
    return [int(pid) for pid in re.findall(r'^\["e",.*"timeout","[^"]*",(\d+),', ledger, re.MULTILINE)]


def test_the_reason_of_an_iterated_job_survives_a_resume(tmp_path: Path):
    crashing = begin(
        tmp_path, [waiting("other"), marking("bad", "exit 1"), marking("rest", iteration=3, after=["other", "bad"])]
    )
    wait_for(lambda: {"bad", "rest"} <= crashing.entries_so_far().keys(), what="the first entries")
    crashing.kill_manager()
    crashing.release()
    assert crashing.finish().returncode == 1
    assert "'bad', which is FAILED" in crashing.entries()["rest"]["messages"]
    crashing.check_starts({"other", "bad"})


def test_a_run_that_never_started_cannot_be_resumed(tmp_path: Path):
    run_dir = tmp_path / ".qcgpjm-service-z"
    run_dir.mkdir(mode=0o700)
    refused = run("qcg-pm", "run", "--resume", run_dir)
    assert refused.returncode == 2
    assert "There is no registry" in refused.stderr
    (run_dir / "registry.sqlite").touch()
    refused = run("qcg-pm", "run", "--resume", run_dir)
    assert refused.returncode == 2
    assert "never completely created" in refused.stderr


@pytest.mark.timeout(180)
def test_a_stopped_manager_finds_its_agent_again(tmp_path: Path):
    """The manager is stopped for longer than the agent waits for a heartbeat."""
    crashing = begin(tmp_path, [waiting("long"), marking("many", "sleep 0.1", iteration=40)], options=("--nodes", "2"))
    crashing.wait_for_marks(5)
    manager = crashing.manager
    assert manager is not None
    os.kill(manager.pid, signal.SIGSTOP)
    log = crashing.run_dir / "agent-local.log"
    wait_for(lambda: "the manager is silent" in log.read_text(), what="the agent to miss its manager")
    os.kill(manager.pid, signal.SIGCONT)
    crashing.release()
    assert crashing.wait() == 0
    runs = {"long", *(f"many:{index}" for index in range(40))}
    crashing.check_starts(runs)
    crashing.check_success(runs, {"many"})


def test_jobs_on_removed_nodes_are_lost_and_ended(tmp_path: Path):
    jobs = [waiting("long"), marking("next", after=["long"]), marking("wide", numCores=2)]
    crashing = begin(tmp_path, jobs, options=("--nodes", "here:2"))
    pid = crashing.pid_of("long")
    crashing.kill_manager()
    done = run("qcg-pm", "run", "--resume", crashing.run_dir, "--nodes", "elsewhere:2")
    assert done.returncode == 1
    entries = crashing.entries()
    states = {name: entry["state"] for name, entry in entries.items()}
    assert states == {"long": "FAILED", "next": "OMITTED", "wide": "SUCCEED"}
    assert "not part of this run any more" in entries["long"]["messages"]
    assert not is_alive(pid)
    crashing.check_nothing_left()


def test_jobs_that_ended_on_removed_cores_keep_their_results(tmp_path: Path):
    """Two jobs have ended while no manager ran, and one still runs on a core that stays."""
    then = "touch up.${it}; until [ -e release.${it} ]; do sleep 0.05; done; exit $((${it} == 1))"
    crashing = begin(tmp_path, [marking("many", then, iteration=4)], options=("--nodes", "3"))
    wait_for(lambda: all((tmp_path / f"up.{index}").exists() for index in range(3)), what="three starts")
    crashing.kill_manager()
    for index in (1, 2, 3):
        (tmp_path / f"release.{index}").touch()
    ledger = crashing.run_dir / "agent-local.ledger"
    wait_for(lambda: ledger.read_text().count('["e",') == 2, what="two ends")
    again = start("qcg-pm", "run", "--resume", crashing.run_dir, "--nodes", "1", "--on-lost", "rerun", cwd=tmp_path)
    wait_for(lambda: {"many:1", "many:2"} <= crashing.entries_so_far().keys(), what="the report of the agent")
    (tmp_path / "release.0").touch()
    again.communicate(timeout=60)
    assert again.returncode == 1
    assert "1 job was found running" in crashing.log()
    entries = crashing.entries()
    states = {index: entries[f"many:{index}"]["state"] for index in range(4)}
    assert states == {0: "SUCCEED", 1: "FAILED", 2: "SUCCEED", 3: "SUCCEED"}
    assert entries["many:1"]["runtime"]["exit_code"] == "1"
    assert [entries[f"many:{index}"]["runtime"]["allocation"] for index in (1, 2)] == ["n0[1]", "n0[2]"]
    crashing.check_starts({f"many:{index}" for index in range(4)})
    crashing.check_nothing_left()


def test_jobs_on_removed_cores_are_ended_before_they_run_again(tmp_path: Path):
    then = "echo $$ >> pids.${it}; until [ -e release ]; do sleep 0.05; done"
    crashing = begin(tmp_path, [marking("many", then, iteration=2)], options=("--nodes", "2", "--on-lost", "rerun"))
    pids = tmp_path / "pids.1"
    # The file exists a moment before its content.
    wait_for(lambda: len(crashing.marks()) == 2 and pids.exists() and pids.read_text(), what="two starts")
    pid = int(pids.read_text())
    crashing.kill_manager()
    again = start("qcg-pm", "run", "--resume", crashing.run_dir, "--nodes", "1", cwd=tmp_path)
    wait_for(lambda: not is_alive(pid), what="the end of the job on the removed core")
    crashing.release()
    _, said = again.communicate(timeout=60)
    assert again.returncode == 0, said
    assert "1 job was found running" in crashing.log()
    assert sorted(crashing.marks()) == ["many:0", "many:1", "many:1"]
    crashing.check_nothing_left()


def test_prefilled_short_jobs_run_once_when_cores_are_fewer(tmp_path: Path):
    names = {f"many:{index}" for index in range(1200)}
    crashing = begin(tmp_path, [marking("many", iteration=1200)], options=("--nodes", "4"))
    crashing.wait_for_marks(150)
    crashing.kill_manager()
    wait_for(lambda: _is_still(crashing), what="the agent to finish its jobs")
    done = crashing.finish("qcg-pm", "--nodes", "2", "--on-lost", "rerun")
    assert done.returncode == 0, done.stderr
    assert "found running" not in crashing.log()
    crashing.check_starts(names)
    crashing.check_success(names, {"many"})


def _is_still(crashing: Crashing) -> bool:
    """Whether the agent has had no job for a while."""
    written = (crashing.run_dir / "agent-local.ledger").stat().st_mtime
    return not children(crashing.agent_pid()) and time.time() - written > 2.0


def test_a_request_file_that_has_changed_is_not_taken_for_the_old_one(tmp_path: Path):
    path = write_requests(tmp_path / "two.json", [job("p", "true")])
    assert run("qcg-pm", "run", path, "--wd", tmp_path, "--nodes", "1").returncode == 0
    again = run("qcg-pm", "run", path, "--resume", tmp_path)
    assert again.returncode == 0
    assert f"{path} has been run in this run before, and is not run again" in again.stderr
    assert "nothing to continue" in again.stderr
    write_requests(path, [job("q", "true")])
    changed = run("qcg-pm", "run", path, "--resume", tmp_path)
    assert changed.returncode == 2
    assert "has changed since" in changed.stderr
    without = run("qcg-pm", "run", "--resume", tmp_path)
    assert without.returncode == 0, "nobody asks for the file"
    assert "before" not in without.stderr
