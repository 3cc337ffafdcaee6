"""The gate behind a real SSH server: admitted and refused commands, and a whole run through the gate."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Sequence

import pytest

from tests.support.ssh_host import Host
from tests.support.ssh_lab import Lab
from tests.support.waiting import wait_for

JOBS = [
    {"name": "copy", "script": "cat ../../../data/in.txt", "host": "wizard"},
    {
        "name": "staged",
        "script": "mkdir results; cp in.txt results/out; cp data/in.txt results/two",
        "host": "wizard",
        "inputs": ["in.txt", "data/*.txt"],
        "outputs": ["results/"],
        "wd": "staged",
    },
    {"name": "many", "iteration": 20, "exec": "true", "host": "wizard"},
    {"name": "fails", "script": "echo because >&2; exit 3", "host": "wizard"},
    {"name": "late", "script": "sleep 1000", "wt": "2s", "host": "wizard"},
    {"name": "long", "script": "sleep 1000", "host": "wizard"},
    {"name": "here", "exec": "true", "after": "copy"},
]

FAR = "/home/hobo/far/qcg-pm-remote.pyz"


def configure(lab: Lab, *keys: str, host: str = "wizard") -> None:
    """Write hosts.toml of the user who runs managers."""
    lines = [f"[{host}]", 'owner = "hobo"', "cores = 2", *keys]
    lab.citadel.write(".config/qcg-pm/hosts.toml", "\n".join(lines) + "\n")


def install_gate(lab: Lab, *options: str, keys: Sequence[str] = ()) -> None:
    """Follow what `qcg-pm hosts gate` prints: install the program, bind the key to the gate, name the program."""
    configure(lab)
    lab.citadel.run("ssh", "wizard", "mkdir far")
    printed = lab.citadel.run("qcg-pm", "hosts", "gate", "wizard", "--to", FAR, *options).stdout
    lines = [line for line in printed.splitlines() if not line.startswith("#")]
    for line in lines[:2]:
        lab.citadel.run(*shlex.split(line))
    forced = re.fullmatch(r'command="(.*)",restrict .*', lines[2])
    assert forced is not None
    lab.wizard.force_command(forced[1])
    configure(lab, lines[3], *keys)


def pm(lab: Lab, *arguments: str) -> str:
    return lab.citadel.run("qcg-pm", *arguments, cwd="run").stdout


def states(lab: Lab) -> dict[str, str]:
    """The states of all jobs; none before there is a run."""
    done = lab.citadel.run("qcg-pm", "jobs", "--json", cwd="run", check=False)
    return {name: job["state"] for name, job in json.loads(done.stdout)["jobs"].items()} if done.stdout else {}


def recorded(lab: Lab, name: str, key: str) -> int:
    """The number of iterations of a job with this key in their status files on the host."""
    statuses = lab.wizard.home.glob(f"qcg-run/*/log/job/*/{name}/NN/job.status")
    return sum(f"{key}=" in path.read_text() for path in statuses)


def refused(host: Host) -> list[str]:
    """The lines of the log of the gate."""
    return host.read(".qcg-pm/gate.log").splitlines()


HOSTILE = [
    "id",
    "sh -c id",
    "cat .ssh/authorized_keys",
    "qcg-run/../far/qcg-pm-remote.pyz",
    f"python3 {FAR} jobs-poll qcg-run/r1; id",
    f"python3 {FAR} jobs-poll qcg-run/r1\nid",
    f"python3 {FAR} jobs-poll $(id)",
    f"python3 {FAR} jobs-poll .ssh",
    f"python3 {FAR} supervise qcg-run/r1",
    "python3 -c 'print(1)'",
    "rsync --server -logDtpre.iLsfxCIvu . .ssh/",
    "rsync --server --daemon .",
    "rsync --server --sender -e sh . qcg-run/r1",
]


def test_only_commands_of_a_run_pass_the_gate(lab: Lab):
    install_gate(lab)
    for command in HOSTILE:
        done = lab.citadel.run("ssh", "wizard", command, check=False)
        assert (done.returncode, done.stdout) == (126, ""), command
        assert done.stderr.startswith("qcg-pm gate: refused: ")
    lines = refused(lab.wizard)
    assert len(lines) == len(HOSTILE)
    assert all(" refused for 10." in line for line in lines)


def test_other_ways_into_the_host_are_closed(lab: Lab):
    lab.wizard.configure_sshd(Subsystem="sftp internal-sftp")
    install_gate(lab)
    for command in (
        ["ssh", "wizard"],
        ["ssh", "-tt", "wizard"],
        ["sftp", "-b", "/dev/null", "wizard"],
        ["scp", "wizard:.ssh/authorized_keys", "."],
        ["scp", "-O", "wizard:.ssh/authorized_keys", "."],
        ["rsync", "-a", "wizard:.ssh/", "got/"],
    ):
        assert lab.citadel.run(*command, check=False).returncode != 0, command
    assert len(refused(lab.wizard)) == 6
    assert not (lab.citadel.home / "authorized_keys").exists()
    assert lab.citadel.run("ssh", "-W", "localhost:22", "wizard", check=False).returncode != 0


def test_a_host_behind_the_gate_passes_every_check(lab: Lab):
    install_gate(lab)
    shown = lab.citadel.run("qcg-pm", "hosts", "check", "wizard").stdout
    assert shown.splitlines()[-1] == "wizard can be used."
    assert refused(lab.wizard) == []
    assert list((lab.wizard.home / "qcg-run").iterdir()) == []


def test_without_the_channel_a_check_says_that_commands_are_used(lab: Lab):
    install_gate(lab, "--refuse", "remote-serve")
    shown = lab.citadel.run("qcg-pm", "hosts", "check", "wizard").stdout
    assert re.search(r"^note +channel .*one-shot commands and polling are used", shown, re.MULTILINE)
    assert shown.splitlines()[-1] == "wizard can be used."
    (line,) = refused(lab.wizard)
    assert "remote-serve is not admitted on this host" in line


@pytest.mark.parametrize("options", [(), ("--refuse", "remote-serve")], ids=["channel", "commands"])
def test_a_whole_run_passes_the_gate(lab: Lab, options: tuple[str, ...]):
    install_gate(lab, *options, keys=['retrieve = "always"', 'install = ["data"]', "poll_interval = 1"])
    lab.citadel.write("run/data/in.txt", "content")
    lab.citadel.write("run/in.txt", "more")
    lab.citadel.write("run/jobs.json", json.dumps([{"request": "submit", "jobs": JOBS}]))
    running = lab.citadel.start("qcg-pm", "run", "jobs.json", cwd="run", stdout=subprocess.DEVNULL)
    wait_for(lambda: recorded(lab, "long", "STARTED") == 1 and recorded(lab, "many", "ENDED") == 20, 120, "the jobs")
    wait_for(lambda: (found := states(lab))["long"] == "EXECUTING" and found["many"] == "SUCCEED", 120, "the records")
    channel = "one-shot" if options else "serve"
    assert re.search(rf"^wizard +hobo@wizard .* {channel} +connected$", pm(lab, "hosts"), re.MULTILINE)
    pm(lab, "cancel", "long")
    assert running.wait(120) == 1
    assert states(lab) == {
        "copy": "SUCCEED",
        "staged": "SUCCEED",
        "many": "SUCCEED",
        "fails": "FAILED",
        "late": "FAILED",
        "long": "CANCELED",
        "here": "SUCCEED",
    }
    (run,) = (lab.wizard.home / "qcg-run").iterdir()
    assert (run / "log/job/1/copy/NN/job.out").read_text() == "content"
    assert [lab.citadel.read(f"run/staged/results/{name}") for name in ("out", "two")] == ["more", "content"]
    shown = pm(lab, "cat-log", "fails", "-f", "job.err")
    assert shown == "because\n"
    assert len(list((lab.citadel.home / "qcg-run").rglob("job.err"))) >= 4
    lines = refused(lab.wizard)
    assert len(lines) == len(options) // 2
    assert all("remote-serve is not admitted" in line for line in lines)
    assert re.search(r"^Removed /home/hobo/qcg-run/\S+ on wizard$", pm(lab, "clean", "--remote"), re.MULTILINE)
    assert list((lab.wizard.home / "qcg-run").iterdir()) == []


def test_a_gate_may_keep_run_directories(lab: Lab):
    install_gate(lab, "--refuse", "remote-tidy")
    lab.citadel.write("run/jobs.json", json.dumps([{"request": "submit", "jobs": [JOBS[2]]}]))
    lab.citadel.run("qcg-pm", "run", "jobs.json", cwd="run")
    done = lab.citadel.run("qcg-pm", "clean", "--remote", cwd="run", check=False)
    assert done.returncode == 1
    assert "its directory on wizard could not be removed: hobo@wizard does not admit this command" in done.stderr
    assert len(list((lab.wizard.home / "qcg-run").iterdir())) == 1
    assert list((lab.citadel.home / "run").glob(".qcgpjm-service-*"))
