"""The fence: when an agent that is cut off kills its jobs, and when it keeps them."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qcg.pilotjob.agent import lease, protocol
from qcg.pilotjob.agent.connection import READ_INTERVAL, SLOW_READ_INTERVAL, SUSPECT_AFTER, Connection
from qcg.pilotjob.agent.fence import Fence
from qcg.pilotjob.agent.lease import ANSWER_TIMEOUT, CHECK_INTERVAL, Lease, LeaseState
from qcg.pilotjob.agent.manager_liveness import STALE, ManagerLiveness
from qcg.pilotjob.agent.pidfile import lock_path
from qcg.pilotjob.agent.poller import Poller
from qcg.pilotjob.executors import allocation_agents
from qcg.pilotjob.executors.liveness import LivenessTimes
from qcg.pilotjob.host.records import STEP_ID
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.timing import CONTACT_INTERVAL
from tests.agent.manager import AgentProcess, Manager, launch, manager
from tests.support.processes import is_alive
from tests.support.waiting import wait_for

INSTANCE = f"pilot-{uuid.uuid4().hex}"  # the fence kills all processes with these marks, those of other test runs too


@pytest.fixture
def fence() -> Iterator[Fence]:
    made = Fence(lambda: None)
    yield made
    made.close()


@pytest.fixture
def marked() -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(mark: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "1000"], env={**os.environ, STEP_ID: mark}, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_the_fence_kills_all_processes_of_its_run_and_no_others(
    fence: Fence, marked: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    ours, theirs = marked(f"{INSTANCE}.1.1"), marked("another.1.1")
    fence.renew(time.monotonic())
    fence.arm(INSTANCE, 0.2)
    assert ours.wait(60) == -9
    assert theirs.poll() is None


def test_the_fence_calls_back_before_it_kills(marked: Callable[[str], subprocess.Popen[bytes]]) -> None:
    job = marked(f"{INSTANCE}.1.1")
    lived: list[bool] = []
    fence = Fence(lambda: lived.append(job.poll() is None))
    fence.renew(time.monotonic())
    fence.arm(INSTANCE, 0.1)
    job.wait(60)
    fence.close()
    assert lived == [True]


def test_an_answered_heartbeat_renews_the_lease(fence: Fence) -> None:
    fence.renew(time.monotonic())
    fence.arm(INSTANCE, 1000.0)
    assert not fence.lease_expired
    fence.renew(time.monotonic() - 2000)
    assert not fence.lease_expired


def test_jobs_are_stopped_after_a_suspension_until_the_manager_answers(
    fence: Fence, marked: Callable[[str], subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = marked(f"{INSTANCE}.1.1")
    monkeypatch.setattr(lease, "LATE", -lease.CHECK_INTERVAL)  # the watcher has always overslept
    fence.renew(time.monotonic())
    fence.arm(INSTANCE, 0.5)
    wait_for(lambda: state_of(job.pid) == "T", what="the job is stopped")
    assert not fence.lease_expired
    fence.renew(time.monotonic() + 1000)
    wait_for(lambda: state_of(job.pid) == "S", what="the job to continue")


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class TestLease:
    """Leases, with a simulated clock."""

    @pytest.fixture
    def held(self) -> Lease:
        made = Lease(10.0)
        made.renew(0.0)
        return made

    def test_a_lease_expires_unless_it_is_renewed(self, held: Lease) -> None:
        assert {held.state(float(second)) for second in range(10)} == {LeaseState.VALID}
        held.renew(1.0)
        held.renew(0.5)
        assert held.state(10.5) is LeaseState.VALID
        assert held.state(11.0) is LeaseState.EXPIRED

    def test_a_lease_of_zero_seconds_never_expires(self) -> None:
        made = Lease()
        assert {made.state(float(second)) for second in range(1000)} == {LeaseState.VALID}

    def test_a_lease_is_uncertain_after_a_suspension(self, held: Lease) -> None:
        held.state(5.0)
        assert held.state(40.0) is LeaseState.UNCERTAIN
        assert held.state(40.0 + ANSWER_TIMEOUT / 2) is LeaseState.UNCERTAIN
        held.renew(40.1)
        assert held.state(40.0 + ANSWER_TIMEOUT) is LeaseState.VALID

    def test_an_uncertain_lease_expires_without_an_answer(self, held: Lease) -> None:
        held.state(5.0)
        times = [40.0 + second for second in range(int(ANSWER_TIMEOUT) + 1)]
        assert [held.state(now) for now in times] == [LeaseState.UNCERTAIN] * int(ANSWER_TIMEOUT) + [LeaseState.EXPIRED]

    def test_a_suspension_that_ends_just_before_the_lease_makes_it_uncertain(self, held: Lease) -> None:
        held.state(1.0)
        assert held.state(9.9) is LeaseState.VALID
        assert held.state(10.5) is LeaseState.UNCERTAIN

    def test_a_lease_is_checked_often_enough_to_notice_a_suspension(self, held: Lease) -> None:
        assert held.pause(0.0) == CHECK_INTERVAL
        assert held.pause(9.7) == pytest.approx(0.3)
        assert held.pause(11.0) == 0.0


def test_a_manager_is_alive_while_its_contact_file_is_touched():
    liveness = ManagerLiveness()
    for second in range(10):
        assert not liveness.update(second, float(second))
        assert not liveness.gone
    liveness.update(9, 9.0 + STALE)
    assert liveness.gone
    assert liveness.update(10, 10.0 + STALE)
    assert not liveness.gone


def test_a_busy_manager_is_not_taken_for_dead():
    assert CONTACT_INTERVAL + allocation_agents.LONG_PAUSE + max(READ_INTERVAL, SLOW_READ_INTERVAL) < STALE


@pytest.mark.parametrize("lost", [20.0, 25.0])
def test_a_dead_manager_is_noticed_before_the_lease_expires(lost: float):
    assert LivenessTimes(lost).fence > SUSPECT_AFTER + STALE + READ_INTERVAL


def test_a_missing_contact_file_means_no_manager_and_an_unreadable_one_is_inconclusive():
    liveness = ManagerLiveness()
    liveness.update(None, 0.0)
    assert liveness.gone
    liveness.reset()
    assert not liveness.gone


class Keeper:
    """A live manager that cannot be reached: it touches its contact file."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / contact.FILE_NAME
        self._touched = 0.0

    def touch(self) -> None:
        if time.monotonic() - self._touched > 1:
            os.utime(self._path)
            self._touched = time.monotonic()


def test_an_agent_cut_off_from_a_living_manager_kills_its_jobs_and_reports_them_lost(
    first: Manager, agent: AgentProcess, run_dir: Path
) -> None:
    first.meet(instance=INSTANCE, fence=8.0)
    first.start(launch("a", "sleep", "1000", wd=run_dir)._replace(env={STEP_ID: f"{INSTANCE}.a"}))
    pid = first.started("a").pid
    keeper = Keeper(run_dir)

    def ended() -> bool:
        keeper.touch()
        return not is_alive(pid)

    wait_for(ended, what="the job of the node that is cut off ends")
    with manager(run_dir) as second:
        second.meet()
        ended_record = second.ended("a")
        assert (ended_record.reason, "cut off" in ended_record.message) == ("lost", True)
        second.start(launch("b", "true", wd=run_dir))
        assert second.ended("b").exit_code == 0


CUT_OFF_FOR_A_MOMENT = """
import os, signal, sys, time
from pathlib import Path
from qcg.pilotjob.agent.agent import Agent
from tests.agent.manager import launch

agent = Agent(Path.cwd(), "n1", 5.0)
host = agent._host
host.start([launch("a", "sleep", "1000", wd=Path.cwd())])
host.advance()
agent._cut_off()  # as the fence does, which then kills
pid = host._jobs["a"].start.pid
os.kill(pid, signal.SIGKILL)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
agent._lose_jobs()  # the manager has been heard again: the fence is not there any more
while host.busy:
    host.reap()
    host.due(time.monotonic() + 1)
print(host.cut_off.message == "", host.take_records()[-1][1].reason, flush=True)
os._exit(0)
"""


def test_jobs_killed_by_the_fence_are_lost_also_when_the_lease_is_renewed_at_once(
    run_dir: Path,
) -> None:
    assert printed_by(CUT_OFF_FOR_A_MOMENT, run_dir) == ["True", "lost"]


CUT_OFF_WHILE_GIVEN_UP = """
import os, signal, sys, threading, time
from pathlib import Path
from qcg.pilotjob.agent.agent import Agent
from tests.agent.manager import launch

agent = Agent(Path.cwd(), "n1", 5.0)
host = agent._host

def expire():
    fence = threading.Thread(target=agent._cut_off)
    fence.start()
    fence.join()

agent._fence.kill_all = expire  # the lease expires during the search for processes in /proc
agent._end_given_up_jobs()
host.start([launch("a", "sleep", "1000", wd=Path.cwd())])
host.advance()
os.kill(host._jobs["a"].start.pid, signal.SIGKILL)  # as the fence does
while host.busy:
    host.reap()
    host.due(time.monotonic() + 1)
print(host.take_records()[-1][1].reason, flush=True)
agent._lose_jobs()
print(host.cut_off.message == "", flush=True)
os._exit(0)
"""


def test_jobs_killed_by_the_fence_are_lost_also_when_the_lease_expires_while_the_node_is_given_up(
    run_dir: Path,
) -> None:
    assert printed_by(CUT_OFF_WHILE_GIVEN_UP, run_dir) == ["lost", "True"]


CUT_OFF_AGAIN = """
import os
from pathlib import Path
from qcg.pilotjob.agent.agent import Agent

class Renewed:
    @property
    def lease_expired(self):
        agent._cut_off()  # the next cut-off begins right after the lease was read
        return False

agent = Agent(Path.cwd(), "n1", 5.0)
agent._cut_off()
agent._fence = Renewed()
agent._lose_jobs()
print(agent._host.cut_off.message != "", flush=True)
os._exit(0)
"""


def test_a_cut_off_that_begins_while_another_one_ends_is_not_missed(run_dir: Path) -> None:
    assert printed_by(CUT_OFF_AGAIN, run_dir) == ["True"]


def printed_by(code: str, run_dir: Path) -> list[str]:
    """Words on the standard output of a Python process that runs this code."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=run_dir, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout.split()


def test_an_agent_whose_manager_has_died_keeps_its_jobs(first: Manager, run_dir: Path) -> None:
    agent = AgentProcess(run_dir, settings={"manager_liveness.STALE": 1.0})
    first.meet(instance=INSTANCE, fence=8.0)
    first.start(launch("a", "sleep", "1000", wd=run_dir)._replace(env={STEP_ID: f"{INSTANCE}.a"}))
    pid = first.started("a").pid
    first.close()
    time.sleep(9.5)  # longer than the fence allows, without updates of the contact file
    assert is_alive(pid)
    with manager(run_dir, ack=1) as second:
        assert [running.id for running in second.meet().live] == ["a"]
        agent.close()


def test_jobs_that_the_manager_has_given_up_are_killed_and_reported_lost(
    first: Manager, agent: AgentProcess, run_dir: Path
) -> None:
    first.meet(instance=INSTANCE, fence=1000.0)
    ignores = "trap '' TERM; touch up; while :; do sleep 0.1; done"
    first.start(launch("a", "bash", "-c", ignores, wd=run_dir)._replace(env={STEP_ID: f"{INSTANCE}.a"}))
    pid = first.started("a").pid
    wait_for((run_dir / "up").exists)
    first.send(protocol.Identify())
    first.meet(instance=INSTANCE, fence=1000.0, given_up=True)
    assert first.ended("a").reason == "lost"
    assert not is_alive(pid)


class TestManagerLiveness:
    """The contact file and the lock in the run directory while the manager does not respond."""

    @pytest.fixture
    def line(self, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Connection, list[float]]]:
        known: list[float] = []
        fence = Fence(lambda: None)
        monkeypatch.setattr(fence, "renew", known.append)
        hello = protocol.Hello("n1", "host", 1, [0], "1.0")
        connection = Connection(run_dir, hello, Poller(), lambda line: None, fence)
        yield connection, known
        connection.close()

    def test_a_run_directory_without_the_lock_of_the_agent_is_inconclusive(
        self, line: tuple[Connection, list[float]], run_dir: Path
    ) -> None:
        connection, known = line
        connection.maintain(10_000_000.0)
        assert known == []
        lock_path(run_dir, "n1").touch()
        connection.maintain(10_000_003.0)
        assert known == [10_000_003.0]

    def test_the_lease_is_renewed_at_each_read_that_shows_no_manager(
        self, line: tuple[Connection, list[float]], run_dir: Path
    ) -> None:
        connection, known = line
        lock_path(run_dir, "n1").touch()
        for second in (0.0, 3.0):
            connection.maintain(10_000_000.0 + second)
        (run_dir / contact.FILE_NAME).write_text("{")
        for second in (6.0, 9.0):
            connection.maintain(10_000_000.0 + second)
        assert known == [10_000_000.0, 10_000_003.0]


def test_jobs_may_be_started_until_the_end_of_the_lease() -> None:
    moments: list[float] = []
    fence = Fence(lambda: None, moments.append)
    fence.renew(100.0)
    fence.arm("pilot", 0.0)
    fence.arm("pilot", 17.5)
    fence.renew(110.0)
    fence.renew(105.0)
    fence.close()
    assert moments == [math.inf, math.inf, 117.5, 127.5, 127.5]
