"""Claims on the cores of a host: which run gets which cores, how long claims hold, and errors of the claims file."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from qcg.pilotjob.host.process_tree import read_process
from qcg.pilotjob.manager import core_claims
from qcg.pilotjob.manager.core_claims import Claims, ClaimsError

ONE, TWO, THREE = (Path("/somewhere", name) for name in ("one", "two", "three"))

CLAIMANT = """
import sys, json
from pathlib import Path
from qcg.pilotjob.manager.core_claims import Claims
cores, others = Claims(Path(sys.argv[1])).claim(Path(sys.argv[2]), json.loads(sys.argv[3]))
print(json.dumps(cores), flush=True)
sys.stdin.read()
"""


class Run:
    """Another process that has claimed cores."""

    def __init__(self, directory: Path, run_dir: Path, cores: list[int]) -> None:
        command = [sys.executable, "-c", CLAIMANT, str(directory), str(run_dir), str(cores)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.cores: list[int] = msgspec.json.decode(self.process.stdout.readline())

    def end(self) -> None:
        if self.process.returncode is None:
            self.process.communicate()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


StartRun = Callable[[Path, list[int]], Run]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "claims"


@pytest.fixture
def start_run(directory: Path) -> Iterator[StartRun]:
    runs: list[Run] = []

    def start(run_dir: Path, cores: list[int]) -> Run:
        runs.append(Run(directory, run_dir, cores))
        return runs[-1]

    yield start
    for run in runs:
        run.end()


@pytest.fixture
def agent() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def data_file(directory: Path) -> Path:
    (found,) = directory.glob("cores-*.json")
    return found


def test_a_second_run_gets_the_remaining_cores_and_the_claims_on_the_others(directory: Path, start_run: StartRun):
    other = start_run(ONE, [0, 1])
    mine, others = Claims(directory).claim(TWO, [0, 1, 2, 3])
    assert (other.cores, mine) == ([0, 1], [2, 3])
    assert [str(claim) for claim in others] == [f"{ONE} (manager {other.process.pid})"]


def test_no_core_is_claimed_when_all_are_taken(directory: Path, start_run: StartRun):
    start_run(ONE, [0, 1])
    mine, others = Claims(directory).claim(TWO, [0, 1])
    assert mine == []
    assert [claim.run_dir for claim in others] == [str(ONE)]
    assert [claim["run_dir"] for claim in msgspec.json.decode(data_file(directory).read_bytes())] == [str(ONE)]


def test_claims_on_other_cores_are_not_returned(directory: Path, start_run: StartRun):
    start_run(ONE, [0, 1])
    assert Claims(directory).claim(TWO, [2, 3]) == ([2, 3], [])


def test_a_run_that_shares_gets_all_cores_and_the_claims_of_other_runs(directory: Path, start_run: StartRun):
    start_run(ONE, [0])
    mine, others = Claims(directory).claim(TWO, [0, 1], shared=True)
    assert mine == [0, 1]
    assert [claim.run_dir for claim in others] == [str(ONE)]


def test_the_claim_of_a_dead_manager_does_not_hold(directory: Path, start_run: StartRun):
    start_run(ONE, [0, 1]).kill()
    assert Claims(directory).claim(TWO, [0, 1]) == ([0, 1], [])


def test_a_reused_pid_holds_no_claim(directory: Path):
    Claims(directory).claim(ONE, [0, 1])
    found = msgspec.json.decode(data_file(directory).read_bytes())
    found[0]["manager"]["started"] -= 1
    data_file(directory).write_bytes(msgspec.json.encode(found))
    assert Claims(directory).claim(TWO, [0, 1]) == ([0, 1], [])


def test_a_claim_holds_while_the_agent_lives_and_a_resumed_run_has_the_same_cores(
    directory: Path, start_run: StartRun, agent: subprocess.Popen[bytes]
):
    manager = start_run(ONE, [0, 1])
    Claims(directory).set_agent(ONE, agent.pid)
    manager.kill()
    assert start_run(TWO, [0, 1, 2]).cores == [2]
    assert start_run(THREE, [0, 1, 2]).cores == []
    resumed = start_run(ONE, [0, 1, 2])
    assert resumed.cores == [0, 1]
    resumed.kill()
    _, others = Claims(directory).claim(THREE, [0])
    assert [str(claim) for claim in others] == [f"{ONE} (agent {agent.pid})"]
    agent.kill()
    agent.wait()
    assert start_run(THREE, [0, 1, 2]).cores == [0, 1]


def test_a_released_claim_is_gone(directory: Path, start_run: StartRun):
    start_run(ONE, [0])
    Claims(directory).release(ONE)
    assert start_run(TWO, [0, 1]).cores == [0, 1]


def test_a_claim_in_use_is_kept_fresh(directory: Path):
    claims = Claims(directory)
    claims.touch()  # there is no file yet, which is no error
    claims.claim(ONE, [0])
    os.utime(data_file(directory), (0, 0))
    claims.touch()
    assert data_file(directory).stat().st_mtime > time.time() - 600


def test_a_claim_is_not_released_while_its_agent_lives(
    directory: Path, start_run: StartRun, agent: subprocess.Popen[bytes]
):
    start_run(ONE, [0])
    Claims(directory).set_agent(ONE, agent.pid)
    Claims(directory).release(ONE)
    assert start_run(TWO, [0, 1]).cores == [1]


def test_a_run_inside_a_job_can_claim_the_cores_of_that_job(directory: Path, start_run: StartRun):
    Claims(directory).claim(ONE, [0, 1])
    assert start_run(TWO, [1]).cores == [1]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]" * 10, b'[{"cores": 3}]', b"\xff" * 100, b" " * (2 << 20)], ids=range(6)
)
def test_a_damaged_file_is_replaced(directory: Path, content: bytes):
    Claims(directory).claim(ONE, [0])
    data_file(directory).write_bytes(content)
    assert Claims(directory).claim(TWO, [0, 1]) == ([0, 1], [])
    assert len(msgspec.json.decode(data_file(directory).read_bytes())) == 1


def test_a_fifo_or_link_in_place_of_the_file_does_not_block(directory: Path, tmp_path: Path):
    Claims(directory).claim(ONE, [0])
    path = data_file(directory)
    path.unlink()
    os.mkfifo(path)
    assert Claims(directory).claim(TWO, [0, 1]) == ([0, 1], [])
    path.unlink()
    (tmp_path / "target").write_text("mine")
    path.symlink_to(tmp_path / "target")
    with pytest.raises(ClaimsError):
        Claims(directory).claim(TWO, [0, 1])
    assert (tmp_path / "target").read_text() == "mine"


def test_a_lock_that_is_never_released_is_an_error_after_a_while(directory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(core_claims, "LOCK_TIMEOUT", 0.05)
    Claims(directory).claim(ONE, [0])
    (lock,) = directory.glob("*.lock")
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        began = time.monotonic()
        with pytest.raises(ClaimsError, match="locked by another process"):
            Claims(directory).claim(TWO, [0])
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("kind", ["open to others", "a link", "a file", "missing parent"])
def test_a_directory_accessible_to_others_is_refused(tmp_path: Path, kind: str):
    directory = tmp_path / "claims"
    if kind == "open to others":
        directory.mkdir()
        directory.chmod(0o750)
    elif kind == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        directory.symlink_to(tmp_path / "elsewhere")
    elif kind == "a file":
        directory.touch()
    else:
        directory = tmp_path / "missing" / "claims"
    with pytest.raises(ClaimsError) as refused:
        Claims(directory).claim(ONE, [0])
    assert str(directory) in str(refused.value)
    assert not list((tmp_path / "elsewhere").glob("*"))


def test_a_directory_of_another_user_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch):
    directory.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ClaimsError, match="belongs to another user"):
        Claims(directory).claim(ONE, [0])


def test_a_process_without_proc_claims_nothing(directory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(core_claims, "read_process", lambda pid: None)
    with pytest.raises(ClaimsError, match="/proc"):
        Claims(directory).claim(ONE, [0])


def test_runs_never_get_the_same_core(start_run: StartRun):
    runs = [start_run(Path(f"/somewhere/{number}"), [number // 2, number // 2 + 1]) for number in range(6)]
    claimed = [core for run in runs for core in run.cores]
    assert sorted(claimed) == [0, 1, 2, 3]


def test_a_process_is_identified_by_pid_and_start_time():
    me = read_process(os.getpid())
    assert me is not None
    assert core_claims.ProcessId(me.pid, me.start_ticks).is_alive
    assert not core_claims.ProcessId(me.pid, me.start_ticks + 1).is_alive
