"""The keys are only in the contact file, and the ports are bound to loopback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.errors import ConnectionError
from qcg.pilotjob.wire import contact
from tests.support.pilot import job
from tests.support.processes import descendants
from tests.support.serving import Served, served
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cold_start  # /proc shows the command line and the environment of the manager


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("run"), "--nodes", "1", "--log", "debug") as service:
        yield service


def test_only_the_owner_can_read_the_contact_file(service: Served):
    assert (service.run_dir / "contact.json").stat().st_mode & 0o777 == 0o600
    assert service.run_dir.stat().st_mode & 0o777 == 0o700


def test_the_keys_are_in_no_other_file_and_in_no_process(service: Served):
    found = contact.read(service.run_dir)
    assert found is not None
    assert found.clients is not None
    assert found.agents is not None
    secrets = [found.clients.client_secret, found.agents.client_secret, found.clients.server_key]
    assert all(len(secret) == 40 for secret in secrets)
    service.submit(job("a", "sh", "-c", "env > env; : > written; exec sleep 60", stdout="out"))
    wait_for((service.wd / "written").exists)
    service.wait("a", "EXECUTING")
    texts = {
        path: path.read_bytes() for path in service.wd.rglob("*") if path.is_file() and path.name != "contact.json"
    }
    for process in descendants():
        for name in ("cmdline", "environ"):
            path = Path(f"/proc/{process.pid}/{name}")
            texts[path] = path.read_bytes()
    service.data("cancelJob", jobNames=["a"])
    service.wait("a", "CANCELED")
    assert service.wd / "env" in texts
    assert service.run_dir / "agent-local.log" in texts
    holders = [path for path, text in texts.items() for secret in secrets if secret.encode() in text]
    assert holders == []


def test_the_environment_of_jobs_has_the_path_of_the_contact_file(service: Served):
    service.submit(job("b", "sh", "-c", "echo $QCG_PM_ZMQ_ADDRESS $QCG_PM_CONTACT", stdout="told"))
    service.wait("b", "SUCCEED")
    told = (service.wd / "told").read_text().split()
    assert told == [service.contact.address, str(service.run_dir / "contact.json")]


def test_the_ports_are_bound_to_loopback(service: Served):
    listening = set()
    inodes = set()
    for entry in Path(f"/proc/{service.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # the connection of a client that has just disconnected
            inodes.add(os.readlink(entry))
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{service.process.pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                listening.add(fields[1].partition(":")[0])
    assert listening == {"0100007F"}


def test_a_contact_file_that_others_can_read_is_not_used(service: Served):
    file = service.run_dir / "contact.json"
    file.chmod(0o644)
    try:
        with pytest.raises(ConnectionError, match="can be read by others"):
            Manager.of_run(service.run_dir, {"log_file": ""})
    finally:
        file.chmod(0o600)
    Manager.of_run(service.run_dir, {"log_file": ""}).cleanup()


def test_the_contact_file_is_removed_at_the_end_of_the_manager(tmp_path: Path):
    with served(tmp_path, "--nodes", "1") as service:
        service.data("finish")
        service.process.wait(60)
        assert not (service.run_dir / "contact.json").exists()


def test_a_resumed_manager_has_new_keys(tmp_path: Path):
    with served(tmp_path, "--nodes", "1") as service:
        before = service.contact
        service.kill()
        service.resume()
        assert service.contact.server_key != before.server_key
        assert service.contact.client_secret != before.client_secret
        assert service.ask("resourcesInfo")["code"] == 0
