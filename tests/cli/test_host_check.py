"""`qcg-pm hosts check`: every step, with a stub of ssh that runs commands on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from qcg.pilotjob.cli.host_check import Step, check_host
from qcg.pilotjob.cli.login_probe import log_in
from qcg.pilotjob.cli.main import main
from qcg.pilotjob.executors.ssh.config import HostConfig
from tests.support.memory_batch import register
from tests.support.waiting import wait_for

SSH = """#!/bin/sh
verbose= operation= master=
while :; do
    case $1 in
    -v) verbose=1; shift ;;
    -O) operation=$2; shift 2 ;;
    -l) shift 2 ;;
    -oControlMaster=auto) master=1; shift ;;
    -*) shift ;;
    *) break ;;
    esac
done
address=$1; shift
say() { [ -z "$verbose" ] || echo "$@" >&2; }
say "OpenSSH_9.2p1"
{before}
[ -z "$operation" ] || exit 1
say "debug1: Connection established."
{connected}
say "debug1: Host '$address' is known and matches the ED25519 host key."
{known}
say "Authenticated to $address" '([127.0.0.1]:22) using "publickey".'
{session}
cd {home} && HOME={home} PATH={path} exec /bin/sh -c "$*"
"""

Check = Callable[..., Result]


class Far:
    """The host behind the stub. Its fields are shell commands that run at certain steps of a login."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = directory / "home"
        self.home.mkdir()
        self.bin = directory / "far-bin"
        self.bin.mkdir()
        (self.bin / "python3").symlink_to(sys.executable)
        (self.bin / "rsync").symlink_to(shutil.which("rsync") or "/usr/bin/rsync")
        self.before = self.connected = self.known = self.session = ":"
        self.keys = "cores = 2"

    def write(self) -> Path:
        """Write the program and hosts.toml; returns the path of the latter."""
        (self.directory / "ssh").write_text(
            re.sub(
                r"\{(before|connected|known|session|home|path)\}",
                lambda match: str(self.bin) if match[1] == "path" else str(getattr(self, match[1])),
                SSH,
            )
        )
        (self.directory / "ssh").chmod(0o755)
        hosts = self.directory / "hosts.toml"
        hosts.write_text(f'[wizard]\nssh = "{self.directory}/ssh"\n{self.keys}\n')
        return hosts

    def check(self, *options: str, code: int = 0) -> Result:
        hosts = self.write()
        done = CliRunner().invoke(main, ["hosts", "check", "wizard", "--hosts", str(hosts), *options])
        assert done.exit_code == code, f"exit code {done.exit_code}\n{done.output}\n{done.exception!r}"
        return done

    def steps(self, *, code: int = 0) -> dict[str, dict[str, Any]]:
        shown = json.loads(self.check("--json", code=code).stdout)
        assert shown["ok"] == (code == 0)
        return {step["name"]: step for step in shown["steps"]}


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Far:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nothing"))
    return Far(tmp_path)


ALL = [
    "ssh here",
    "rsync here",
    "connection",
    "host key",
    "authentication",
    "login noise",
    "far side",
    "Python there",
    "run directory",
    "resources",
    "round trip",
    "sessions",
    "rsync there",
    "clean up",
]


@pytest.mark.parametrize("channel", ["serve", "one-shot"])
def test_a_good_host_passes_every_step_and_keeps_no_file_of_the_check(far: Far, channel: str):
    far.keys = f'channel = "{channel}"'
    steps = far.steps()
    assert list(steps) == ALL
    assert {step["result"] for step in steps.values()} == {"ok"}
    assert steps["Python there"]["text"].startswith(".".join(map(str, sys.version_info[:3])))
    assert steps["authentication"]["text"] == "with publickey"
    assert 0 < steps["connection"]["seconds"] <= steps["authentication"]["seconds"] < 60
    assert os.listdir(far.home / "qcg-run") == []


def test_people_get_a_line_for_each_step(far: Far):
    lines = far.check().stdout.splitlines()
    assert [line[8:28].strip() for line in lines[:-1]] == ALL
    assert re.fullmatch(r"ok      round trip +\d+ ms  \d+\.\d ms for a request and its answer", lines[10])
    assert lines[-1] == "wizard can be used."


@pytest.mark.parametrize(
    ("place", "then", "step", "part"),
    [
        ("before", "echo 'connect to wizard: Connection refused' >&2; exit 255", "connection", "refuses connections"),
        ("before", "echo 'ssh: Could not resolve hostname wizard' >&2; exit 255", "connection", "check `address`"),
        ("connected", "echo 'Host key verification failed.' >&2; exit 255", "host key", "is not known"),
        ("known", "echo 'wizard: Permission denied (publickey).' >&2; exit 255", "authentication", "refuses the login"),
        ("session", "exit 127", "far command", "Python 3.6 or later is all that it needs there"),
        ("session", "echo 'qcg-pm gate: refused: no' >&2; exit 126", "far command", "does not admit"),
    ],
)  # fmt: skip
def test_a_step_that_fails_says_what_to_do_and_ends_the_check(far: Far, place: str, then: str, step: str, part: str):
    setattr(far, place, then)
    steps = far.steps(code=1)
    assert list(steps)[-1] == step
    assert steps[step]["result"] == "failed"
    assert part in steps[step]["text"]


def test_login_noise_harms_only_rsync_and_is_shown_in_one_line(far: Far):
    far.session = "printf 'Welcome\\n\\033[2J to wizard'"
    steps = far.steps(code=1)
    assert steps["login noise"]["result"] == "note"
    assert "Welcome\\n\\x1b[2J to wizard" in steps["login noise"]["text"]
    assert "login scripts must write nothing" in steps["rsync there"]["text"]
    assert [name for name, step in steps.items() if step["result"] == "failed"] == ["rsync there"]


def test_a_host_that_admits_one_session_is_noted(far: Far):
    far.session = (
        '[ -n "$master$verbose" ] || echo "mux_client_request_session: session request failed: Session open refused by'
        ' peer" >&2'
    )
    steps = far.steps()
    assert steps["sessions"]["result"] == "note"
    assert "MaxSessions" in steps["sessions"]["text"]


def test_a_host_that_does_not_admit_the_channel_is_used_with_commands(far: Far):
    far.session = (
        'case "$*" in *remote-serve*) echo "qcg-pm gate: refused: remote-serve is not admitted" >&2; exit 126 ;; esac'
    )
    steps = far.steps()
    assert steps["channel"]["result"] == "note"
    assert "one-shot commands and polling are used" in steps["channel"]["text"]
    assert steps["clean up"]["result"] == "ok"


def test_a_missing_rsync_there_is_a_failed_step(far: Far):
    (far.bin / "rsync").unlink()
    steps = far.steps(code=1)
    assert steps["rsync there"]["result"] == "failed"
    assert "rsync must be installed on both sides" in steps["rsync there"]["text"]
    assert steps["clean up"]["result"] == "ok"


def test_missing_programs_on_this_machine_are_failed_steps(far: Far):
    far.keys = 'rsync = "no-such-rsync"'
    steps = far.steps(code=1)
    assert "there is no program 'no-such-rsync' on this machine; install it" in steps["rsync here"]["text"]


def test_a_run_directory_that_cannot_be_made_is_a_failed_step(far: Far):
    (far.home / "qcg-run").write_text("a file")
    steps = far.steps(code=1)
    assert steps["far side"]["result"] == "failed"
    assert "qcg-run" in steps["far side"]["text"]


def test_missing_batch_commands_are_a_failed_step(far: Far):
    far.keys = 'batch = "slurm"'
    steps = far.steps(code=1)
    assert steps["batch system"]["result"] == "failed"
    assert "login_shell = true" in steps["batch system"]["text"]


def test_a_batch_system_that_remote_hosts_cannot_use_is_a_failed_step(far: Far, monkeypatch: pytest.MonkeyPatch):
    register(monkeypatch)
    steps: list[Step] = []
    config = HostConfig("wizard", ("wizard",), "hosts.toml", ssh=(str(far.directory / "ssh"),), batch="memory")
    assert not asyncio.run(check_host(config, steps.append))
    assert (steps[-1].name, steps[-1].result) == ("batch system", "failed")
    assert "batch = 'memory' is not for remote hosts" in steps[-1].text


def test_addresses_without_a_common_file_system_are_found(far: Far):
    far.keys = 'address = ["login1", "login2"]'
    assert [step["name"] for step in json.loads(far.check("--json").stdout)["steps"]] == [*ALL[:-1], *ALL[2:]]
    assert os.listdir(far.home / "qcg-run") == []
    other = far.directory / "other"
    other.mkdir()
    far.session = f'[ $address = login1 ] || {{ cd {other} && HOME={other} PATH={far.bin} exec /bin/sh -c "$*"; }}'
    shown = json.loads(far.check("--json", code=1).stdout)["steps"]
    assert [step["name"] for step in shown[-3:]] == ["run directory", "clean up", "clean up"]
    assert "login2 does not see the files of login1" in shown[-3]["text"]
    assert os.listdir(far.home / "qcg-run") == os.listdir(other / "qcg-run") == []


def test_a_host_that_needs_a_person_says_how_to_connect(far: Far):
    far.keys = 'second_factor = "own"'
    steps = far.steps(code=1)
    assert "qcg-pm hosts connect wizard" in steps["open connection"]["text"]


def test_a_login_that_hangs_is_given_up():
    login = asyncio.run(log_in(["sleep", "60"], 0.2))
    assert login.exit_code is None
    assert login.seconds < 30


def test_an_interrupted_check_removes_its_files(far: Far):
    (far.bin / "rsync").unlink()
    (far.bin / "rsync").write_text(f"#!/bin/sh\n: > {far.directory}/started\nexec /bin/cat > /dev/null\n")
    (far.bin / "rsync").chmod(0o755)
    command = [str(Path(sys.executable).parent / "qcg-pm"), "hosts", "check", "wizard", "--hosts", str(far.write())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        wait_for(lambda: (far.directory / "started").exists(), what="the transfer")
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert os.listdir(far.home / "qcg-run") == []
    assert shown.splitlines()[-1].startswith("ok      clean up")
