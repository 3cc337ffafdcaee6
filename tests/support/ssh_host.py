"""One host of the laboratory of SSH hosts: commands, processes, trouble, its SSH server and the home of its user."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support import processes
from tests.support.processes import Process

if TYPE_CHECKING:
    from tests.support.ssh_lab import Lab

Done = subprocess.CompletedProcess[str]

POLLS = 200
PAUSE = 0.05
"""Number of polls after which a process counts as left behind. The limit counts polls, not seconds: a busy machine
delays both."""


class Host:
    """One host of the laboratory. Commands run there as its user, in the home directory."""

    def __init__(self, lab: Lab, name: str, user: str, uid: int, home: Path) -> None:
        self.lab = lab
        self.name = name
        self.user = user
        self.uid = uid
        self.home = home
        """Its home directory as this machine sees it. Hosts of one file system have the same."""
        self._commands: list[subprocess.Popen[str]] = []
        self._is_cut = self._was_cut = self._is_crashed = self._is_slow = False

    def __repr__(self) -> str:
        return f"<{self.user}@{self.name}>"

    # -- commands ---------------------------------------------------------------------------------------------------

    @property
    def home_there(self) -> str:
        """The home directory as the host sees it."""
        return f"/home/{self.user}"

    @property
    def environ(self) -> dict[str, str]:
        """The environment of the user of the host. On citadel, this project is installed for the user."""
        bins = [f"{self.home_there}/bin", "/usr/local/bin", "/usr/bin", "/bin"]
        if self.name == "citadel":
            bins.insert(1, str(Path(sys.executable).parent))
        return {
            "HOME": self.home_there,
            "USER": self.user,
            "LOGNAME": self.user,
            "SHELL": "/bin/bash",
            "PATH": ":".join(bins),
            "LANG": "C.UTF-8",
        }

    def start(self, *argv: str | Path, as_root: bool = False, **options: Any) -> subprocess.Popen[str]:
        """Start a command on the host. `env` is added to the environment; `cwd` is relative to the home directory.

        The process is `nsenter`, whose child is the command: send signals with `signal_command`.
        """
        env = {**self.environ, **(options.pop("env", None) or {})}
        cwd = f"{self.home_there}/{options.pop('cwd', '')}"
        who = [] if as_root else ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups"]
        process = subprocess.Popen(
            ["nsenter", f"--target={self.init_pid}", "--all", f"--wdns={cwd}", *who, *map(str, argv)],
            env=env,
            **{"stdin": subprocess.DEVNULL, "text": True, "start_new_session": True, **options},
        )
        self._commands = [*(one for one in self._commands if one.poll() is None), process]
        return process

    def run(self, *argv: str | Path, timeout: float = 60, check: bool = True, **options: Any) -> Done:
        """Run a command on the host to its end. One that fails fails the test, unless `check` is false."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = self.start(*argv, stdout=out, stderr=err, **options)
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                kill_command(process)
            out.seek(0)
            err.seek(0)
            done = subprocess.CompletedProcess(process.args, process.returncode, out.read(), err.read())
        if done.returncode == -signal.SIGKILL or (check and done.returncode):
            streams = f"--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"
            raise AssertionError(f"{self}: {argv}: exit code {done.returncode} (timeout {timeout:g} s)\n{streams}")
        return done

    # -- processes --------------------------------------------------------------------------------------------------

    @property
    def init_pid(self) -> int:
        """The pid of the first process of the host on this machine."""
        return int((self.directory / "pid").read_text())

    @property
    def directory(self) -> Path:
        """The files of the host itself: options and log of its SSH server."""
        return self.lab.directory / "hosts" / self.name

    def processes(self) -> list[Process]:
        """The processes of the user of the host, connections of SSH included. Pids are those of this machine."""
        return [one for one in self._all_processes() if _owner(one) == self.uid]

    def _all_processes(self) -> list[Process]:
        """By their namespace: a command of a test is no descendant of the first process there."""
        here = _namespace(self.init_pid)
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()] if here else []
        return [one for pid in pids if _namespace(pid) == here and (one := processes.identify(pid))]

    def inner_pid(self, process: Process) -> int | None:
        """The pid that a process of this machine has on the host; None when it has ended."""
        return next(reversed(processes.inner_pids(process.pid)), None)

    def set_next_pid(self, pid: int) -> None:
        """The next process on the host gets this pid. On a quiet host, that is the next command of a test."""
        # The shell that writes the pid was forked before; the next process is the command.
        self.run("bash", "-c", f"echo {pid - 1} >/proc/sys/kernel/ns_last_pid", as_root=True)

    # -- trouble ----------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Cut the power of the host: all processes die at once, and the network reports nothing. The home directory
        stays."""
        self._is_crashed = True
        self._do("crash")

    def boot(self) -> None:
        """Start the host after a crash, with a new boot id."""
        self._do("boot")
        self._is_crashed = self._is_cut = False

    def cut(self) -> None:
        """Unplug the network of the host. Its processes continue."""
        self._is_cut = self._was_cut = True
        self._do("cut")

    def drop(self) -> None:
        """Drop all packets of SSH, also of open connections."""
        self._is_cut = self._was_cut = True
        self._do("drop")

    def refuse(self) -> None:
        """Refuse connections to the SSH server, and reset open ones."""
        self._is_cut = self._was_cut = True
        self._do("refuse")

    def heal(self) -> None:
        """Undo `cut`, `drop` and `refuse`."""
        self._do("heal")
        self._is_cut = False

    def slow_down(self, round_trip: float) -> None:
        """Add this number of seconds to each round trip between this host and the others; 0 for none."""
        self._do("slow", f"{round_trip / 2:g}")
        self._is_slow = round_trip > 0

    # -- the SSH server ---------------------------------------------------------------------------------------------

    def configure_sshd(self, **options: object) -> None:
        """Restart the SSH server with options such as `MaxSessions=1`. Open connections stay."""
        lines = [f"{name} {value}\n" for name, value in options.items()]
        (self.directory / "options").write_text("".join(lines))
        self._do("restart-sshd")

    def kill_sshd(self) -> int:
        """Kill the connections of the SSH server with SIGKILL; the number of their processes. The server itself stays.

        Until none is left: right after a login, the process of a connection starts the one that outlives it."""
        listener = (self.directory / "sshd.pid").read_text().split()
        number = 0
        while True:
            servers = [one for one in self._all_processes() if _name(one) == "sshd"]
            connections = {one for one in servers if str(self.inner_pid(one)) not in listener}
            if not connections:
                return number
            processes.end(connections)
            number += len(connections)

    def logins(self) -> int:
        """The number of connections that its SSH server has admitted since the start of the test."""
        return self.sshd_log().count("Accepted publickey for ")

    def sshd_log(self) -> str:
        return (self.directory / "sshd.log").read_text()

    # -- the home of its user ---------------------------------------------------------------------------------------

    def write(self, path: str, text: str, mode: int = 0o600) -> Path:
        """Write a file below the home directory, which belongs to the user as its directories do."""
        target = self.home / path
        missing = [one for one in (target, *target.parents) if not one.exists()]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        for one in missing:
            os.chown(one, self.uid, self.uid)
        target.chmod(mode)
        return target

    def read(self, path: str) -> str:
        """The text of a file below the home directory; empty when there is none."""
        target = self.home / path
        return target.read_text() if target.exists() else ""

    def make_profile_loud(self) -> None:
        """Let every login shell, and every shell of SSH, write noise to both streams."""
        noise = "echo 'Welcome to the machine!'; printf 'no newline at the end'; echo oops >&2\n"
        for name in (".bashrc", ".bash_profile"):
            self.write(name, noise)

    def force_command(self, command: str, options: str = "restrict") -> None:
        """Let the keys of boss run this one command only (`command=` in authorized_keys)."""
        key = (self.lab.directory / "key-boss.pub").read_text()
        self.write(".ssh/authorized_keys", f'command="{command}",{options} {key}')

    # -- between tests ----------------------------------------------------------------------------------------------

    def end_commands(self) -> list[str]:
        """End the commands that a test has started and not waited for."""
        left = [one for one in self._commands if one.poll() is None]
        for process in left:
            kill_command(process)
        self._commands = []
        return [f"{self}: {process.args!r}" for process in left]

    def left_behind(self) -> list[str]:
        """End the processes that stay, and name them."""
        for _ in range(POLLS):
            if not (left := self.processes()):
                return []
            # The shared connections of a killed manager end by themselves, half a minute later.
            processes.end({one for one in left if str(one).endswith(" [mux]")})
            time.sleep(PAUSE)
        names = [f"{self}: {one}" for one in left]
        processes.end(set(left))
        return names

    def recover(self) -> None:
        """Undo all trouble. Connections that a cut has left half open are closed."""
        if self._is_crashed:
            self.boot()
        if self._is_slow:
            self.slow_down(0)
        if self._is_cut:
            self.heal()
        if self._was_cut:
            self.kill_sshd()
            self._was_cut = False

    def reset(self) -> None:
        """Restore the initial configuration of the SSH server."""
        if (self.directory / "options").read_text():
            self.configure_sshd()
        os.truncate(self.directory / "sshd.log", 0)

    def make_home(self) -> None:
        """Empty the home directory, and write the keys of its user."""
        if self.home.exists():
            shutil.rmtree(self.home)
        files = self.lab.directory
        users = "".join(f"Host {host.name}\n  User {host.user}\n" for host in self.lab.hosts)
        self.write(".ssh/config", users)
        self.write(".ssh/known_hosts", (files / "known_hosts").read_text())
        self.write(".ssh/id_ed25519", (files / f"key-{self.user}").read_text())
        keys = [(files / f"key-{user}.pub").read_text() for user in ("boss", "hobo")]
        self.write(".ssh/authorized_keys", "".join(keys))
        for directory in (self.home, self.home / ".ssh"):
            directory.chmod(0o700)

    def _do(self, action: str, *arguments: str) -> None:
        done = self.lab.run("host", action, self.name, *arguments)
        assert done.returncode == 0, f"{self}: {action}: {done.stdout}{done.stderr}"


def kill_command(process: subprocess.Popen[str]) -> None:
    """Kill a command of `Host.start` and its process group with SIGKILL."""
    signal_command(process, signal.SIGKILL)
    process.wait()


def signal_command(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal to a command of `Host.start`. SIGKILL goes to its whole process group."""
    if number == signal.SIGKILL:
        # The command first: `nsenter`, which waits for it, must not keep it from being reaped.
        while process.poll() is None:
            processes.end(processes.children(process.pid))
            time.sleep(PAUSE / 10)
        return
    for child in processes.children(process.pid):
        with suppress(ProcessLookupError):  # the process has just ended by itself
            os.kill(child.pid, number)


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:  # the process has ended, or belongs to the machine itself
        return None


def _owner(process: Process) -> int | None:
    try:
        return os.stat(f"/proc/{process.pid}").st_uid
    except FileNotFoundError:
        return None


def _name(process: Process) -> str:
    try:
        return Path(f"/proc/{process.pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""
