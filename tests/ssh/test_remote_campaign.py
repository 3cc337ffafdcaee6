"""Everything between a manager and its jobs is killed at random moments: no job is lost, and none runs twice."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
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
    for number, victim in enumerate(victims):
        _wait_for_starts(run, jobs * (number + 1) // (len(victims) + 1))
        time.sleep(dice.uniform(0.0, 0.3))
        _kill(run, lab, victim, dice)
    code = run.wait(120)
    states = run.states()
    told = f"seed {seed}, exit code {code}\n{run.explain()}"
    assert states.keys() == set(names), told
    starts = Counter(run.marks())
    assert not [name for name, times in starts.items() if times > 1], f"started twice: {starts}\n{told}"
    succeeded = {name for name, state in states.items() if state == "SUCCEED"}
    assert succeeded <= starts.keys(), told
    # Only jobs that ran while their supervisor or their host was killed may have failed.
    fatal = victims.count("supervisor") + victims.count("host")
    assert len(states) - len(succeeded) <= fatal * CORES, told
    reasons = Counter(run.report()[name].get("messages", "") for name in states.keys() - succeeded)
    assert all(re.search("supervisor .* was killed|booted", reason) for reason in reasons), f"{reasons}\n{told}"
    copied = {name for number, name in enumerate(names) if _has_output(number)} & succeeded
    wrong = {name: found for name in copied if (found := _output(run, name)) != f"{name} from citadel"}
    assert not wrong, f"outputs: {wrong}\n{told}"
    run.check_nothing_left(timeout=60)


def _job(number: int, name: str) -> dict[str, Any]:
    """Every second job has an output, and every fourth also an input."""
    if not _has_output(number):
        return remote_job(name, "sleep 0.2")
    source = f"cat {INPUT}" if number % 4 == 0 else "printf 'from citadel'"
    script = f'sleep 0.2; echo "{name} $({source})" > {OUTPUT}'
    return remote_job(name, script, outputs=[OUTPUT], inputs=[INPUT] if number % 4 == 0 else [])


def _has_output(number: int) -> bool:
    return number % 2 == 0


def _output(run: RemoteRun, name: str) -> str:
    """The output of a job, as it arrived on citadel."""
    path = run.wd / "work" / "1" / name / OUTPUT
    return path.read_text().strip() if path.exists() else "missing"


def _kill(run: RemoteRun, lab: Lab, victim: str, dice: random.Random) -> None:
    if victim == "manager":
        run.kill()
        time.sleep(dice.uniform(0.0, 0.5))
        run.start()
    elif victim == "channel":
        clients = [one for one in lab.citadel.processes() if " ssh " in f" {str(one).split(' ', 1)[1]}"]
        processes.end(set(clients))
    elif victim == "supervisor":
        processes.end(set(run.supervisors()))
    elif victim == "server":
        lab.wizard.kill_sshd()
    elif victim == "rsync":
        _kill_rsync(*dice.sample((lab.citadel, lab.wizard), 2))
    else:
        lab.wizard.crash()
        lab.wizard.boot()


def _kill_rsync(*hosts: Host, most: float = 3.0) -> None:
    """Kill the next copy of files that is seen on the first host, or else on the second one."""
    for host in hosts:
        deadline = time.monotonic() + most
        while time.monotonic() < deadline:
            if found := {one for one in host.processes() if _is_rsync(one)}:
                processes.end(found)
                return
            time.sleep(0.002)


def _is_rsync(process: Process) -> bool:
    return str(process).split(" ", 1)[1].partition(" ")[0].rpartition("/")[2] == "rsync"


def _wait_for_starts(run: RemoteRun, number: int, most: float = 15.0) -> None:
    """Wait for so many starts, but not for ever: any moment will do."""
    deadline = time.monotonic() + most
    while len(run.marks()) < number and time.monotonic() < deadline:
        time.sleep(0.01)
