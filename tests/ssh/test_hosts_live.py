"""`qcg-pm hosts` in the directory of a live run."""

from __future__ import annotations

import json
import re
import signal
import subprocess

from tests.support.ssh_host import signal_command
from tests.support.ssh_lab import Lab
from tests.support.waiting import wait_for

JOBS = [{"name": "far", "exec": "true", "host": "wizard"}]


def hosts(lab: Lab) -> dict[str, dict[str, str]]:
    done = lab.citadel.run("qcg-pm", "hosts", "--json", cwd="run", check=False)
    assert done.returncode == 0, done.stderr
    return {host["name"]: host for host in json.loads(done.stdout)["hosts"]}


def test_states_follow_a_host_that_goes_away_and_is_connected_again(lab: Lab):
    lab.citadel.write(".config/qcg-pm/hosts.toml", '[wizard]\nowner = "hobo"\n[tower]\nowner = "hobo"\n')
    lab.citadel.write("run/job.json", json.dumps(JOBS))
    manager = lab.citadel.start("qcg-pm-service", "--net", cwd="run", stderr=subprocess.DEVNULL)
    try:
        (run_dir,) = wait_for(lambda: list((lab.citadel.home / "run").glob(".qcgpjm-service-*")), what="the manager")
        wait_for((run_dir / "contact.json").exists, what="the address of the manager")
        wait_for(lambda: hosts(lab)["tower"]["state"] is not None, 60, "the manager")
        assert {name: host["state"] for name, host in hosts(lab).items()} == {"tower": "unused", "wizard": "unused"}
        lab.wizard.refuse()
        lab.citadel.run("qcg-pm", "submit", "job.json", cwd="run")
        wait_for(lambda: "wizard is unreachable" in (run_dir / "service.log").read_text(), what="the failed connection")
        wait_for(lambda: hosts(lab)["wizard"]["state"] == "unreachable", 60, "the failed connection")
        shown = lab.citadel.run("qcg-pm", "hosts", cwd="run").stdout
        assert re.search(r"^wizard +hobo@wizard .* unreachable since 20\d\d-", shown, re.MULTILINE)
        assert re.search(r"^tower +hobo@tower .* not used yet$", shown, re.MULTILINE)
        assert re.search(r"^wizard: .*refuses connections", shown, re.MULTILINE)
        lab.wizard.heal()
        tried = lab.citadel.run("qcg-pm", "hosts", "connect", "wizard", cwd="run").stdout
        assert tried.endswith("The manager of this directory tries wizard again now.\n")
        lab.citadel.run("qcg-pm", "wait", "far", cwd="run")
        assert hosts(lab)["wizard"]["state"] == "connected"
    finally:
        signal_command(manager, signal.SIGTERM)
        manager.wait(60)
