"""All processes between a manager and its jobs are killed at random: no job is lost, and none runs twice."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support import processes
from tests.support.processes import Process
from tests.support.remote_run import RemoteRun, remote_job
from tests.support.ssh_host import Host
from tests.support.ssh_lab import Lab

pytestmark = pytest.mark.any_worker

VICTIMS = ("manager", "channel", "supervisor", "server", "host", "rsync")
CORES = 8
FAILURE = 4
"""The exit code of jobs that fail."""
INPUT = "input.txt"
OUTPUT = "result.txt"


def test_sixty_jobs_run_once_each_through_six_kills(lab: Lab, channel: str):
    run_and_kill(lab, channel, jobs=60, kills=6, seed=3)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_five_hundred_jobs_run_once_each_through_a_hundred_kills(lab: Lab, channel: str):
    run_and_kill(lab, channel, jobs=500, kills=100, seed=random.randrange(1 << 30))


def run_and_kill(lab: Lab, channel: str, *, jobs: int, kills: int, seed: int) -> None:
    dice = random.Random(seed)
    names = [f"job-{number}" for number in range(jobs)]
    run = RemoteRun(lab, [_job(number, name) for number, name in enumerate(names)], channel=channel, cores=CORES)
    lab.citadel.write(f"project/{INPUT}", "from citadel")
    run.start()
    victims = [VICTIMS[number % len(VICTIMS)] for number in range(kills)]
    dice.shuffle(victims)
    hits: Counter[str] = Counter()
    for number, victim in enumerate(victims):
        _wait_for_starts(run, jobs * (number + 1) // (len(victims) + 1))
        time.sleep(dice.uniform(0.0, 0.3))
        hits[victim] += _kill(run, lab, victim, dice)
    code = run.wait(120)
    states = run.states()
    told = f"seed {seed}, exit code {code}, killed {dict(hits)} of {dict(Counter(victims))}\n{run.explain()}"
    assert states.keys() == set(names), told
    starts = Counter(run.marks())
    assert not [name for name, times in starts.items() if times > 1], f"started twice: {starts}\n{told}"
    succeeded = {name for name, state in states.items() if state == "SUCCEED"}
    assert succeeded <= starts.keys(), told
    refusing = {name for number, name in enumerate(names) if _fails(number)}
    assert not succeeded & refusing, told
    report = run.report()
    failed = {name for name in refusing if report[name].get("runtime", {}).get("exit_code") == str(FAILURE)}
    # Only jobs that ran while their supervisor or their host was killed have no result of their own.
    lost = states.keys() - succeeded - failed
    fatal = hits["supervisor"] + hits["host"]
    assert len(lost) <= fatal * CORES, told
    reasons = Counter(report[name].get("messages", "") for name in lost)
    assert all(re.search("supervisor .* was killed|booted", reason) for reason in reasons), f"{reasons}\n{told}"
    # A copy of files is seldom under way at a given moment; everything else is there for as long as jobs are left.
    missed = [victim for victim in {*victims} - {"rsync"} if hits[victim] < 0.8 * victims.count(victim)]
    assert not missed, f"not there to be killed: {missed}\n{told}"
    copied = {name for number, name in enumerate(names) if _has_output(number)} & succeeded
    wrong = {name: found for name in copied if (found := _output(run, name)) != f"{name} from citadel"}
    assert not wrong, f"outputs: {wrong}\n{told}"
    run.check_nothing_left(timeout=60)


def _job(number: int, name: str) -> dict[str, Any]:
    """Every second job has an output, and every fourth also an input. Every tenth fails."""
    if not _has_output(number):
        return remote_job(name, f"sleep 0.2; exit {FAILURE if _fails(number) else 0}")
    source = f"cat {INPUT}" if number % 4 == 0 else "printf 'from citadel'"
    script = f'sleep 0.2; echo "{name} $({source})" > {OUTPUT}'
    return remote_job(name, script, outputs=[OUTPUT], inputs=[INPUT] if number % 4 == 0 else [])


def _has_output(number: int) -> bool:
    return number % 2 == 0


def _fails(number: int) -> bool:
    return number % 10 == 3


def _output(run: RemoteRun, name: str) -> str:
    """The output of a job, as it arrived on citadel."""
    path = run.wd / "work" / "1" / name / OUTPUT
    return path.read_text().strip() if path.exists() else "missing"


def _kill(run: RemoteRun, lab: Lab, victim: str, dice: random.Random) -> bool:
    """Kill one of the victims as soon as it exists. False where none was found."""
    if victim == "manager":
        run.kill()
        time.sleep(dice.uniform(0.0, 0.5))
        run.start()
        return True
    if victim == "channel":
        return _kill_first(lambda: {one for one in lab.citadel.processes() if _is_ssh(one)})
    if victim == "supervisor":
        return _kill_first(lambda: set(run.supervisors()))
    if victim == "server":
        return _until(lambda: lab.wizard.kill_sshd() > 0)
    if victim == "rsync":
        hosts = dice.sample((lab.citadel, lab.wizard), 2)
        return any(_kill_first(partial(_rsyncs_on, host), most=3.0) for host in hosts)
    lab.wizard.crash()
    lab.wizard.boot()
    return True


def _kill_first(find: Callable[[], set[Process]], most: float = 10.0) -> bool:
    """Kill all processes of a kind, once there is one."""

    def kill() -> bool:
        found = find()
        processes.end(found)
        return bool(found)

    return _until(kill, most)


def _until(succeeds: Callable[[], bool], most: float = 10.0) -> bool:
    deadline = time.monotonic() + most
    while not (done := succeeds()) and time.monotonic() < deadline:
        time.sleep(0.002)
    return done


def _rsyncs_on(host: Host) -> set[Process]:
    return {one for one in host.processes() if _program(one) == "rsync"}


def _is_ssh(process: Process) -> bool:
    """A client, or the shared connection of one-shot mode, which calls itself `ssh: PATH [mux]`."""
    return _program(process) in ("ssh", "ssh:")


def _program(process: Process) -> str:
    return str(process).split(" ", 1)[1].partition(" ")[0].rpartition("/")[2]


def _wait_for_starts(run: RemoteRun, number: int, most: float = 15.0) -> None:
    """Wait for this number of starts or a timeout: any moment will do."""
    deadline = time.monotonic() + most
    while len(run.marks()) < number and time.monotonic() < deadline:
        time.sleep(0.01)
