"""The simulated host, which starts no processes, replies as the real one does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from qcg.pilotjob.agent.simulated_host import SimulatedHost
from qcg.pilotjob.host.ledger import Ledger
from qcg.pilotjob.host.records import Ended
from tests.agent.manager import launch
from tests.support.pilot import job, run_requests
from tests.support.waiting import wait_for


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(str(tmp_path / "ledger"))
    yield made
    made.close()


@pytest.fixture
def host(ledger: Ledger, tmp_path: Path) -> Iterator[SimulatedHost]:
    made = SimulatedHost(ledger, "n1", str(tmp_path / "files"))
    yield made
    made.close()


def reported(host: SimulatedHost) -> list[tuple[str, str]]:
    """The ids of attempts, with their results, in order."""
    return [(body.id, body.reason if isinstance(body, Ended) else "started") for _, body in host.take_records()]


def test_a_simulated_job_ends_at_once_and_its_end_has_all_data(host: SimulatedHost, tmp_path: Path):
    host.start([launch("a", "no-such-program", wd=tmp_path)])
    host.advance()
    ((number, ended),) = host.take_records()
    assert number == 1
    assert isinstance(ended, Ended)
    assert (ended.id, ended.exit_code, ended.reason) == ("a", 0, "exit")
    assert ended.started == ended.at > 0
    assert not host.busy
    assert list(tmp_path.iterdir()) == [tmp_path / "ledger"]


def test_a_sleeping_job_ends_after_its_time(host: SimulatedHost, tmp_path: Path):
    host.start([launch("a", "sleep", "1000", wd=tmp_path)])
    host.advance()
    assert reported(host) == [("a", "started")]
    assert host.busy
    over = host.next_deadline()
    assert over is not None
    assert 990 < over - time.monotonic() <= 1000
    host.due(over - 1)
    assert reported(host) == []
    host.due(over)
    assert reported(host) == [("a", "exit")]
    assert host.next_deadline() is None


def test_a_sleeping_job_is_ended_after_its_wall_time(host: SimulatedHost, tmp_path: Path):
    host.start(
        [launch(id, "sleep", seconds, wd=tmp_path, wall_time=100.0) for id, seconds in (("a", "6"), ("b", "600"))]
    )
    host.advance()
    host.take_records()
    host.due(time.monotonic() + 50)
    assert reported(host) == [("a", "exit")]
    over = host.next_deadline()
    assert over is not None
    assert 50 < over - time.monotonic() <= 100
    host.due(over)
    ((_, ended),) = host.take_records()
    assert isinstance(ended, Ended)
    assert (ended.id, ended.reason, ended.message) == ("b", "timeout", "The job exceeded its wall time of 100 s.")
    assert not host.busy
    host.due(time.monotonic() + 1000)
    assert host.next_deadline() is None


@pytest.mark.parametrize("seconds", ["nan", "-1", "soon", "0"])
def test_an_invalid_sleep_time_ends_at_once_and_delays_no_other_job(host: SimulatedHost, tmp_path: Path, seconds: str):
    host.start([launch(id, "sleep", time, wd=tmp_path) for id, time in (("a", seconds), ("b", "6"))])
    host.advance()
    assert reported(host) == [("a", "exit"), ("b", "started")]
    host.due(time.monotonic() + 7)
    assert reported(host) == [("b", "exit")]


def test_an_id_is_started_once(host: SimulatedHost, tmp_path: Path):
    assert host.start([launch("a", "true", wd=tmp_path)]) == []
    assert host.start([launch("a", "true", wd=tmp_path)]) == ["a"]
    host.advance()
    assert host.start([launch("a", "true", wd=tmp_path), launch("b", "true", wd=tmp_path)]) == ["a"]


def test_sleeping_and_waiting_jobs_can_be_cancelled(host: SimulatedHost, tmp_path: Path):
    host.start([launch(id, "sleep", "1000", wd=tmp_path) for id in ("a", "b")])
    host.advance()
    host.start([launch("c", "true", wd=tmp_path)])
    host.kill(["a", "c", "unknown"])
    host.due(time.monotonic() + 20)  # a search through all processes may take a while
    assert reported(host) == [("a", "started"), ("b", "started"), ("c", "cancel"), ("a", "cancel")]
    assert [running.id for running in host.running()] == ["b"]
    host.finish(0.0)

    def is_over() -> bool:
        """It ends all children of its process, here also other processes of the tests: that may take several steps."""
        host.due(time.monotonic() + 20)
        return not host.busy

    wait_for(is_over)
    assert reported(host) == [("b", "cancel")]


def test_running_jobs_of_a_killed_simulated_host_are_lost(host: SimulatedHost, ledger: Ledger, tmp_path: Path):
    host.start([launch("a", "sleep", "1000", wd=tmp_path)])
    host.advance()
    host.take_records()
    after = SimulatedHost(ledger, "n1", str(tmp_path / "files"))
    after.due(time.monotonic() + 20)
    assert reported(after) == [("a", "lost")]
    after.close()


def test_a_run_of_simulated_jobs_uses_everything_but_processes(tmp_path: Path):
    done = run_requests(
        tmp_path,
        [
            job("many", "no-such-program", iteration=200, stdout="out.${it}"),
            job("nap", "sleep", "0.2", numCores=128),
            job("last", "false", after=["many", "nap"]),
        ],
        options=("--nodes", "128,128", "--pretend"),
    )
    assert done.done.returncode == 0, done.done.stdout + done.done.stderr
    assert set(done.states.values()) == {"SUCCEED"}
    assert len(done.states) == 203
    assert 0.2 <= float(done.report["nap"]["runtime"]["rtime"].split(":")[2]) < 60
    assert not list(tmp_path.glob("out.*"))
