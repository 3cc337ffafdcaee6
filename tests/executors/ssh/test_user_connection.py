"""Shared connections that a person has opened, with a program in place of ssh."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.executors.ssh.errors import ConnectionProblem
from qcg.pilotjob.executors.ssh.user_connection import is_open, socket_path

SETTINGS = "user me\ncontrolmaster false\ncontrolpath /run/own-0123\nproxyjump gateway\n"


def host(directory: Path, script: str) -> HostConfig:
    ssh = directory / "ssh"
    ssh.write_text(f'echo "$*" >> {directory}/called\n{script}\n')
    return HostConfig("wizard", ("login1",), second_factor="own", ssh=("/bin/sh", str(ssh)))


def test_the_tokens_of_a_path_are_replaced_with_the_configuration_of_the_user(tmp_path: Path):
    config = host(tmp_path, f"cat <<END\n{SETTINGS}END")
    assert asyncio.run(socket_path(config, "login1", "/run/own-%C")) == "/run/own-0123"
    called = (tmp_path / "called").read_text()
    assert called == "-oControlMaster=no -oControlPath=/run/own-%C -G login1\n", "ProxyJump is that of the user"


@pytest.mark.parametrize("script", ["echo controlpath none", "echo user me", "echo no option G >&2; exit 1"])
def test_the_path_stays_as_it_is_where_ssh_shows_none(tmp_path: Path, script: str):
    assert asyncio.run(socket_path(host(tmp_path, script), "login1", "/run/own-%C")) == "/run/own-%C"


@pytest.mark.parametrize("exit_code", [0, 255])
def test_ssh_knows_whether_a_connection_is_open(tmp_path: Path, exit_code: int):
    assert asyncio.run(is_open(host(tmp_path, f"exit {exit_code}"), "login1", "")) == (exit_code == 0)
    assert "-O check login1" in (tmp_path / "called").read_text()


def test_a_missing_ssh_is_a_sentence():
    config = HostConfig("wizard", ("login1",), second_factor="own", ssh=("/no/such/ssh",))
    with pytest.raises(ConnectionProblem, match="'/no/such/ssh' cannot be started"):
        asyncio.run(is_open(config, "login1", ""))
