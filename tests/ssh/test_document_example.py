"""The example of document 002 in our request format: a delayer, then a master and two remote jobs as hobo@wizard.

The master views a log, polls, kills and removes the remote jobs from inside a local job.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.support.ssh_lab import Call, Lab
from tests.support.waiting import wait_for

HOSTS = """[wizard]
owner = "hobo"
cores = 2
retrieve = "always"
login_shell = false
install = ["bin/"]
channel = "{channel}"
poll_interval = 60
submit_poll_interval = 60
tracking = "{tracking}"
manager_address = "{manager}"
"""
MASTER = """set -ex
until qcg-pm cat-log -m c -f o remote-a | grep 'remote-a runs'; do sleep 0.1; done
until qcg-pm cat-log -m c -f o remote-b | grep 'remote-b runs'; do sleep 0.1; done
qcg-pm cat-log -m list remote-a
qcg-pm poll 'remote-*'
qcg-pm kill 'remote-*'
qcg-pm wait 'remote-*' || true
qcg-pm remove 'remote-*'
"""


def remote(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "execution": {"script": f"echo {name} runs in $PWD; helper; exec sleep 300"},
        "remote": {"host": "wizard", "owner": "hobo"},
        "dependencies": {"after": ["delayer"]},
    }


def requests() -> list[dict[str, Any]]:
    local = {"name": "delayer", "execution": {"script": "exit 0"}}
    master = {
        "name": "master",
        "execution": {"script": MASTER, "stdout": "master.out", "stderr": "master.err"},
        "dependencies": {"after": ["delayer"]},
    }
    return [{"request": "submit", "jobs": [local, master, remote("remote-a"), remote("remote-b")]}]


def run_example(lab: Lab, channel: str, tracking: str = "poll") -> None:
    manager = "citadel" if tracking == "messages" else "boss@citadel"
    lab.citadel.write("suitex/hosts.toml", HOSTS.format(channel=channel, tracking=tracking, manager=manager))
    lab.citadel.write("suitex/suitex.json", json.dumps(requests()))
    lab.citadel.write("suitex/bin/helper", "#!/bin/sh\necho helped\n", mode=0o755)
    done = lab.citadel.run(
        *("qcg-pm", "run", "suitex.json", "--cores", "2", "--id", "suitex", "--hosts", "hosts.toml"),
        cwd="suitex",
        check=False,
        timeout=90,
    )
    # The remote jobs were removed after their end, so that nothing is left but the two local ones.
    assert done.returncode == 0, done.stdout + done.stderr + lab.citadel.read("suitex/master.err")


def tree(top: Path) -> list[str]:
    """The paths below a directory; links with their targets."""
    found = []
    for place, directories, files in os.walk(top):
        for name in [*directories, *files]:
            path = Path(place) / name
            link = f" -> {os.readlink(path)}" if path.is_symlink() else ""
            found.append(f"{path.relative_to(top)}{link}")
    return sorted(found)


@pytest.mark.parametrize("channel", ["serve", "one-shot"])
def test_the_master_controls_remote_jobs_and_trees_and_commands_are_as_documented(lab: Lab, channel: str):
    lab.record_commands()
    run_example(lab, channel)
    check_output_of_master(lab)
    check_trees(lab)
    if channel == "one-shot":
        check_commands(lab)


def check_output_of_master(lab: Lab) -> None:
    """It has viewed a log, and has polled, killed and removed remote jobs."""
    out = lab.citadel.read("suitex/master.out")
    assert "remote-a runs in /home/hobo/qcg-run/suitex/work/1/remote-a" in out
    assert "job\njob.err\njob.out\njob.status\n" in out
    assert "remote-a EXECUTING" in out
    assert "remote-b EXECUTING" in out
    assert "2 canceled" in out
    assert "2 removed" in out


def check_trees(lab: Lab) -> None:
    """The directory trees are as documented on both sides."""
    far = tree(lab.wizard.home / "qcg-run/suitex")
    (log,) = [line.removeprefix("log -> ") for line in far if line.startswith("log -> ")]
    assert re.fullmatch(r"log\.[0-9]{8}T[0-9]{6}Z", log)
    for name in ("remote-a", "remote-b"):
        for file in ("", "/job", "/job.err", "/job.out", "/job.status"):
            assert f"{log}/job/1/{name}/01{file}" in far
        assert f"{log}/job/1/{name}/NN -> 01" in far
        assert f"work/1/{name}" in far
    assert {"share", "share/cycle", "bin/helper"} <= set(far)
    assert ".service/contact" not in far
    assert ".service/keys" not in far
    near = tree(lab.citadel.home / "qcg-run/suitex")
    for name in ("remote-a", "remote-b"):
        for file in ("job", "job.err", "job.out", "job.status"):
            assert f"{log}/job/1/{name}/01/{file}" in near
        assert f"{log}/job/1/{name}/NN -> 01" in near
    assert f"log -> {log}" in near


def sub_commands(calls: list[Call]) -> list[str]:
    """The recorded calls: the sub-command of each ssh call, and `rsync` with its direction. Other calls are whole."""
    known = ("remote-init", "jobs-submit", "jobs-poll", "jobs-kill", "cat-log", "remote-tidy", "remote-serve")
    found = []
    for call in calls:
        if call.argv[0] == "rsync":
            found.append("rsync-out" if "wizard:" in call.argv[-1] else "rsync-in")
        elif "-O" not in call.argv and not call.argv[-1].startswith("rsync --server") and "--server" not in call.argv:
            *_, name, run = shlex.split(call.argv[-1])
            is_ours = name in known and run == "qcg-run/suitex"
            found.append(name if is_ours else str(call))
    return found


def check_commands(lab: Lab) -> None:
    """In one-shot mode, only the documented commands cross."""
    crossed = sub_commands(lab.recorded())
    by_manager = [name for name in crossed if name != "cat-log"]
    assert by_manager[:2] == ["remote-init", "rsync-out"]
    assert by_manager[-1] == "remote-tidy"
    assert crossed.count("jobs-submit") == 1
    assert crossed.count("jobs-kill") == 1
    assert crossed.count("rsync-in") <= 2
    assert by_manager.index("jobs-submit") < by_manager.index("jobs-kill") < by_manager.index("rsync-in")
    assert set(crossed) == {
        *("remote-init", "rsync-out", "jobs-submit", "cat-log"),
        *("jobs-poll", "jobs-kill", "rsync-in", "remote-tidy"),
    }
    for call in lab.recorded("ssh"):
        if " -O " not in str(call):
            assert "-oBatchMode=yes" in str(call)
            assert "-oConnectTimeout=10" in str(call)


@pytest.mark.parametrize("tracking", ["messages", "ssh"])
def test_jobs_report_to_the_manager_between_two_polls(lab: Lab, tracking: str):
    """The intervals are a minute long, and the whole example takes much less."""
    run_example(lab, "one-shot", tracking)
    assert "2 removed" in lab.citadel.read("suitex/master.out")
    wait_for(lambda: not lab.wizard.processes(), 60, "the end of all processes on the host")
