"""A program in place of `ssh` that runs the far command on this machine with another home directory.

It is fast, and needs no rights and no sshd. Files beside it make it fail as a real connection does.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.waiting import wait_for

_SCRIPT = r"""#!/bin/bash
root=$1; shift
operation=""
while [ $# -gt 0 ]; do
  case $1 in
    -O) operation=$2; shift 2 ;;
    -n) exec </dev/null; shift ;;
    -*) shift ;;
    *) break ;;
  esac
done
there=$1; shift
address=${there#*@}
printf '%s %s\n' "$address" "${operation:-$*}" >> "$root/log"
if [ -n "$operation" ]; then [ -e "$root/open" ]; exit; fi
if [ -e "$root/down" ] || [ -e "$root/down.$address" ]; then
  echo "ssh: connect to host $address port 22: Connection refused" >&2; exit 255
fi
for busy in "$root"/busy.*; do
  if [ -e "$busy" ]; then rm "$busy"; echo "mux_client_request_session: session request failed" >&2; exit 255; fi
done
if [ -e "$root/refuses" ] && [[ "$*" == *$(cat "$root/refuses")* ]]; then
  echo "qcg-pm gate: refused: this command is not admitted" >&2; exit 126
fi
[ -e "$root/banner" ] && cat "$root/banner"
home=$root/home; [ -d "$root/home.$address" ] && home=$root/home.$address
echo $$ >> "$root/pids"
cd "$home" || exit 255
exec env -i HOME="$home" USER=hobo LOGNAME=hobo PATH="$root/bin:/usr/local/bin:/usr/bin:/bin" LANG=C.UTF-8 \
  /bin/bash -c "$*"
"""


class FakeSsh:
    """One fake host, or several login hosts of one home directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.home.mkdir(parents=True)
        self._script = root / "ssh"
        self._script.write_text(_SCRIPT)

    @property
    def command(self) -> list[str]:
        """The value of the key `ssh` in hosts.toml."""
        return ["/bin/bash", str(self._script), str(self.root)]

    @property
    def toml(self) -> str:
        return "ssh = [" + ", ".join(f'"{word}"' for word in self.command) + "]"

    def commands(self) -> list[str]:
        """The calls so far: the address, and the remote command."""
        try:
            return (self.root / "log").read_text().splitlines()
        except FileNotFoundError:
            return []

    def called(self) -> list[str]:
        """The sub-commands of the calls so far."""
        known = ("remote-init", "remote-serve", "jobs-submit", "jobs-poll", "jobs-kill", "remote-tidy", "cat-log")
        return [word for line in self.commands() for word in line.split() if word in known]

    def own_home(self, address: str) -> Path:
        """Give this address a home directory of its own."""
        path = self.root / f"home.{address}"
        path.mkdir()
        return path

    def go_down(self, address: str = "") -> None:
        """Refuse connections."""
        (self.root / (f"down.{address}" if address else "down")).touch()

    def come_up(self, address: str = "") -> None:
        (self.root / (f"down.{address}" if address else "down")).unlink()

    def refuse(self, sub_command: str) -> None:
        """Refuse a sub-command, as a gate does."""
        (self.root / "refuses").write_text(sub_command)

    def refuse_sessions(self, number: int) -> None:
        """Refuse the next sessions, as a shared connection does that has as many as the host admits."""
        for one in range(number):
            (self.root / f"busy.{one}").touch()

    def open_connection(self) -> None:
        """Let `ssh -O check` find a shared connection."""
        (self.root / "open").touch()

    def set_banner(self, text: str) -> None:
        """Write this text before each reply."""
        (self.root / "banner").write_text(text)

    def cut(self) -> None:
        """Kill all connections."""
        for pid in (self.root / "pids").read_text().split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue
        (self.root / "pids").write_text("")

    def processes(self) -> list[int]:
        """The processes that have the home directory of this host."""
        mark = f"HOME={self.root}/home".encode()
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                environment = Path("/proc", pid, "environ").read_bytes()
            except OSError:  # it has ended
                continue
            if any(entry.startswith(mark) for entry in environment.split(b"\0")):
                found.append(int(pid))
        return found

    def wait_until_quiet(self) -> None:
        """Wait until no process runs there: supervisors stay for a moment after the last job."""
        wait_for(lambda: not self.processes(), 30, "the end of all processes on the fake host")
