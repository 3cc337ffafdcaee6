"""`qcg-pm hosts`: the list, the line for the gate, and connections that a person opens."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from qcg.pilotjob.api.errors import RequestRefusedError
from qcg.pilotjob.cli import host_connection
from qcg.pilotjob.cli.commands import hosts
from qcg.pilotjob.cli.main import main
from qcg.pilotjob.host.remote.gate import Policy, read_policy

Pm = Callable[..., Result]

HOSTS = """
[wizard]
owner = "hobo"
cores = 4
gpus = 1
memory = 2048

[citadel]
address = ["login1", "login2"]
batch = "slurm"
channel = "one-shot"
second_factor = "own"
"""


class FakeManager:
    """A live manager that knows remote hosts."""

    run_dir = Path("/runs/.qcgpjm-service-x")

    def __init__(self, states: dict[str, Any]) -> None:
        self.states = states
        self.connected: list[str] = []

    def hosts(self) -> dict[str, Any]:
        return self.states

    def connect_host(self, name: str) -> None:
        if name not in self.states:
            raise RequestRefusedError(f'this run has no remote host "{name}"')
        self.connected.append(name)


@pytest.fixture
def pm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pm:
    """`pm("hosts")` is `qcg-pm hosts` in a new directory of a user with two hosts."""
    config = tmp_path / "config" / "qcg-pm" / "hosts.toml"
    config.parent.mkdir(parents=True)
    config.write_text(HOSTS)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, code: int = 0) -> Result:
        done = CliRunner().invoke(main, arguments, prog_name="qcg-pm")
        assert done.exit_code == code, f"{arguments}: exit code {done.exit_code}\n{done.output}\n{done.exception!r}"
        return done

    return call


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> FakeManager:
    fake = FakeManager(
        {
            "wizard": {
                "state": "unreachable",
                "since": "2026-01-02 03:04:05.678901",
                "error": "wizard does not answer; it is down,\nor \x1b[2Ja firewall",
            },
            "citadel": {"state": "unused"},
        }
    )

    @contextmanager
    def found(path: str | None, address: str | None) -> Iterator[FakeManager]:
        yield fake

    monkeypatch.setattr(hosts, "live_manager", found)
    return fake


def test_hosts_are_listed_without_a_run(pm: Pm):
    assert pm("hosts").stdout.splitlines() == [
        "host     address         batch system  at once                   channel   state",
        "citadel  login1, login2  slurm         100 jobs                  one-shot",
        "wizard   hobo@wizard     none          4 cores, 1 GPU, 2048 MiB  serve",
    ]


def test_hosts_have_a_state_in_a_live_run(pm: Pm, manager: FakeManager):
    manager.states["other"] = {"state": "connected", "address": "far", "channel": "serve"}
    del manager.states["citadel"]
    lines = pm("hosts").stdout.splitlines()
    assert [re.split(r"  +", line)[-1] for line in lines[1:4]] == [
        "not in this run",
        "connected",
        "unreachable since 2026-01-02 03:04:05",
    ]
    assert lines[4:] == ["wizard: wizard does not answer; it is down,\\nor \\x1b[2Ja firewall"]


def test_a_host_that_no_job_needed_is_not_used_yet(pm: Pm, manager: FakeManager):
    assert re.search(r"^citadel .* not used yet$", pm("hosts").stdout, re.MULTILINE)


def test_programs_get_the_same_as_json(pm: Pm, manager: FakeManager, tmp_path: Path):
    manager.states["citadel"] = {"state": "connected", "address": "login2", "channel": "one-shot"}
    listed = json.loads(pm("hosts", "--json").stdout)
    assert listed["run"] == "/runs/.qcgpjm-service-x"
    citadel, wizard = listed["hosts"]
    assert citadel == {
        "name": "citadel",
        "addresses": ["login1", "login2"],
        "owner": None,
        "batch": "slurm",
        "jobs": 100,
        "memory": None,
        "channel": "one-shot",
        "directory": "qcg-run",
        "source": str(tmp_path / "config/qcg-pm/hosts.toml"),
        "state": "connected",
        "in_use": {"address": "login2", "channel": "one-shot"},
    }
    since = datetime(2026, 1, 2, 3, 4, 5, 678901).timestamp()
    assert (wizard["state"], wizard["since"]) == ("unreachable", since)
    assert (wizard["cores"], wizard["gpus"], wizard["memory"]) == (4, 1, 2048)


def test_without_hosts_the_command_names_the_configuration_file(
    pm: Pm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nowhere"))
    assert pm("hosts").stdout == (
        f"No remote host is configured; write it to {tmp_path}/nowhere/qcg-pm/hosts.toml,"
        " or to a file given with --hosts.\n"
    )


def test_a_further_file_is_read(pm: Pm, tmp_path: Path):
    (tmp_path / "more.toml").write_text("[tower]\n")
    assert "tower" in pm("hosts", "--hosts", "more.toml").stdout
    assert "[tower]" in pm("hosts", "--hosts", "more.toml", "gate", "tower").stdout
    assert "[tower]" in pm("hosts", "gate", "tower", "--hosts", "more.toml").stdout
    assert "there is no such file" in pm("hosts", "--hosts", "none.toml", code=2).stderr


@pytest.mark.parametrize("action", ["check", "connect", "gate"])
def test_an_unknown_host_is_refused_with_the_nearest_name(pm: Pm, action: str):
    assert "there is no host 'wizzard'; did you mean 'wizard'?" in pm("hosts", action, "wizzard", code=2).stderr


def test_a_wrong_configuration_is_reported_in_one_sentence(pm: Pm, tmp_path: Path):
    (tmp_path / "wrong.toml").write_text("[wizard]\ncors = 4\n")
    shown = pm("hosts", "--hosts", "wrong.toml", code=2).stderr
    assert shown == "Error: wrong.toml, [wizard]: there is no key 'cors'; did you mean 'cores'?\n"


def test_a_manager_that_was_named_must_exist(pm: Pm, tmp_path: Path):
    assert "No manager was found" in pm("hosts", "--path", str(tmp_path), code=2).stderr


def test_host_names_are_completed(tmp_path: Path, pm: Pm):
    environment = {
        **os.environ,
        "_QCG_PM_COMPLETE": "bash_complete",
        "COMP_WORDS": "qcg-pm hosts check w",
        "COMP_CWORD": "3",
    }
    program = Path(sys.executable).parent / "qcg-pm"
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "plain,wizard\n"


# -- the gate ---------------------------------------------------------------------------------------------------------


def gate_of(shown: str) -> tuple[list[str], str]:
    """The forced command of the line for authorized_keys, read as sshd does, and the rest of the line."""
    line = next(line for line in shown.splitlines() if line.startswith('command="'))
    found = re.fullmatch(r'command="((?:[^"\\]|\\.)*)",restrict (.*)', line)
    assert found is not None
    return shlex.split(re.sub(r"\\(.)", r"\1", found[1])), found[2]


def test_the_gate_is_printed_with_the_commands_that_install_it(pm: Pm):
    shown = pm("hosts", "gate", "wizard").stdout
    words, key = gate_of(shown)
    assert words == ["python3", "/opt/qcg-pm/qcg-pm-remote.pyz", "gate"]
    assert key.startswith("ssh-ed25519 ")
    assert [line for line in shown.splitlines() if not line.startswith("#")][:2] == [
        "qcg-pm hosts gate wizard --write qcg-pm-remote.pyz",
        "rsync qcg-pm-remote.pyz hobo@wizard:/opt/qcg-pm/qcg-pm-remote.pyz",
    ]
    assert shown.endswith('command = "python3 /opt/qcg-pm/qcg-pm-remote.pyz"\n')


@pytest.mark.parametrize(
    ("config", "options", "far", "policy"),
    [
        ("", ["--refuse", "remote-serve, jobs-kill"], ["python3", "/opt/qcg-pm/qcg-pm-remote.pyz"], {}),
        ("", ["--admit", "jobs-poll", "--to", "/x/y z.pyz"], ["python3", "/x/y z.pyz"], {}),
        ('directory = "/x/my runs"', [], ["python3", "/opt/qcg-pm/qcg-pm-remote.pyz"], {"directory": "/x/my runs"}),
        ('command = "/usr/bin/python3 /a/far.pyz"', [], ["/usr/bin/python3", "/a/far.pyz"], {}),
        ('command = "/opt/bin/far"', [], ["/opt/bin/far"], {"commands": (("/opt/bin/far",),)}),
        ('python = "/opt/py/bin/python3"', [], ["/opt/py/bin/python3", "/opt/qcg-pm/qcg-pm-remote.pyz"], {}),
    ],
)  # fmt: skip
def test_the_printed_line_is_one_that_the_gate_reads(
    pm: Pm, tmp_path: Path, config: str, options: list[str], far: list[str], policy: dict[str, Any]
):
    (tmp_path / "one.toml").write_text(f"[tower]\n{config}\n")
    words, _ = gate_of(pm("hosts", "gate", "tower", "--hosts", "one.toml", *options).stdout)
    assert words[: len(far) + 1] == [*far, "gate"]
    read = read_policy(words[len(far) + 1 :], Policy("/opt/far.pyz", "/home/me"))
    default = Policy("/opt/far.pyz", "/home/me", **policy)
    if "--refuse" in options:
        assert read.admitted == default.admitted - {"remote-serve", "jobs-kill"}
    elif "--admit" in options:
        assert read.admitted == {"jobs-poll"}
    else:
        assert read == default


def test_a_public_key_completes_the_line(pm: Pm, tmp_path: Path):
    (tmp_path / "id.pub").write_text("ssh-ed25519 AAAAC3 me@here\n")
    (tmp_path / "id").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nx\n")
    assert gate_of(pm("hosts", "gate", "wizard", "--key", "id.pub").stdout)[1] == "ssh-ed25519 AAAAC3 me@here"
    shown = pm("hosts", "gate", "wizard", "--key", "id", code=2).stderr
    assert "is no public key of ssh" in shown
    assert "PRIVATE" not in shown


def test_wrong_options_of_the_gate_are_refused(pm: Pm):
    assert "'jobs' is nothing that a gate can admit" in pm("hosts", "gate", "wizard", "--admit", "jobs", code=2).stderr
    assert "takes an absolute path" in pm("hosts", "gate", "wizard", "--to", "far.pyz", code=2).stderr


def test_the_program_is_written_and_any_python_runs_its_gate(pm: Pm, tmp_path: Path):
    assert pm("hosts", "gate", "wizard", "--write", "far.pyz").stdout == "far.pyz was written.\n"
    environment = {"PATH": os.environ["PATH"], "SSH_ORIGINAL_COMMAND": "id", "HOME": str(tmp_path)}
    done = subprocess.run(
        ["python3", "-I", "far.pyz", "gate", "--log", str(tmp_path / "gate.log")],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (126, "qcg-pm gate: refused: 'id' is no command that this key may use\n")
    assert "cannot be written" in pm("hosts", "gate", "wizard", "--write", "none/far.pyz", code=2).stderr


# -- connections that a person opens ----------------------------------------------------------------------------------


SSH = """#!/bin/sh
echo "$*" >> {log}
case "$*" in
*'-O check'*) test -e {open} ;;
*login1*) exit 255 ;;
*) {then} ;;
esac
"""


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a program in the place of ssh; `then`: what it does to connect to login2."""
    monkeypatch.setattr(host_connection, "control_directory", lambda user: str(tmp_path / "sockets"))

    def make(then: str) -> Path:
        log = tmp_path / "ssh.log"
        program = tmp_path / "bin" / "ssh"
        program.parent.mkdir(exist_ok=True)
        program.write_text(SSH.format(log=log, open=tmp_path / "open", then=then))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        return log

    return make


def test_a_connection_is_opened_to_the_first_address_that_admits_it(
    pm: Pm, ssh: Callable[[str], Path], tmp_path: Path, manager: FakeManager
):
    log = ssh(f"touch {tmp_path}/open")
    assert pm("hosts", "connect", "citadel").stdout.splitlines() == [
        "A connection to login2 is open now.",
        "The manager of this directory tries citadel again now.",
    ]
    assert manager.connected == ["citadel"]
    opening = [line for line in log.read_text().splitlines() if " -O " not in line]
    assert [line.split()[-1] for line in opening] == ["login1", "login2"]
    assert all("BatchMode" not in line and "-M" in line and "ControlPersist=yes" in line for line in opening)
    assert os.stat(tmp_path / "sockets").st_mode & 0o777 == 0o700


def test_an_open_connection_is_kept(pm: Pm, ssh: Callable[[str], Path], tmp_path: Path):
    log = ssh("exit 1")
    (tmp_path / "open").touch()
    assert pm("hosts", "connect", "citadel").stdout == "A connection to login1 is open already.\n"
    assert log.read_text().count("\n") == 1


def test_a_connection_that_cannot_be_opened_is_an_error(pm: Pm, ssh: Callable[[str], Path]):
    ssh("exit 255")
    assert "no connection to citadel could be opened" in pm("hosts", "connect", "citadel", code=1).stderr


def test_a_login_that_leaves_no_shared_connection_is_an_error(pm: Pm, ssh: Callable[[str], Path]):
    ssh("exit 0")
    assert "keeps no shared connection" in pm("hosts", "connect", "citadel", code=1).stderr


def test_a_host_that_needs_no_person_is_only_tried_again(pm: Pm, manager: FakeManager):
    assert pm("hosts", "connect", "wizard").stdout.splitlines() == [
        'wizard has second_factor = "none": managers connect by themselves.',
        "The manager of this directory tries wizard again now.",
    ]


def test_connect_reports_a_live_run_without_the_host(pm: Pm, manager: FakeManager):
    del manager.states["wizard"]
    assert 'this run has no remote host "wizard"' in pm("hosts", "connect", "wizard", code=1).stderr


def test_a_missing_ssh_is_reported_in_one_sentence(pm: Pm, tmp_path: Path):
    (tmp_path / "one.toml").write_text('[tower]\nsecond_factor = "reuse"\nssh = "no-such-ssh"\n')
    shown = pm("hosts", "connect", "tower", "--hosts", "one.toml", code=2).stderr
    assert "'no-such-ssh' cannot be started: No such file or directory; check `ssh` in hosts.toml" in shown
