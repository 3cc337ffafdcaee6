"""Runs whose agent is killed: running jobs fail, or run again with `--on-lost rerun`, and the other jobs continue."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.journal import queries
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.runs.unfinished import count_unfinished
from tests.support.crashing import Crashing, marking, waiting
from tests.support.pilot import Run, job, run, write_requests
from tests.support.processes import is_alive
from tests.support.tiers import per_tier
from tests.support.waiting import wait_for

NODES = ("--nodes", "3")
VICTIMS = 3

FAMILY = """
if [ $(grep -cx {name} marks) = 1 ]; then
    sleep 1000 & echo $! >> {name}.pids
    setsid sleep 1000 & echo $! >> {name}.pids
    (setsid sh -c 'echo $$ >> {name}.pids; sleep 1000' &)
    while [ $(wc -l < {name}.pids) -lt 3 ]; do sleep 0.01; done
    touch {name}.up
    wait
fi
"""


def victim(name: str, **more: Any) -> dict[str, Any]:
    """A job whose first start never ends, and has children, a grandchild and sessions of its own; a second start
    succeeds."""
    return marking(name, FAMILY.format(name=name), **more)


def workload() -> list[dict[str, Any]]:
    jobs = []
    for number in range(VICTIMS):
        jobs += [victim(f"victim-{number}"), *(marking(f"short-{number}-{n}", "sleep 0.02") for n in range(30))]
    return [*jobs, marking("many", "sleep 0.02", iteration=20)]


def names() -> set[str]:
    shorts = {f"short-{number}-{n}" for number in range(VICTIMS) for n in range(30)}
    return shorts | {f"victim-{number}" for number in range(VICTIMS)} | {f"many:{index}" for index in range(20)}


def processes_of(crashing: Crashing, name: str) -> list[int]:
    """The processes of a victim, once all have started; or the remaining ones when an earlier kill hit them too."""
    up, pids = crashing.wd / f"{name}.up", crashing.wd / f"{name}.pids"
    wait_for(lambda: up.exists() or name in crashing.entries_so_far(), what=f"the family of {name}")
    return [int(line) for line in pids.read_text().split()] if pids.exists() else []


def kill_the_agents(crashing: Crashing, dice: random.Random, *, managers_too: bool) -> list[int]:
    """Kill the agents, one for each victim; returns all processes that ran then."""
    family = []
    for number in range(VICTIMS):
        family += processes_of(crashing, f"victim-{number}")
        crashing.wait_for_marks(min(len(crashing.marks()) + dice.randint(0, 20), 30 * (number + 1)))
        crashing.kill_agent()
        hit = [f"victim-{number}" for number in range(VICTIMS) if f"victim-{number}" in crashing.marks()]
        if managers_too:
            crashing.kill_manager()
            crashing.start()
        for name in hit:
            wait_for(partial(_is_over, crashing, name), what=f"the end of {name}, which the next kill must not hit")
    return family


def _is_over(crashing: Crashing, name: str) -> bool:
    return name in crashing.entries_so_far()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("managers_too", [False, True], ids=["the agent alone", "the manager too"])
def test_jobs_of_a_killed_agent_fail_and_the_other_jobs_run(tmp_path: Path, managers_too: bool):
    crashing = Crashing(tmp_path, write_requests(tmp_path / "requests.json", workload()), *NODES)
    crashing.start()
    family = kill_the_agents(crashing, random.Random(3), managers_too=managers_too)
    assert crashing.wait() == 1
    entries = crashing.entries()
    assert set(entries) == names() | {"many"}
    failed = {name for name, entry in entries.items() if entry["state"] == "FAILED"} - {"many"}
    assert {f"victim-{number}" for number in range(VICTIMS)} <= failed
    assert len(failed) <= VICTIMS * 3, "at most what three cores can run at each kill"
    assert all("The agent local" in entries[name]["messages"] for name in failed)
    assert all("was killed" in entries[name]["messages"] for name in failed)
    assert {entries[name]["state"] for name in names() - failed} == {"SUCCEED"}
    assert entries["many"]["state"] == ("FAILED" if any("many" in name for name in failed) else "SUCCEED")
    starts = Counter(crashing.marks())
    assert {name: starts[name] for name in names() - failed if starts[name] != 1} == {}
    assert max(starts.values()) == 1
    assert [pid for pid in family if is_alive(pid)] == []
    crashing.check_registry({name: entry["state"] for name, entry in entries.items()})
    crashing.check_nothing_left()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("managers_too", [False, True], ids=["the agent alone", "the manager too"])
def test_jobs_of_a_killed_agent_run_again_with_on_lost_rerun(tmp_path: Path, managers_too: bool):
    requests = write_requests(tmp_path / "requests.json", workload())
    crashing = Crashing(tmp_path, requests, *NODES, "--on-lost", "rerun")
    crashing.start()
    family = kill_the_agents(crashing, random.Random(4), managers_too=managers_too)
    assert crashing.wait() == 0
    starts = Counter(crashing.marks())
    assert {starts[f"victim-{number}"] for number in range(VICTIMS)} == {2}
    again = {name for name, count in starts.items() if count > 1}
    assert len(again) <= VICTIMS * 3, "at most what three cores can run at each kill"
    crashing.check_starts(names(), again=again)
    crashing.check_success(names(), {"many"})
    assert [pid for pid in family if is_alive(pid)] == []
    crashing.check_nothing_left()


@pytest.mark.timeout(240)
def test_prefilled_jobs_run_once_and_only_running_ones_are_lost(tmp_path: Path):
    """The jobs are so short that they are prefilled, and the agent starts one after the other."""
    crashing = Crashing(
        tmp_path, write_requests(tmp_path / "requests.json", [marking("short", iteration=1500)]), "--nodes", "2"
    )
    crashing.start()
    for marks in (150, 300, 450):
        crashing.wait_for_marks(marks)
        crashing.kill_agent()
    code = crashing.wait()
    states = Counter(entry["state"] for name, entry in crashing.entries().items() if name != "short")
    assert code == (1 if states["FAILED"] else 0)
    assert states["FAILED"] <= 3 * 2, "at most what two cores can run at each kill"
    assert states["SUCCEED"] == 1500 - states["FAILED"]
    starts = Counter(crashing.marks())
    assert max(starts.values()) == 1
    assert len(starts) >= states["SUCCEED"]
    crashing.check_nothing_left()


@pytest.mark.sampled
@pytest.mark.timeout(400)
def test_agents_and_managers_die_in_any_order(tmp_path: Path):
    dice = random.Random(5)
    half = per_tier(25, 75)
    jobs = [marking(f"job-{n}", "sleep 0.03") for n in range(2 * half)]
    jobs += [marking("first", "sleep 0.03", iteration=half), marking("second", iteration=half, after=["first:${it}"])]
    names = {f"job-{n}" for n in range(2 * half)} | {f"{name}:{n}" for name in ("first", "second") for n in range(half)}
    requests = write_requests(tmp_path / "requests.json", jobs)
    crashing = Crashing(tmp_path, requests, *NODES, "--on-lost", "rerun")
    kills = 0
    crashing.start()
    for death in range(per_tier(6, 20)):
        crashing.wait_for_marks(dice.randint(0, 10) + 10 * death)
        time.sleep(dice.uniform(0, 0.1))
        dying = dice.choice(["agent", "manager", "both"])
        if dying != "manager":
            kills += crashing.kill_agent() > 0
        if dying != "agent":
            crashing.kill_manager()
            crashing.start()
    assert crashing.wait() == 0
    starts = Counter(crashing.marks())
    again = {name for name, count in starts.items() if count > 1}
    assert sum(starts[name] - 1 for name in again) <= 3 * kills
    crashing.check_starts(names, again=again)
    crashing.check_success(names, {"first", "second"})
    crashing.check_nothing_left()


@pytest.mark.timeout(180)
def test_an_agent_killed_while_the_service_ends_leaves_no_process_behind(tmp_path: Path):
    stubborn = marking("stubborn", "trap '' TERM; echo $$ > pid; touch up; while :; do sleep 0.1; done")
    crashing = Crashing(tmp_path, write_requests(tmp_path / "requests.json", [stubborn]), *NODES)
    manager = crashing.start()
    wait_for(lambda: (tmp_path / "up").exists(), what="the job")
    manager.send_signal(signal.SIGTERM)
    log = crashing.run_dir / "agent-local.log"
    wait_for(lambda: "told the agent to end" in log.read_text(), what="the end to begin")
    crashing.kill_agent()
    assert crashing.wait() == 128 + signal.SIGTERM
    assert not is_alive(int((tmp_path / "pid").read_text()))
    assert crashing.entries() == {}, "the job is QUEUED again, and not lost"
    assert count_unfinished(crashing.run_dir) == 1
    crashing.check_nothing_left()


@pytest.mark.timeout(180)
def test_a_stopped_agent_that_continues_loses_nothing(tmp_path: Path):
    jobs = [waiting("last"), *(marking(f"job-{n}", "sleep 0.02") for n in range(60))]
    names = {"last"} | {f"job-{n}" for n in range(60)}
    crashing = Crashing(tmp_path, write_requests(tmp_path / "requests.json", jobs), *NODES)
    crashing.start()
    for marks in (10, 30):
        crashing.wait_for_marks(marks)
        agent = crashing.agent_pid()
        os.kill(agent, signal.SIGSTOP)
        time.sleep(1.5)
        os.kill(agent, signal.SIGCONT)
    crashing.release()
    assert crashing.wait() == 0
    crashing.check_starts(names)
    crashing.check_success(names, set())
    crashing.check_nothing_left()


def test_an_agent_whose_pid_file_is_gone_is_kept_by_the_next_manager(tmp_path: Path):
    crashing = Crashing(tmp_path, write_requests(tmp_path / "r.json", [waiting("a")]), *NODES)
    crashing.start()
    crashing.wait_for_marks(1)
    agent = crashing.agent_pid()
    crashing.kill_manager()
    (crashing.run_dir / "agent-local.json").unlink()
    crashing.start()
    wait_for(lambda: f"an agent that was started earlier (pid {agent})" in crashing.log(), what="the agent to be kept")
    crashing.release()
    assert crashing.wait() == 0
    assert crashing.marks() == ["a"]
    assert crashing.log().count("agent started") <= 3
    crashing.check_nothing_left()


@pytest.mark.timeout(180)
def test_without_any_agent_the_manager_ends_and_its_jobs_can_be_resumed(tmp_path: Path):
    """The jobs use a Python that does not exist, and one that exits at once: both at the same time, because each start
    is tried several times."""
    reasons = {"/nowhere/python": "no agent can be started", "/bin/false": "the agent ends right after its start"}
    managers = {python: managed_with(python, tmp_path / f"wd{number}") for number, python in enumerate(reasons)}
    for python, why in reasons.items():
        wd, process = managers[python]
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 4, errors
        (run_dir,) = wd.glob(".qcgpjm-service-*")
        last_line = errors.splitlines()[-1]
        assert last_line.startswith(f"2 jobs are left, because {why}")
        assert last_line.endswith(f". Continue with: qcg-pm run --resume {run_dir}")
        assert "Traceback" not in errors
        run_of = Run(wd, subprocess.CompletedProcess(process.args, 4))
        assert run_of.states == {}, "nothing was decided about jobs"
        again = run("qcg-pm", "run", "--resume", run_dir)
        assert again.returncode == 0, again.stderr
        assert run_of.states == {"one": "SUCCEED", "two": "SUCCEED", "two:0": "SUCCEED", "two:1": "SUCCEED"} | {
            "two:2": "SUCCEED"
        }


def managed_with(python: str, wd: Path) -> tuple[Path, subprocess.Popen[str]]:
    """A run whose agents are to be started with this Python."""
    wd.mkdir()
    requests = write_requests(wd / "requests.json", [job("one", "true"), job("two", "true", iteration=3)])
    program = f"import sys; sys.executable = {python!r}; from qcg.pilotjob.cli.main import main; main()"
    line = [sys.executable, "-c", program, "run", requests, "--wd", wd, "--report-format", "json", *NODES]
    return wd, subprocess.Popen(list(map(str, line)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_an_agent_that_lost_its_ledger_does_not_run_started_jobs_again(tmp_path: Path):
    crashing = Crashing(tmp_path, write_requests(tmp_path / "r.json", [waiting("a")]), "--nodes", "2")
    crashing.start()
    crashing.pid_of("a")
    wait_for(lambda: _started_runs(crashing), what="the registry to have the start")
    crashing.kill_manager()
    crashing.kill_agent()
    (crashing.run_dir / "agent-local.ledger").unlink()
    done = crashing.finish()
    crashing.release()
    assert done.returncode == 1, done
    assert crashing.marks() == ["a"]
    entry = crashing.entries()["a"]
    assert (entry["state"], "how it ended is unknown" in entry["messages"]) == ("FAILED", True)


def _started_runs(crashing: Crashing) -> bool:
    with snapshot(crashing.run_dir / "registry.sqlite") as connection:
        return any(run.started for run in queries.attempt_records(connection))
