"""Helpers for the commands that start agents."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob.cluster.agent_start import AgentCommand, env_words


def test_only_variables_that_are_set_are_carried_to_a_node():
    environ = {"PATH": "/bin", "LANG": "C", "TOKEN": "secret"}
    assert env_words(environ, ("LANG", "PYTHONPATH", "PATH")) == ["env", "LANG=C", "PATH=/bin"]


@pytest.mark.parametrize(
    ("until", "options"), [(None, ["--outside"]), (1800000000.4, ["--outside", "--until", "1800000000"])]
)
def test_an_agent_outside_the_batch_system_gets_the_end_of_the_allocation(until: float | None, options: list[str]):
    assert AgentCommand(Path("/runs"), 600.0, until).outside_options() == options
