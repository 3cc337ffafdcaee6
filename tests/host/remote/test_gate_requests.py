"""Requests that pass the gate: all sub-commands of a run, in both ways, and a subset."""

from __future__ import annotations

import shlex
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host.remote.far_side import FarSide, build_zipapp, channel, encode, script, until

# The home directory of a user is no variable, so that the program of these tests has to replace it.
MAIN = """
import os, pwd, sys
home = {home!r}
pwd.getpwuid = lambda user: pwd.struct_passwd(("me", "", user, 0, "", home, ""))
from qcg.pilotjob.host.remote.__main__ import main
sys.exit(main())
"""


class GatedHost(FarSide):
    """A login host that every command reaches through the gate."""

    def __init__(self, directory: Path, options: str = "") -> None:
        self.gate_log = directory / "gate.log"
        self.far = build_zipapp(directory / "built.pyz").rename(directory / "far.pyz")
        with zipfile.ZipFile(self.far) as built, zipfile.ZipFile(directory / "patched.pyz", "w") as patched:
            for name in built.namelist():
                content = MAIN.format(home=str(directory)) if name == "__main__.py" else built.read(name)
                patched.writestr(name, content)
        (directory / "patched.pyz").rename(self.far)
        sshd = directory / "sshd"
        gate = f"{sys.executable} {self.far} gate --log {self.gate_log} {options}"
        sshd.write_text(f'#!/bin/sh\nSSH_ORIGINAL_COMMAND="python3 {shlex.quote(str(self.far))} $*" exec {gate}\n')
        sshd.chmod(0o755)
        super().__init__(directory, command=[str(sshd)])

    @property
    def refused(self) -> list[str]:
        return self.gate_log.read_text().splitlines() if self.gate_log.exists() else []


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[GatedHost]:
    host = GatedHost(tmp_path)
    yield host
    host.kill_everything()


def test_the_whole_life_of_jobs_passes_the_gate_with_commands(gated: GatedHost) -> None:
    gated.init()
    message = f"{sys.executable} {gated.far} message {gated.run_dir} half way"
    jobs = [script("1", f"echo said; {message}; exit 3", stdout="../out"), script("2", "sleep 1000")]
    assert gated.submit(*jobs) == {"1": "accepted", "2": "accepted"}
    assert gated.ended("1")[0][1:3] == [3, "exit"]
    assert gated.call("jobs-kill", ids=["2"], how="kill", reason="cancel", message="")["done"] == ["2"]
    gated.ended("2")
    reply, content = gated.raw_call("cat-log", directory="1/job-1/NN", mode="list")
    assert "job.status" in reply["files"]
    reply, content = gated.raw_call("cat-log", directory="1/job-1/NN", mode="cat", file="job.status")
    assert reply["ok"]
    assert b"half way" in content
    gated.call("remote-tidy", remove=False)
    assert gated.refused == []


def test_the_whole_life_of_jobs_passes_the_gate_with_a_channel(gated: GatedHost) -> None:
    with channel(gated) as open_channel:
        open_channel.init()
        open_channel.call("jobs-poll", acks={}, full=True)
        open_channel.call("jobs-submit", launches=[script("1", "exit 4"), script("2", "sleep 1000")])
        open_channel.until(lambda: "1" in open_channel.ends(), "the end of the job")
        open_channel.call("jobs-kill", ids=["2"], how="kill", reason="cancel", message="")
        open_channel.until(lambda: "2" in open_channel.ends(), "the end of the killed job")
        assert open_channel.call("cat-log", directory="1/job-1/NN", mode="list")["files"]
        open_channel.call("remote-tidy", remove=False)
    until(lambda: not gated.supervisor_pids(), "the end of the supervisor")
    assert gated.refused == []


def test_a_channel_carries_only_what_the_gate_admits(tmp_path: Path) -> None:
    gated = GatedHost(tmp_path, "--refuse jobs-submit,jobs-kill")
    with channel(gated) as open_channel:
        open_channel.init()
        reply, _ = open_channel.raw_call("jobs-submit", launches=[script("1", "touch ../started")])
        assert (reply["ok"], reply["code"]) == (False, "refused")
        assert "jobs-submit" in reply["error"]
        assert open_channel.call("jobs-poll", acks={}, full=True)["live"] == []
    assert not (gated.run_dir / "work/1/started").exists()


def test_an_admitted_command_cannot_carry_another_request(tmp_path: Path) -> None:
    gated = GatedHost(tmp_path, "--refuse jobs-submit")
    gated.init()
    request = gated.request("jobs-submit", launches=[script("1", "touch ../started")])
    with gated.popen("jobs-poll") as process:
        out, error = process.communicate(encode(request), timeout=60)
    assert (process.returncode, out) == (2, b"")
    assert error == b"The request is 'jobs-submit', and the command jobs-poll.\n"
    assert not (gated.run_dir / "work/1/started").exists()


def test_a_channel_that_is_not_admitted_is_refused_before_it_begins(tmp_path: Path) -> None:
    gated = GatedHost(tmp_path, "--refuse remote-serve")
    gated.init()
    with gated.popen("remote-serve") as process:
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (126, b"")
    assert error == b"qcg-pm gate: refused: remote-serve is not admitted on this host\n"
    assert len(gated.refused) == 1
