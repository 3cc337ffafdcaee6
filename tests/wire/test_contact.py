"""The contact file of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob.runs import guard
from qcg.pilotjob.runs.manager_process import is_alive
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import AgentsContact


@pytest.mark.parametrize("agents", [None, AgentsContact("tcp://127.0.0.1:1", "server", "public", "secret")])
def test_a_manager_is_announced_with_and_without_an_address_for_agents(tmp_path: Path, agents: AgentsContact | None):
    guard.announce(tmp_path, agents, None)
    found = contact.read(tmp_path)
    assert found is not None
    assert found.agents == agents
    assert is_alive(tmp_path, found)


def test_a_contact_file_may_leave_out_the_address_for_agents(tmp_path: Path):
    path = tmp_path / contact.FILE_NAME
    path.write_text('{"pid": 4711, "started": 123456, "host": "laptop"}')
    path.chmod(0o600)
    found = contact.read(tmp_path)
    assert found is not None
    assert (found.pid, found.agents, found.clients) == (4711, None, None)
