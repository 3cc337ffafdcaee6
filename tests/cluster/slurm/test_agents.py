"""The commands that start agents on nodes of a Slurm allocation."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from qcg.pilotjob.cluster.agent_start import AgentCommand, AgentStart
from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.slurm.agents import SrunStart, ssh_start

AGENT = AgentCommand(Path("/runs/a b"), 600.0, allocation=AllocationRef("7", "big", "slurm"))


def test_one_srun_is_for_all_nodes_and_waits_for_no_other_step():
    [(nodes, command)] = SrunStart(AGENT, {}).commands(["n1", "n2", "n3"])
    assert nodes == ["n1", "n2", "n3"]
    assert command[:2] == ["srun", "--overlap"]
    assert "--mem=0" in command
    assert command[command.index("-w") + 1] == "n1,n2,n3"
    assert command[command.index("-N") + 1] == command[command.index("-n") + 1] == "3"
    assert command[command.index("--run-dir") + 1] == "/runs/a b"
    assert command[-2:] == ["--name-variable", "SLURMD_NODENAME"]


def test_agents_get_their_allocation_and_with_ssh_their_name():
    [(_, by_srun)] = SrunStart(AGENT, {}).commands(["n1"])
    [(_, by_ssh)] = ssh_start(AGENT, {}).commands(["n1"])
    options = "--allocation 7 --cluster big --batch-system slurm"
    assert options in " ".join(by_srun)
    assert options in by_ssh[-1]
    assert "--name n1 --outside" in by_ssh[-1]


@pytest.mark.parametrize("start", [SrunStart(AGENT, {}), ssh_start(AGENT, {})])
def test_an_agent_gets_the_delay_before_it_may_replace_another(start: AgentStart):
    [(_, alone)] = start.commands(["n1"])
    assert "--replace-after" not in " ".join(alone)
    [(_, later)] = start.commands(["n1"], 5.0)
    assert "--replace-after 5" in " ".join(later)
    [(_, at_once)] = start.commands(["n1"], 0.0)
    assert "--replace-after 0" in " ".join(at_once)


def test_options_of_the_job_do_not_become_options_of_the_step():
    environ = {"SLURM_MEM_PER_CPU": "100", "SLURM_NTASKS_PER_NODE": "4", "SLURM_CPUS_PER_TASK": "14"}
    kept = {"SLURM_JOB_ID": "7", "SLURM_CONF": "/etc/slurm.conf", "PATH": "/bin"}
    assert SrunStart(AGENT, {**environ, **kept}).environ == kept


def test_ssh_is_for_one_node_each_and_carries_what_an_agent_needs():
    environ = {"PATH": "/bin", "PYTHONPATH": "/a b", "SLURM_JOB_ID": "7", "HOME": "/home/me"}
    commands = ssh_start(AGENT, environ).commands(["n1", "n2"])
    assert [nodes for nodes, _ in commands] == [["n1"], ["n2"]]
    words = shlex.split(commands[1][1][-1])
    assert words[:2] == ["exec", "env"]
    assert {"PYTHONPATH=/a b", "SLURM_JOB_ID=7", "SLURMD_NODENAME=n2"} <= set(words)
    assert "HOME=/home/me" not in words
    assert words[words.index("--run-dir") + 1] == "/runs/a b"


def test_ssh_commands_have_no_secrets_and_give_the_end_time_of_the_agent():
    environ = {"SLURM_JOB_ID": "7", "SLURM_CLUSTER_NAME": "big", "SLURM_JWT": "secret", "SLURM_MY_TOKEN": "secret"}
    [(_, command)] = ssh_start(AgentCommand(Path("/runs"), 600.0, 1800000000.0), environ).commands(["n1"])
    assert "secret" not in " ".join(command)
    words = shlex.split(command[-1])
    assert "SLURM_CLUSTER_NAME=big" in words
    assert words[-3:] == ["--outside", "--until", "1800000000"]
    [(_, by_slurm)] = SrunStart(AGENT, environ).commands(["n1"])
    assert "--outside" not in by_slurm
