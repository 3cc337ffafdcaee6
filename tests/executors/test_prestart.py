"""The agent that is started before its run is known."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from qcg.pilotjob.executors.prestart import PrestartedAgent, is_useful
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import AgentsContact, Contact
from qcg.pilotjob.wire.keys import make_keys


@pytest.mark.parametrize(
    ("linger", "is_over", "waits"), [("0", False, "0 s"), ("600", False, "5 s"), ("600", True, "0 s")]
)
def test_a_prestarted_agent_is_assigned_to_a_run_and_exits_if_its_manager_died(
    tmp_path: Path, linger: str, is_over: bool, waits: str
) -> None:
    if not is_over:
        keys = make_keys()
        unreachable = AgentsContact("tcp://127.0.0.1:1", keys.server_public, keys.client_public, keys.client_secret)
        contact.write(tmp_path, Contact(1, 0, "host", unreachable))
    dead = str(os.getpid() + 1)  # another process than the parent of the agent
    options = ["--run-dir", str(tmp_path), "--name", "n1", "--linger", linger, "--parent", dead, "--own-log"]
    with PrestartedAgent() as prestarted:
        process = prestarted.assign(tmp_path, options)
        assert process is not None
        assert prestarted.assign(tmp_path, options) is None, "there is one"
        assert process.wait(60) == 0
    assert f"no manager for {waits}" in (tmp_path / "agent-n1.log").read_text()


def test_an_unused_prestarted_agent_is_killed() -> None:
    with PrestartedAgent() as prestarted:
        process = prestarted._process
        assert process is not None
        assert process.poll() is None
    assert process.returncode is not None


def test_a_prestarted_agent_exits_when_its_manager_dies() -> None:
    with PrestartedAgent() as prestarted:
        process = prestarted._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


def test_a_dead_prestarted_agent_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with PrestartedAgent() as prestarted:
        assert prestarted._process is not None
        prestarted._process.wait(60)
        assert prestarted.assign(tmp_path, []) is None


def test_a_prestarted_agent_that_cannot_be_started_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with PrestartedAgent() as prestarted:
        assert prestarted.assign(tmp_path, []) is None


@pytest.mark.parametrize(
    ("resources", "nodes", "resume", "environ", "wanted"),
    [
        ("auto", None, None, {}, True),
        ("auto", None, None, {"SLURM_JOB_ID": "7"}, False),
        ("auto", "4", None, {"SLURM_JOB_ID": "7"}, True),
        ("local", None, None, {"SLURM_JOB_ID": "7"}, True),
        ("slurm", None, None, {}, False),
        ("auto", None, "run", {}, False),
    ],
)
def test_a_prestarted_agent_is_useful_for_a_new_run_on_this_machine(
    resources: str, nodes: str | None, resume: str | None, environ: dict[str, str], wanted: bool
) -> None:
    assert is_useful(resources, nodes, resume, environ) is wanted
