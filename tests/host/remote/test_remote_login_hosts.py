"""Several login hosts of one file system."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.host.remote.far_side import LOG, FarSide, alive, channel, launch, script, until

WAITING = "echo $$ > pid; until test -e ../go; do sleep 0.02; done"


@pytest.fixture
def other(far: FarSide, tmp_path: Path) -> Iterator[FarSide]:
    """A second login host with the same home directory."""
    other = FarSide(tmp_path, host="citadel")
    yield other
    other.kill_everything()


def start_on(far: FarSide, id: str) -> int:
    far.submit(script(id, WAITING))
    path = far.run_dir / f"work/1/job-{id}/pid"
    return int(until(lambda: path.exists() and path.read_text(), "the start of the job"))


def test_a_second_login_host_adopts_the_jobs_of_the_first(far: FarSide, other: FarSide) -> None:
    pid = start_on(far, "1")
    assert other.init()["ledgers"] == {"wizard": 1}
    (running,) = other.poll()["live"]
    assert running[:2] == ["1", pid]
    assert other.submit(script("1", WAITING), launch("2", "true")) == {"1": "known", "2": "accepted"}
    (far.run_dir / "work/1/go").touch()
    first, second = other.ended("1", "2")
    assert (first[1], second[1]) == (0, 0)
    assert sorted(other.poll()["reports"]) == ["citadel", "wizard"]


def test_acknowledgements_through_a_second_login_host_reach_the_ledger_of_the_first(
    far: FarSide, other: FarSide
) -> None:
    far.submit(launch("1", "true"))
    far.ended("1")
    other.init()
    last = other.poll()["reports"]["wizard"][-1][1]
    assert other.poll(acks={"wizard": last})["reports"] == {}
    assert list((far.service / "claims").iterdir()) == []
    far.init()
    assert far.poll()["reports"] == {}


def test_a_channel_to_a_second_login_host_sends_records_of_the_first(far: FarSide, other: FarSide) -> None:
    start_on(far, "1")
    with channel(other) as open_channel:
        open_channel.init()
        open_channel.call("jobs-poll", acks={}, full=True)
        (far.run_dir / "work/1/go").touch()
        open_channel.until(lambda: "1" in open_channel.ends(), "the end of the job")
        assert open_channel.events[-1]["ledger"] == "wizard"


def test_a_kill_through_a_second_login_host_reaches_the_first(far: FarSide, other: FarSide) -> None:
    pid = start_on(far, "1")
    other.init()
    other.submit(script("2", WAITING))
    reply = other.call("jobs-kill", ids=["1", "2"], how="kill", reason="cancel", message="")
    assert (reply["done"], reply["left"]) == (["2"], ["1"])
    assert [end[2] for end in other.ended("1", "2")] == ["cancel", "cancel"]
    assert not alive(pid)


def test_a_kill_is_only_left_for_a_login_host_that_is_down(far: FarSide, other: FarSide) -> None:
    start_on(far, "1")
    os.kill(far.supervisor(), signal.SIGKILL)
    other.init()
    reply = other.call("jobs-kill", ids=["1"], how="kill", reason="cancel", message="")
    assert (reply["done"], reply["left"]) == ([], ["1"])
    assert [running[0] for running in other.poll()["live"]] == ["1"]


def test_jobs_of_a_login_host_that_is_down_stay_live(far: FarSide, other: FarSide) -> None:
    start_on(far, "1")
    os.kill(far.supervisor(), signal.SIGKILL)
    other.init()
    other.submit(launch("2", "true"))
    other.ended("2")
    assert [running[0] for running in other.poll()["live"]] == ["1"]
    assert far.supervisor_pids() == []
    far.init()
    assert far.ended("1")[0][2] == "lost"
    assert far.poll()["live"] == []


def test_a_supervisor_of_an_earlier_boot_leaves_a_gap_in_its_numbers(far: FarSide) -> None:
    far.submit(launch("1", "true"))
    far.ended("1")
    far.call("remote-tidy")
    until(lambda: not far.supervisor_pids(), "the end of the supervisor")
    ledger = far.service / "wizard.ledger"
    boot = far.init()["boot"]
    ledger.write_text(ledger.read_text().replace(boot, "another-boot"))
    far.submit(launch("2", "true"))
    far.ended("2")
    numbers = {record[2][0]: record[1] for record in far.poll()["reports"]["wizard"] if record[0] == "e"}
    assert numbers["1"] == 2
    assert numbers["2"] > 100000


def claimed(far: FarSide, id: str, claim: str | None, status: str) -> None:
    """An attempt that the ledger does not have. `claim`: the boot id in its claim; None: the claim is empty."""
    directory = far.run_dir / LOG / f"job/1/job-{id}/01"
    directory.mkdir(parents=True)
    (directory / "job.status").write_text(f"ATTEMPT={id}\n{status}")
    content: dict[str, Any] = {
        "ledger": "wizard",
        "host": "wizard",
        "boot": claim,
        "directory": str(directory),
        "time": 1.0,
        "grant": [],
    }
    path = far.service / "claims" / id
    path.write_text("" if claim is None else json.dumps(content))
    path.chmod(0o600)


def test_jobs_that_may_have_started_before_a_power_cut_are_lost(far: FarSide) -> None:
    boot = far.init()["boot"]
    claimed(far, "1", "another-boot", "PID=4711\nSTARTED=2026-01-01T00:00:00.000Z\n")
    claimed(far, "2", "another-boot", "")
    claimed(far, "3", None, "")
    claimed(far, "4", boot, "PID=4711\n")
    claimed(far, "5", boot, "")
    ends = far.ended("1", "2", "3", "4", "5")
    assert [end[2] for end in ends] == ["lost", "lost", "lost", "lost", "closed"]
    assert "may have run" in ends[0][3]
