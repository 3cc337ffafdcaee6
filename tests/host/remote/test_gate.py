"""The gate with random input, as a program, and with the real rsync."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipapp
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qcg.pilotjob.host.remote.command_words import NotPlainWords, split_words
from qcg.pilotjob.host.remote.gate import RSYNC_IN, SENTENCE, Policy, Refused, decide
from tests.support.hostile_texts import HOSTILE

ROOT = Path(__file__).parents[3]
RSYNC = "/usr/bin/rsync"
POLICY = Policy("/opt/far.pyz", "/nonexistent/home", rsync=RSYNC)

OPTIONS = "--server --sender -logDtpre.iLsfxCIvu -e --rsh=sh --daemon . .. - -- -c"
NAMES = "python3 /opt/far.pyz jobs-poll remote-serve message gate rsync sh id qcg-run/r1 qcg-run qcg-run/r1/.. /etc"
SHELL = ["; id", "&&", "|", "$(id)", "`id`", "'", '"', "\\", "\n", "~", "*", "#", "''", "\x00", "\udc80", "é"]
WORDS = st.sampled_from([*OPTIONS.split(), *NAMES.split(), *SHELL])
COMMANDS = st.one_of(st.text(), st.lists(st.one_of(WORDS, st.text(max_size=5))).map(" ".join))


@given(COMMANDS)
def test_any_text_is_admitted_or_refused_and_only_two_programs_are_started(text: str) -> None:
    try:
        command = decide(text, POLICY)
    except Refused:
        return
    assert command[0] in (sys.executable, RSYNC)
    if command[0] == RSYNC:
        assert command[1] == "--server"
        paths = command[command.index(".") + 1 :]
    else:
        assert command[1] == POLICY.zipapp
        paths = [command[3]]
    assert paths
    for path in paths:
        assert os.path.normpath(os.path.join(POLICY.home, path)).startswith("/nonexistent/home/qcg-run/")


@given(st.lists(st.sampled_from(["qcg-run", "r1", "..", ".", "", "/", "~", "x", "-a"]), max_size=6).map("/".join))
def test_no_path_leads_out_of_the_run_directories(path: str) -> None:
    try:
        command = decide(f"rsync --server --sender -re.i . '{path}'", POLICY)
    except Refused:
        return
    assert os.path.normpath(os.path.join(POLICY.home, command[-1])).startswith("/nonexistent/home/qcg-run/")


# The alphabet has no word that is a program, because the shell of the next test gets every admitted line.
@given(st.lists(st.text("ab \t'\"\\$;~#=-`*", max_size=12), min_size=20, max_size=40))
def test_admitted_words_are_those_that_a_shell_sees(texts: list[str]) -> None:
    split = {}
    for text in texts:
        try:
            split[text] = split_words(text)
        except NotPlainWords:
            continue
    # `set --` gives the words to the shell's own arguments and starts nothing.
    script = "".join(f"set -- {text}\nfor word; do printf '%s\\n' \"<$word>\"; done\necho end\n" for text in split)
    shown = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown == "".join("".join(f"<{word}>\n" for word in words) + "end\n" for words in split.values())


# -- the program ----------------------------------------------------------------------------------------------------

MAIN = """
import os, pwd, sys
from qcg.pilotjob.host.remote import gate
if sys.argv[1] == "gate":
    gate.pwd.getpwuid = lambda user: pwd.struct_passwd(("me", "", user, 0, "", os.environ["TEST_HOME"], ""))
    sys.exit(gate.main(sys.argv[2:]))
print(sys.argv[1:], os.environ["QCG_PM_GATE_ADMITS"].count(","), os.getcwd(), "PYTHONPATH" in os.environ)
"""


class Host:
    """A home directory behind a gate. `ssh` replaces both the program and sshd."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self.run = self.home / "qcg-run" / "r1"
        self.run.mkdir(parents=True)
        package = directory / "far" / "qcg" / "pilotjob" / "host"
        source = ROOT / "src/qcg/pilotjob/host"
        (package / "remote").mkdir(parents=True)
        for name in ("safe_open.py", "remote/gate.py", "remote/gate_rsync.py", "remote/command_words.py"):
            shutil.copy(source / name, package / name)
        (directory / "far" / "__main__.py").write_text(MAIN)
        self.far = directory / "far.pyz"
        zipapp.create_archive(directory / "far", self.far)
        self.ssh = directory / "ssh"
        self.options = ""

    def write_ssh(self) -> None:
        self.ssh.write_text(
            "#!/bin/sh\nwhile [ $1 != host ]; do shift; done; shift\n"
            f'SSH_ORIGINAL_COMMAND="$*" exec {sys.executable} {self.far} gate {self.options}\n'
        )
        self.ssh.chmod(0o755)

    def ask(self, command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        self.write_ssh()
        return self._call([str(self.ssh), "host", command], **variables)

    def rsync(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        self.write_ssh()
        return self._call([RSYNC, "-e", str(self.ssh), *arguments])

    def _call(self, command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "TEST_HOME": str(self.home),
            "SSH_CONNECTION": "10.1.2.3 5 10.0.0.1 22",
            **variables,
        }
        return subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)

    @property
    def log(self) -> str:
        path = self.home / ".qcg-pm" / "gate.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path.resolve())


def test_an_admitted_command_starts_the_far_side_in_the_home_directory(host: Host) -> None:
    answer = host.ask(f"python3 {host.far} jobs-poll qcg-run/r1", PYTHONPATH="/tmp/x")
    assert answer.stdout == f"['jobs-poll', 'qcg-run/r1'] 9 {host.home} False\n", answer.stderr
    assert answer.returncode == 0
    assert host.log == ""


@pytest.mark.parametrize("text", [text for name, text in HOSTILE.items() if name != "null" and "\ud800" not in text])
def test_a_refused_command_gets_one_sentence_and_exit_code_126_and_one_line_of_the_log(host: Host, text: str) -> None:
    answer = host.ask(f"id {text}")
    assert answer.returncode == 126
    assert answer.stdout == ""
    assert answer.stderr.startswith(SENTENCE)
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.rstrip("\n").isprintable()
    assert host.log.count("\n") == 1
    assert host.log.rstrip("\n").isprintable()
    assert "10.1.2.3" in host.log


def test_a_login_is_refused(host: Host) -> None:
    answer = host.ask("")
    assert (answer.returncode, answer.stdout) == (126, "")
    assert answer.stderr == f"{SENTENCE}this key is for commands of QCG-PilotJob only, not for a login\n"


def test_a_gate_with_a_wrong_option_admits_nothing(host: Host) -> None:
    host.options = "--admit jobs-polls"
    answer = host.ask(f"python3 {host.far} jobs-poll qcg-run/r1")
    assert answer.returncode == 126
    assert "the gate is set up wrongly in authorized_keys: 'jobs-polls' is none of: remote-init, " in answer.stderr


def test_files_travel_in_both_directions_with_the_real_rsync(host: Host, tmp_path: Path) -> None:
    names = ("plain", "two words", "it's;$(id)", "-dash", "ü")
    for name in names:
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "file").write_text(name)
    sent = host.rsync("-a", "--relative", "--timeout=600", f"{tmp_path}/./data", "host:qcg-run/r1/")
    assert sent.returncode == 0, sent.stderr
    single = host.rsync("-acz", "--delete", "--partial", "-i", f"{tmp_path}/data/", "host:qcg-run/r1/work/1/two words/")
    assert single.returncode == 11, "the directory above is made by the far side, not by rsync"
    (host.run / "work/1/two words").mkdir(parents=True)
    single = host.rsync("-acz", "--delete", "--partial", "-i", f"{tmp_path}/data/", "host:qcg-run/r1/work/1/two words/")
    assert single.returncode == 0, single.stderr
    assert sorted(os.listdir(host.run / "work/1/two words")) == sorted(names)
    got = host.rsync("-a", "host:qcg-run/r1/data", str(tmp_path / "back"))
    assert got.returncode == 0, got.stderr
    assert {name: (tmp_path / "back/data" / name / "file").read_text() for name in names} == {n: n for n in names}
    wanted = ["--include=*/", "--include=file", "--exclude=*", "--prune-empty-dirs", "--max-size=10M"]
    got = host.rsync("-rlt", *wanted, "host:qcg-run/r1/data/", str(tmp_path / "logs"))
    assert got.returncode == 0, got.stderr
    assert host.log == ""


def test_rsync_reaches_nothing_outside_of_the_run_directories(host: Host, tmp_path: Path) -> None:
    (host.home / ".ssh").mkdir()
    (host.home / ".ssh" / "id").write_text("secret")
    (tmp_path / "authorized_keys").write_text("ssh-ed25519 mine")
    (host.run / "away").symlink_to(host.home / ".ssh")
    (tmp_path / "listed").write_text("away/id\n")
    for command in (
        ["-a", str(tmp_path / "authorized_keys"), "host:.ssh/"],
        ["-a", str(tmp_path / "authorized_keys"), "host:qcg-run/r1/../../.ssh/"],
        ["-a", "host:.ssh/id", str(tmp_path)],
        ["-a", "-s", "host:.ssh/id", str(tmp_path)],
        ["-a", "host:qcg-run/r1/away/id", str(tmp_path)],
        ["-a", "--files-from", str(tmp_path / "listed"), "host:qcg-run/r1/", str(tmp_path / "got")],
        ["-aL", "host:qcg-run/r1/", str(tmp_path)],
        ["-a", "--remove-source-files", "host:qcg-run/r1/", str(tmp_path)],
        ["-a", "--temp-dir=/tmp", str(tmp_path / "authorized_keys"), "host:qcg-run/r1/"],
    ):
        answer = host.rsync(*command)
        assert answer.returncode != 0
        assert (
            f"{SENTENCE}this rsync is not admitted" in answer.stderr
            or "is not below" in answer.stderr
            or ("no path that is admitted" in answer.stderr)
        )
    assert os.listdir(host.home / ".ssh") == ["id"]
    assert list(tmp_path.rglob("got/*")) == []
    assert not (tmp_path / "id").exists()
    assert host.log.count("\n") == 9


def test_wildcards_do_not_lead_through_links(host: Host, tmp_path: Path) -> None:
    (host.home / ".ssh").mkdir()
    (host.home / ".ssh" / "id").write_text("secret")
    (host.run / "away").symlink_to(host.home / ".ssh")
    for source in ("host:qcg-run/r1/aw*/id", "host:qcg-run/r1/away*/", "host:qcg-run/r1/awa?/id"):
        assert host.rsync("-a", source, str(tmp_path / "got")).returncode != 0
        assert not list(tmp_path.rglob("got/**/id"))


def test_a_link_that_leads_out_is_not_made_by_rsync(host: Host, tmp_path: Path) -> None:
    """Otherwise the next rsync could write through it."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "latest").symlink_to("01")
    (data / "away").symlink_to("../../../.ssh")
    (data / "etc").symlink_to("/etc")
    assert host.rsync("-a", f"{data}/", "host:qcg-run/r1/").returncode == 0
    assert os.listdir(host.run) == ["latest"]


def test_transfers_in_one_direction_can_be_refused(host: Host, tmp_path: Path) -> None:
    (host.run / "file").write_text("x")
    host.options = f"--refuse {RSYNC_IN}"
    assert host.rsync("-a", "host:qcg-run/r1/file", f"{tmp_path}/").returncode == 0
    answer = host.rsync("-a", f"{tmp_path}/file", "host:qcg-run/r1/copy")
    assert f"{SENTENCE}rsync-in is not admitted on this host\n" in answer.stderr
    assert os.listdir(host.run) == ["file"]
