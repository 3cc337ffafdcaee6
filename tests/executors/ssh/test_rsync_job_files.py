"""Files of remote jobs, copied by a real rsync. In place of ssh stands a program that runs commands on this machine."""

from __future__ import annotations

import asyncio
import errno
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from qcg.pilotjob.executors.ssh.commands import Control
from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.executors.ssh.errors import ConnectionProblem
from qcg.pilotjob.executors.ssh.job_files import ConnectedHost
from qcg.pilotjob.executors.ssh.rsync_job_files import RsyncJobFiles
from qcg.pilotjob.host.records import Ended, EndReason, Launch, RemotePart, RemoteRequest

SSH = """#!/bin/bash
# Runs the command of an ssh command line in the home directory of the host.
while [[ $1 == -* ]]; do
    [[ $1 == -l ]] && shift
    shift
done
shift
[ -e {home}/unreachable ] && {{ echo "ssh: connect to host wizard port 22: No route to host" >&2; exit 255; }}
echo "$*" >> {home}/../calls
cd {home} && exec bash -c "$*"
"""


class Host:
    def __init__(self, directory: Path) -> None:
        self.wd = directory / "wd"
        self.home = directory / "home"
        self.run = self.home / "qcg-run/r1"
        for path in (self.wd, self.run):
            path.mkdir(parents=True)
        ssh = directory / "ssh"
        ssh.write_text(SSH.format(home=self.home))
        ssh.chmod(0o755)
        self.config = HostConfig("wizard", ("wizard",), ssh=(str(ssh),), retrieve_max_size="1K")
        self.tree = directory / "tree"
        self.files = RsyncJobFiles(self.wd, self.tree, "always")
        self.calls_file = directory / "calls"

    @property
    def connected(self) -> ConnectedHost:
        return ConnectedHost(
            self.config, "wizard", Control("no"), "qcg-run/r1", str(self.run), shared=False, log="log.now"
        )

    @property
    def calls(self) -> int:
        return len(self.calls_file.read_text().splitlines()) if self.calls_file.exists() else 0

    def stage_in(self, *launches: Launch) -> dict[str, str]:
        return dict(asyncio.run(self.files.stage_in(self.connected, launches)))

    def after_end(self, *ended: Ended) -> Sequence[Ended]:
        return asyncio.run(self.files.after_end(self.connected, ended))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def launch(id: str, name: str, inputs: Sequence[str] = (), outputs: Sequence[str] = (), wd: str = "") -> Launch:
    request = RemoteRequest(*[None] * len(RemoteRequest._fields))  # type: ignore[arg-type]
    part = RemotePart(f"job/1/{name}/01", "1", name, 1, list(inputs), list(outputs), {}, request)
    wd = wd or f"work/1/{name}"
    return Launch(id, ["true"], {}, [], wd, None, None, None, None, None, False, [], remote=part)


def ended(id: str, exit_code: int = 0) -> Ended:
    return Ended(id, 2.0, exit_code, EndReason.EXIT, "", 7, 1.0)


def test_inputs_of_many_jobs_arrive_in_their_working_directories_with_one_rsync(host: Host):
    (host.wd / "data").mkdir()
    (host.wd / "data/a.csv").write_text("a")
    (host.wd / "data/b.csv").write_text("b")
    (host.wd / "model.py").write_text("model")
    jobs = [launch(f"{number}.1", f"sim{number}", ["data/*.csv", "model.py"]) for number in range(5)]
    assert host.stage_in(*jobs) == {}
    for number in range(5):
        place = host.run / f"work/1/sim{number}"
        assert (place / "data/a.csv").read_text() == "a"
        assert (place / "model.py").read_text() == "model"
        assert not (place / "model.py").is_symlink()
    assert host.calls == 1


def test_a_directory_of_inputs_arrives_with_everything_in_it(host: Host):
    (host.wd / "model/deep").mkdir(parents=True)
    (host.wd / 'model/deep/it\'s "here" $HOME.txt').write_text("x")
    (host.wd / "model/link").symlink_to("deep")
    assert host.stage_in(launch("1.1", "sim", ["model/"])) == {}
    arrived = host.run / "work/1/sim/model"
    assert (arrived / 'deep/it\'s "here" $HOME.txt').read_text() == "x"
    assert (arrived / "link").is_symlink()


def test_a_missing_input_fails_its_own_job_alone(host: Host):
    (host.wd / "there").write_text("x")
    refused = host.stage_in(launch("1.1", "good", ["there"]), launch("2.1", "bad", ["missing*"]))
    assert refused == {"2.1": f"Its input 'missing*' matches no file in {host.wd}."}
    assert (host.run / "work/1/good/there").exists()


def test_an_input_that_cannot_be_written_there_fails_its_own_job_alone(host: Host):
    (host.wd / "there").write_text("x")
    (host.run / "work/1/bad/there/full").mkdir(parents=True)
    refused = host.stage_in(launch("1.1", "good", ["there"]), launch("2.1", "bad", ["there"]))
    assert list(refused) == ["2.1"]
    assert refused["2.1"].startswith("Its inputs could not be copied to wizard: ")
    assert (host.run / "work/1/good/there").exists()


def test_outputs_come_back_to_the_same_place_below_the_working_directory(host: Host):
    for name in ("a", "b"):
        place = host.run / f"work/1/{name}/result"
        place.mkdir(parents=True)
        (place / "x.dat").write_text(name)
        (place / "large.tmp").write_text("not wanted")
        host.files.launched(launch(f"{name}.1", name, outputs=["result/*.dat"]))
    ends = host.after_end(ended("a.1"), ended("b.1"))
    assert [end.exit_code for end in ends] == [0, 0]
    assert (host.wd / "work/1/a/result/x.dat").read_text() == "a"
    assert (host.wd / "work/1/b/result/x.dat").read_text() == "b"
    assert not (host.wd / "work/1/b/result/large.tmp").exists()


def test_outputs_that_an_earlier_copy_has_brought_are_not_missing(host: Host):
    far = host.run / "work/1/a"
    far.mkdir(parents=True)
    (far / "result|1.txt").write_text("a")
    host.files.launched(launch("1:0.1", "a", outputs=["result*"]))
    assert [end.reason for end in host.after_end(ended("1:0.1"))] == [EndReason.EXIT]
    host.files.launched(launch("1:0.1", "a", outputs=["result*"]))
    assert [end.reason for end in host.after_end(ended("1:0.1"))] == [EndReason.EXIT]


def test_a_copy_whose_rsync_is_killed_is_repeated_and_fails_no_job(host: Host):
    (host.run / "work/1/a").mkdir(parents=True)
    (host.run / "work/1/a/result").write_text("a")
    rsync = host.wd.parent / "rsync"
    rsync.write_text("#!/bin/sh\nkill -9 $$\n")
    rsync.chmod(0o755)
    host.config = replace(host.config, rsync=(str(rsync),))
    host.files.launched(launch("1:0.1", "a", outputs=["result"]))
    with pytest.raises(ConnectionProblem, match="was killed"):
        host.after_end(ended("1:0.1"))
    host.config = replace(host.config, rsync=("rsync",))
    assert [end.reason for end in host.after_end(ended("1:0.1"))] == [EndReason.EXIT]


def test_a_job_whose_outputs_are_missing_has_failed_and_says_which(host: Host):
    (host.run / "work/1/a").mkdir(parents=True)
    host.files.launched(launch("a.1", "a", outputs=["result/", "*.log"]))
    (end,) = host.after_end(ended("a.1"))
    assert (end.reason, end.exit_code) == (EndReason.STAGING, 0)
    assert end.message == "Its outputs 'result/', '*.log' are missing in work/1/a on wizard."


def test_logs_of_a_job_without_its_outputs_are_retrieved_as_those_of_a_failure(host: Host):
    host.files = RsyncJobFiles(host.wd, host.tree, "on-failure")
    (host.run / "log.now/job/1/a/01").mkdir(parents=True)
    (host.run / "log.now/job/1/a/01/job.err").write_text("I tried")
    host.files.launched(launch("a.1", "a", outputs=["result/"]))
    host.after_end(ended("a.1"))
    assert (host.tree / "log/job/1/a/NN/job.err").read_text() == "I tried"


def test_a_job_that_failed_keeps_its_exit_code_when_outputs_are_missing(host: Host):
    (host.run / "work/1/a").mkdir(parents=True)
    host.files.launched(launch("a.1", "a", outputs=["result/"]))
    (end,) = host.after_end(ended("a.1", 3))
    assert (end.reason, end.exit_code) == (EndReason.EXIT, 3)
    assert end.message == ""


def test_outputs_of_attempts_of_an_earlier_manager_are_recalled(host: Host):
    (host.run / "work/1/a").mkdir(parents=True)
    (host.run / "work/1/a/out.txt").write_text("x")
    host.files = RsyncJobFiles(host.wd, host.tree, "always", lambda end: launch(end.id, "a", outputs=["out.txt"]))
    logs = host.run / "log.before/job/1/a/01"
    logs.mkdir(parents=True)
    (logs / "job.out").write_text("earlier")
    (host.run / "log.before/job/1/other/01").mkdir(parents=True)
    assert host.files.holds_end(ended("a.1"))
    host.after_end(ended("a.1"))
    assert (host.wd / "work/1/a/out.txt").read_text() == "x"
    assert (host.tree / "log.before/job/1/a/NN/job.out").read_text() == "earlier"
    assert not (host.tree / "log.before/job/1/other").exists()


def test_logs_of_many_attempts_are_retrieved_with_one_rsync_and_a_size_limit(host: Host):
    for name in ("a", "b", "c"):
        place = host.run / f"log.now/job/1/{name}/01"
        place.mkdir(parents=True)
        (place / "job.out").write_text(name)
        (place / "job.err").write_bytes(b"x" * 5000)
    for name in ("a", "b"):
        host.files.launched(launch(f"{name}.1", name))
    host.after_end(ended("a.1"), ended("b.1", 1))
    for name in ("a", "b"):
        assert (host.tree / f"log.now/job/1/{name}/01/job.out").read_text() == name
        assert not (host.tree / f"log.now/job/1/{name}/01/job.err").exists()
    assert not (host.tree / "log.now/job/1/c").exists()
    assert (host.tree / "log/job/1/a/NN/job.out").read_text() == "a"
    assert host.calls == 1


def test_a_lost_connection_is_no_failure_of_a_job(host: Host):
    (host.wd / "there").write_text("x")
    (host.home / "unreachable").touch()
    with pytest.raises(ConnectionProblem, match="no route to wizard"):
        host.stage_in(launch("1.1", "sim", ["there"]))


@pytest.mark.parametrize(
    ("retrieve", "exit_code", "follows"),
    [("never", 1, False), ("on-failure", 1, True), ("on-failure", 0, False), ("always", 0, True)],
)
def test_logs_are_retrieved_as_configured(host: Host, retrieve: str, exit_code: int, follows: bool):
    files = RsyncJobFiles(host.wd, host.tree, retrieve)
    assert files.follows_end(ended("a.1", exit_code)) is follows


@pytest.mark.parametrize("inputs", [["model/", "model/a"], ["model/a", "model/"], ["model/*", "model", "model/deep/c"]])
def test_a_directory_arrives_whole_whatever_else_is_named_in_it(host: Host, inputs: list[str]):
    (host.wd / "model/deep").mkdir(parents=True)
    for name in ("a", "b", "deep/c"):
        (host.wd / "model" / name).write_text(name)
    assert host.stage_in(launch("1.1", "sim", inputs)) == {}
    for name in ("a", "b", "deep/c"):
        assert (host.run / "work/1/sim/model" / name).read_text() == name


def test_two_inputs_of_one_name_fail_their_own_job_alone(host: Host):
    for place in ("x", "y"):
        (host.wd.parent / place).mkdir()
        (host.wd.parent / place / "a").write_text(place)
    (host.wd / "there").write_text("x")
    bad = launch("1.1", "bad", ["../x/a", "../y/a"])
    refused = host.stage_in(bad, launch("2.1", "good", ["there"]))
    assert list(refused) == ["1.1"]
    assert "would both arrive at work/1/bad/a; rename one of them." in refused["1.1"]
    assert (host.run / "work/1/good/there").exists()


def test_jobs_of_one_directory_get_their_own_inputs_one_after_another(host: Host):
    for place, text in (("x", "first"), ("y", "the second")):
        (host.wd.parent / place).mkdir()
        (host.wd.parent / place / "a").write_text(text)
    jobs = [launch(f"{place}.1", place, [f"../{place}/a"], wd="same") for place in ("x", "y")]
    assert host.stage_in(*jobs) == {}
    assert (host.run / "same/a").read_text() == "the second"


def test_a_full_disk_of_this_machine_fails_the_jobs_with_inputs(host: Host, monkeypatch: pytest.MonkeyPatch):
    def no_space(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (host.wd / "there").write_text("x")
    monkeypatch.setattr(tempfile, "TemporaryDirectory", no_space)
    refused = host.stage_in(launch("1.1", "sim", ["there"]))
    assert refused == {"1.1": "Its inputs could not be copied to wizard: [Errno 28] No space left on device."}


def test_logs_that_cannot_be_written_here_fail_no_job(host: Host, caplog: pytest.LogCaptureFixture):
    host.tree.write_text("a file in the way")
    (host.run / "work/1/a").mkdir(parents=True)
    (host.run / "work/1/a/out.txt").write_text("x")
    host.files.launched(launch("a.1", "a", outputs=["out.txt"]))
    (end,) = host.after_end(ended("a.1"))
    assert end.exit_code == 0
    assert "logs of jobs on wizard cannot be written to" in caplog.text
    [lost] = host.files.take_lost_logs()
    assert (lost.attempts, "cannot be written to" in lost.reason) == (1, True)
    assert host.files.take_lost_logs() == []
