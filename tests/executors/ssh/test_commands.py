"""Command lines of ssh and rsync."""

from __future__ import annotations

import shlex
from typing import Any

from qcg.pilotjob.executors.ssh.commands import (
    Control,
    check_command,
    connect_command,
    control_path,
    far_command,
    far_path,
    install_command,
    one_shot_control,
    serve_control,
    side_control,
    ssh_command,
)
from qcg.pilotjob.executors.ssh.config import HostConfig


def host(**values: Any) -> HostConfig:
    return HostConfig("wizard", ("wizard.example.org",), **values)


def test_ssh_is_never_interactive_and_notices_a_dead_connection():
    command = ssh_command(host(owner="hobo"), "wizard.example.org", Control("no"), ["x"], stdin=False)
    assert command[0] == "ssh"
    assert {"-oBatchMode=yes", "-oConnectTimeout=10", "-oServerAliveInterval=5", "-oServerAliveCountMax=2", "-n"} <= {
        *command
    }
    assert command[-2:] == ["hobo@wizard.example.org", "x"]


def test_the_far_shell_gets_each_word_as_it_is():
    far = far_command(host(), "jobs-poll", "qcg-run/a b'c")
    command = ssh_command(host(), "wizard", Control("no"), far, stdin=True)
    assert shlex.split(command[-1]) == far
    assert "-n" not in command


def test_the_far_command_is_bootstrapped_unless_one_is_installed():
    assert far_command(host(), "remote-init", "qcg-run/r")[:3] == ["python3", "-IS", "-c"]
    installed = host(command=("/opt/bin/qcg-pm-remote",))
    assert far_command(installed, "remote-init", "qcg-run/r") == ["/opt/bin/qcg-pm-remote", "remote-init", "qcg-run/r"]


def test_a_login_shell_runs_the_same_words():
    words = far_command(host(login_shell=True, command=("far",)), "jobs-poll", "r")
    assert words == ["bash", "-l", "-c", 'exec "$0" "$@"', "far", "jobs-poll", "r"]


def test_the_channel_is_the_connection_that_other_commands_share():
    path = control_path(host(), 1000, "abcd")
    assert serve_control(host(), path) == Control("auto", path)
    assert side_control(host(), path).options() == ["-oControlMaster=no", f"-oControlPath={path}"]
    assert "-oControlPersist=30" in one_shot_control(host(), path).options()


def test_the_path_of_a_control_socket_is_short_enough():
    path = control_path(host(), 4_294_967_294, "0123abcd")
    assert len(path.replace("%C", "c" * 40) + ".0123456789abcdef") < 104


def test_a_connection_with_a_second_factor_is_used_and_never_opened():
    for factor in ("reuse", "own", "ask"):
        config = host(second_factor=factor)
        path = control_path(config, 1000, "abcd")
        for control in (serve_control(config, path), one_shot_control(config, path), side_control(config, path)):
            assert control == Control("no", path, may_log_in=False)
            assert "-oProxyCommand=false" in control.options()
            assert "-oProxyCommand=false" not in connect_command(config, "wizard", Control("no", path))
    assert control_path(host(second_factor="reuse"), 1000, "abcd") == ""
    assert "abcd" not in control_path(host(second_factor="own"), 1000, "abcd")
    assert check_command(host(), "wizard", Control("no"))[-3:] == ["-O", "check", "wizard"]


def test_a_person_opens_a_connection_without_batch_mode():
    command = connect_command(host(second_factor="own"), "wizard", Control("no", "/tmp/x-%C"))
    assert "-oBatchMode=yes" not in command
    assert {"-M", "-N", "-f", "-oControlPath=/tmp/x-%C"} <= {*command}


def test_files_are_installed_by_one_rsync_with_their_relative_paths():
    config = host(install=("bin/", "data/model.nc"), ssh=("ssh", "-F", "my config"))
    command = install_command(config, "wizard", Control("no"), "qcg-run/r")
    assert command[-3:] == ["./bin/", "./data/model.nc", "wizard:qcg-run/r/"]
    assert "--relative" in command
    (shell,) = [word.removeprefix("--rsh=") for word in command if word.startswith("--rsh=")]
    assert shlex.split(shell)[:3] == ["ssh", "-F", "my config"]


def test_an_ipv6_address_is_bracketed_for_rsync():
    assert far_path(host(owner="hobo"), "fe80::1", "x") == "hobo@[fe80::1]:x"
