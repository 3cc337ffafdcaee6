"""Failures of connections as sentences: what ssh wrote, what it means, and what to do."""

from __future__ import annotations

import re

from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.executors.ssh.commands import destination
from qcg.pilotjob.executors.ssh.config import HostConfig

SSH_FAILED = 255
"""The exit code of ssh when its connection, and not the far command, has failed."""
GATE_REFUSED = 126
"""The exit code of the gate for a sub-command that it does not admit. Shells use it for files without permission."""
_NOT_FOUND = 127


class ConnectionProblem(Exception):
    """A host cannot be used at the moment. The message is a sentence without a full stop."""

    def __init__(self, sentence: str, *, by_network: bool = False) -> None:
        """`by_network`: the host was not reached, or the connection was lost: the next attempt costs no login."""
        super().__init__(sentence)
        self.by_network = by_network


class SubCommandRefused(ConnectionProblem):
    """The host admits some sub-commands, and not this one."""


class SessionRefused(ConnectionProblem):
    """The shared connection has as many sessions as the host admits."""


class NotShared(ConnectionProblem):
    """A login host does not have the run directory that another address of the same host has."""


_SESSION_REFUSED = re.compile(r"Session open refused|administratively prohibited|session request failed")
_NO_CONNECTION = re.compile(r"(kex|ssh)_exchange_identification|Connection (closed by|reset by|to) UNKNOWN")
"""Messages of an ssh without a shared connection that must not log in. ssh calls the end of its proxy command UNKNOWN;
its message depends on whether that command ends before or after ssh has sent its own version."""
_NETWORK = (
    (r"No route to host|Network is unreachable", "there is no route to {address}; check the network, or a VPN"),
    (r"Connection refused", "{address} refuses connections: its SSH server does not run, or listens on another port"),
    (r"timed out|Timeout, server", "{address} does not answer; it is down, or a firewall drops the connection"),
    (
        r"[Bb]roken pipe|send disconnect|closed by remote host|Read from remote host",
        "the connection to {address} was closed",
    ),
)
"""Messages of ssh and their meaning, where the network or the host has failed."""
_LOGIN = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the host key of {there} has changed; find out why, and remove the old key with `ssh-keygen -R {address}`",
    ),
    (
        r"Host key verification failed|No .* host key is known",
        "the host key of {there} is not known; connect once with `ssh {there}`, and compare the key that it shows",
    ),
    (
        r"Permission denied \(",
        "{there} refuses the login ({line}); `ssh -oBatchMode=yes {there} true` must work without a question, so check"
        " the keys and the agent of ssh, and `owner`",
    ),
    (
        r"Too many authentication failures",
        "{there} refuses the login after too many keys; name the right key in ~/.ssh/config with IdentityFile and"
        " IdentitiesOnly",
    ),
    (r"Could not resolve hostname", "the name {address} is not known on this machine; check `address`"),
    (
        _SESSION_REFUSED.pattern,
        "{address} admits no further session on a connection (MaxSessions)",
    ),
    (
        r"kex_exchange_identification|Connection (closed|reset) by",
        "{address} closed the connection before the login: it has too many connections (MaxStartups), or bans this"
        " machine",
    ),
    (r"command not found|not recognized", "ssh cannot be started as configured ({line})"),
)
"""Messages of ssh and their meaning, where the host was reached and refused the login or the command."""
_PYTHON_TOO_OLD = re.compile(
    r"SyntaxError|has no attribute 'buffer'|No module named 'runpy'|unknown option -I", re.ASCII
)


def failure(config: HostConfig, address: str, exit_code: int | None, stderr: str, noise: str = "") -> ConnectionProblem:
    """The problem behind an ssh command that ended without an answer. `noise`: its output instead of an answer."""
    there = destination(config, address)
    line = _last_line(stderr)
    if exit_code == GATE_REFUSED and "qcg-pm" in stderr:
        return SubCommandRefused(f"{there} does not admit this command: {line}")
    own = [found for found in stderr.splitlines() if found.startswith("qcg-pm:")]
    if own:
        return ConnectionProblem(f"{there}: {_shown(own[-1].removeprefix('qcg-pm:'))}")
    if exit_code == SSH_FAILED and config.second_factor != "none" and _has_nothing_to_share(stderr):
        return no_shared_connection(config, address)
    if exit_code == SSH_FAILED or exit_code is None:
        for pattern, sentence in (*_LOGIN, *_NETWORK):
            if re.search(pattern, stderr):
                text = _advised(sentence.format(there=there, address=address, line=line), config)
                if pattern == _SESSION_REFUSED.pattern:
                    return SessionRefused(text)
                return ConnectionProblem(text, by_network=(pattern, sentence) in _NETWORK)
    if exit_code == _NOT_FOUND:
        what = f"command {config.command[0]!r}" if config.command else f"Python {config.python!r}"
        key = "command" if config.command else "python"
        advice = "" if config.command else "; Python 3.6 or later is all that it needs there"
        return ConnectionProblem(_advised(f"{there} has no {what} (key `{key}`){advice}", config))
    if not config.command and _PYTHON_TOO_OLD.search(stderr):
        sentence = f"{config.python!r} on {there} is older than Python 3.6; name another one with the key `python`"
        return ConnectionProblem(_advised(sentence, config))
    said = line or _last_line(noise)
    said = f": {said}" if said else ""
    if exit_code is None:
        return ConnectionProblem(_advised(f"the connection to {there} was lost{said}", config), by_network=True)
    if exit_code < 0:
        return ConnectionProblem(_advised(f"ssh to {there} was killed by signal {-exit_code}{said}", config))
    return ConnectionProblem(
        _advised(f"ssh to {there} ended with exit code {exit_code}, without an answer{said}", config)
    )


def _has_nothing_to_share(stderr: str) -> bool:
    """Whether a command that must not log in has found no shared connection: it ends before the login then."""
    return bool(_NO_CONNECTION.search(stderr)) and not _SESSION_REFUSED.search(stderr)


def not_startable(config: HostConfig, program: str, error: OSError) -> ConnectionProblem:
    return ConnectionProblem(
        f"{program!r} cannot be started on this machine: {error.strerror}; check `ssh` and `rsync`"
        f" of {config.name} in {config.source or 'hosts.toml'}"
    )


def no_shared_connection(config: HostConfig, address: str) -> ConnectionProblem:
    there = destination(config, address)
    if config.second_factor == "reuse":
        how = f"open one with `ssh -fNM {there}`, with a ControlPath in your ssh configuration"
    else:
        how = f"open one with `qcg-pm hosts connect {config.name}`"
    sentence = f"{there} needs a person to log in, and no connection is open; {how}"
    return ConnectionProblem(sentence, by_network=True)


def rsync_failed(config: HostConfig, what: str, exit_code: int, stderr: str) -> str:
    """A sentence for a failed rsync. `what`: a clause such as `the files of install could not be copied to wizard`."""
    advice = ""
    if exit_code == _NOT_FOUND or "rsync: command not found" in stderr or "rsync: not found" in stderr:
        advice = "; rsync must be installed on both sides"
    lines = [line for line in stderr.splitlines() if line.strip() and not line.startswith("rsync error")]
    said = _shown(lines[0]) if lines else f"exit code {exit_code}"
    return f"{what}: {said}{advice}"


def check_advice(name: str) -> str:
    """The end of sentences about a host that cannot be used; `hosts check` itself leaves it out."""
    return f"; `qcg-pm hosts check {name}` tests every step"


def _advised(sentence: str, config: HostConfig) -> str:
    return sentence + check_advice(config.name)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return _shown(lines[-1]) if lines else ""


def _shown(line: str) -> str:
    return printable(line.strip())[:300]
