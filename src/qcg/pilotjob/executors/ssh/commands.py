"""Command lines of ssh and rsync. Pure: nothing is started here.

ssh joins the words of a far command with blanks, and the login shell there splits them again, so each word is quoted.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from qcg.pilotjob.executors.ssh.config import HostConfig

CONNECT_TIMEOUT = 10
"""Seconds for a connection to be made."""
ALIVE_INTERVAL, ALIVE_COUNT = 5, 2
"""Seconds between two questions of ssh whether the host is there, and the number that may stay unanswered."""
PERSIST = 30
"""Seconds that a shared connection stays open after its last command in one-shot mode."""

BOOTSTRAP = "import sys;exec(sys.stdin.buffer.readline())"
"""The program that a bootstrapped command begins with: its first input line is the rest of it."""

_NON_INTERACTIVE = (
    "-oBatchMode=yes",
    f"-oConnectTimeout={CONNECT_TIMEOUT}",
    f"-oServerAliveInterval={ALIVE_INTERVAL}",
    f"-oServerAliveCountMax={ALIVE_COUNT}",
)
_NO_LOGIN = "-oProxyCommand=false"
"""Without a shared connection, ssh would log in: now it gets a connection that ends before the login."""
_LOGIN_SHELL = ("bash", "-l", "-c", 'exec "$0" "$@"')


class Control(NamedTuple):
    """How an ssh command shares a connection with others."""

    master: str
    """`auto`: it uses a shared connection, or opens one that others can use. `no`: it uses one where there is one."""
    path: str = ""
    """The ControlPath; empty: that of the user's ssh configuration."""
    persist: int = 0
    """Seconds that a shared connection stays open after its last command."""
    may_log_in: bool = True
    """False: without a shared connection, the command fails."""

    def options(self) -> list[str]:
        options = [f"-oControlMaster={self.master}"]
        if self.path:
            options.append(f"-oControlPath={self.path}")
        if self.master == "auto":
            options.append(f"-oControlPersist={self.persist or 'no'}")
        if not self.may_log_in:
            options.append(_NO_LOGIN)
        return options


UNSHARED = Control("no", "none")
"""For a command with a connection of its own."""


def control_directory(user: int) -> str:
    """The directory of ssh's control sockets: short, because the path of a socket has at most about 100 characters."""
    return f"/tmp/qcg-pm-ssh-{user}"


def control_path(config: HostConfig, user: int, label: str) -> str:
    """The ControlPath for a host. `label`: a few characters that tell runs apart; connections that a person has opened
    serve all runs."""
    if config.second_factor == "reuse":
        return ""
    return os.path.join(control_directory(user), f"{label if config.second_factor == 'none' else 'own'}-%C")


def serve_control(config: HostConfig, path: str) -> Control:
    """For the channel of remote-serve, whose connection rsync and other commands share."""
    return _user_control(config, path) or Control("auto", path)


def one_shot_control(config: HostConfig, path: str) -> Control:
    """For commands in one-shot mode: the first one opens a connection for the next ones."""
    return _user_control(config, path) or Control("auto", path, PERSIST)


def side_control(config: HostConfig, path: str) -> Control:
    """For commands beside the channel: they use its connection, or one of their own where the host refuses that."""
    return _user_control(config, path) or Control("no", path)


def _user_control(config: HostConfig, path: str) -> Control | None:
    """The control options for a connection that a person has opened, so that no login happens by accident. `path`: as
    from `socket_path`."""
    if config.second_factor == "none":
        return None
    return Control("no", path, may_log_in=False)


def destination(config: HostConfig, address: str) -> str:
    return f"{config.owner}@{address}" if config.owner else address


def ssh_command(config: HostConfig, address: str, control: Control, far: Sequence[str], *, stdin: bool) -> list[str]:
    """The ssh command line for a far command. `stdin`: the command gets input."""
    options = [*_NON_INTERACTIVE, *control.options(), "-T", *(() if stdin else ("-n",))]
    return [*config.ssh, *options, destination(config, address), shlex.join(far)]


def check_command(config: HostConfig, address: str, control: Control) -> list[str]:
    """Asks whether a shared connection is open: exit code 0."""
    return [*config.ssh, *control.options(), "-O", "check", destination(config, address)]


def settings_command(config: HostConfig, address: str, control: Control) -> list[str]:
    """Prints the settings of ssh for an address, with the user's configuration. It connects to nothing."""
    return [*config.ssh, *control.options(), "-G", destination(config, address)]


def exit_command(config: HostConfig, address: str, control: Control) -> list[str]:
    """Closes a shared connection."""
    return [*config.ssh, *control.options(), "-O", "exit", destination(config, address)]


def connect_command(config: HostConfig, address: str, control: Control) -> list[str]:
    """Opens a shared connection in the background, for a person at a terminal who is asked for a second factor."""
    path = [f"-oControlPath={control.path}"] if control.path else []
    alive = [option for option in _NON_INTERACTIVE if "Alive" in option]
    return [*config.ssh, *alive, "-M", *path, "-oControlPersist=yes", "-f", "-N", destination(config, address)]


def far_command(config: HostConfig, sub_command: str, run: str) -> list[str]:
    """The words of a far command. `run`: the run directory, relative to the home directory there, or absolute."""
    # Isolated: modules in the home directory, or of an environment that a login script sets, are not for us.
    far = [*config.command] if config.command else [config.python, "-IS", "-c", BOOTSTRAP]
    words = [*far, sub_command, run]
    return [*_LOGIN_SHELL, *words] if config.login_shell else words


def rsync_shell(config: HostConfig, control: Control) -> str:
    """The value of rsync's `--rsh`, which rsync splits into words like a shell."""
    return shlex.join([*config.ssh, *_NON_INTERACTIVE, *control.options()])


def rsync_command(
    config: HostConfig, control: Control, options: Sequence[str], sources: Sequence[str], target: str
) -> list[str]:
    """An rsync over ssh. Far paths are made with `far_path`."""
    return [*config.rsync, f"--rsh={rsync_shell(config, control)}", *options, "--", *sources, target]


def far_path(config: HostConfig, address: str, path: str) -> str:
    """A path on the host, as an argument of rsync."""
    host = f"[{address}]" if ":" in address else address
    return f"{destination(config, host)}:{path}"


def install_command(config: HostConfig, address: str, control: Control, run: str) -> list[str]:
    """Copies the files of `install` from the working directory to the run directory, with their relative paths."""
    sources = [f"./{path}" for path in config.install]
    # Without --protect-args, which would hide the paths from a gate.
    options = ["-a", "--relative", "--timeout=600"]
    return rsync_command(config, control, options, sources, far_path(config, address, f"{run}/"))
