"""The gate: a program for `command=` in authorized_keys that admits the commands of this package, and nothing else.

sshd starts it in place of every command that a client asks for, and passes that command in SSH_ORIGINAL_COMMAND. The
gate splits it into words without a shell, admits the sub-commands of the far side and the rsync servers of our
transfers, both for run directories only, and replaces itself with the program. Everything else is logged and refused.

It restricts the use of a key. It is no sandbox: a key that may submit jobs runs programs as this user.
"""

import os
import pwd
import re
import sys
import syslog
import time
from contextlib import suppress
from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Tuple

from qcg.pilotjob.host.remote.command_words import NotPlainWords, split_words
from qcg.pilotjob.host.remote.environment import GATE_ADMITS
from qcg.pilotjob.host.remote.gate_rsync import RefusedRsync, read_rsync
from qcg.pilotjob.host.safe_open import open_own

REFUSED = 126
"""Exit code of a refused command; ssh passes it on."""
SENTENCE = "qcg-pm gate: refused: "
"""Begins the sentence on stderr, by which the manager knows the gate."""

SUB_COMMANDS = (
    "remote-init",
    "jobs-submit",
    "jobs-poll",
    "jobs-kill",
    "cat-log",
    "remote-tidy",
    "remote-serve",
    "message",
)
RSYNC_IN, RSYNC_OUT = "rsync-in", "rsync-out"
"""Files to this host, and files from it."""
EVERYTHING = (*SUB_COMMANDS, RSYNC_IN, RSYNC_OUT)

DIRECTORY = "qcg-run"
LOG = os.path.join(".qcg-pm", "gate.log")
"""Relative to the home directory."""
LARGEST_LOG = 4 << 20
"""Bytes after which the log is renamed, so that refused commands cannot fill the disk."""
LONGEST_ENTRY = 2000
_RSYNCS = ("/usr/bin/rsync", "/bin/rsync", "/usr/local/bin/rsync")
_PYTHON = re.compile(r"(?:/[^ ]*/)?python[0-9.]*")
_UNSAFE_VARIABLE = re.compile(
    r"(?:PYTHON|LD_|RSYNC_|BASH_FUNC_).*|BASH_ENV|ENV|SHELLOPTS|BASHOPTS|IFS|CDPATH|SSH_ORIGINAL_COMMAND"
)
"""Variables that change the behaviour of a started program. A client may be allowed to send variables."""


class Refused(Exception):
    """A command that is not admitted; the message is a clause for the user and the log."""


class Policy(NamedTuple):
    """The admitted commands and paths."""

    zipapp: str
    """The far side, which is started with the Python of this process."""
    home: str
    admitted: FrozenSet[str] = frozenset(EVERYTHING)
    directory: str = DIRECTORY
    """The directory of the run directories: absolute, or relative to the home directory."""
    commands: Tuple[Tuple[str, ...], ...] = ()
    """Further names of the far side that clients may use."""
    rsync: str = ""
    """Absolute path of rsync; empty: where systems install it."""
    log: str = LOG


def main(arguments: List[str]) -> int:
    """Replace this process with the admitted program, or refuse. Returns the exit code of a refusal."""
    policy = Policy(os.path.abspath(sys.argv[0]), _home())
    text = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    try:
        policy = read_policy(arguments, policy)
        command = decide(text, policy)
        os.chdir(policy.home)
        os.execve(command[0], command, environment(os.environ, policy))
    except Refused as refused:
        sentence = str(refused)
    except OSError as error:
        sentence = "the admitted program cannot be started: %s" % error
    return refuse(sentence, text, os.path.join(policy.home, policy.log), os.environ)


def _home() -> str:
    # Not the variable HOME first: an sshd may accept variables from its clients.
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return os.path.expanduser("~")


def decide(text: str, policy: Policy) -> List[str]:
    """The program and its arguments for the command that a client asked for. Raises Refused."""
    if not text.strip():
        raise Refused("this key is for commands of QCG-PilotJob only, not for a login")
    try:
        words = split_words(text)
    except NotPlainWords as problem:
        raise Refused("the command is not admitted: %s" % problem) from None
    if os.path.basename(words[0]) == "rsync":
        return _rsync(words, policy)
    return _far_side(words, policy)


def _far_side(words: List[str], policy: Policy) -> List[str]:
    rest = _without_far_command(words, policy)
    name = rest[0] if rest else ""
    if name not in SUB_COMMANDS:
        raise Refused("%s is no sub-command that this key may use" % (_quoted(name) if name else "an empty command"))
    _check_admitted(name, policy)
    if len(rest) < 2 or (len(rest) > 2 and name != "message"):
        raise Refused("%s takes one run directory, and nothing else" % name)
    below = _below_directory(rest[1], policy)
    if "/" in below:
        raise Refused("%s is no run directory: it is not right below %s" % (_quoted(rest[1]), policy.directory))
    if not sys.executable:
        raise Refused("the path of Python is not known on this host")
    return [sys.executable, policy.zipapp, *rest]


def _without_far_command(words: List[str], policy: Policy) -> List[str]:
    """The sub-command and its arguments. The words before them only name the far side: they are never executed."""
    for command in policy.commands:
        if command and tuple(words[: len(command)]) == command:
            return words[len(command) :]
    if len(words) > 1 and _PYTHON.fullmatch(words[0]) and _is_zipapp(words[1], policy):
        return words[2:]
    if _is_zipapp(words[0], policy):
        return words[1:]
    if words[0] in ("bash", "/bin/bash", "sh", "/bin/sh"):
        raise Refused("a shell is not admitted; set login_shell = false for this host in hosts.toml")
    if _PYTHON.fullmatch(words[0]):
        raise Refused(
            'only the installed far side is admitted; set command = "python3 %s" for this host in hosts.toml'
            % policy.zipapp
        )
    raise Refused("%s is no command that this key may use" % _quoted(words[0]))


def _is_zipapp(word: str, policy: Policy) -> bool:
    if "/" not in word:
        return False
    return os.path.realpath(os.path.join(policy.home, word)) == os.path.realpath(policy.zipapp)


def _rsync(words: List[str], policy: Policy) -> List[str]:
    program = policy.rsync or next(filter(os.path.exists, _RSYNCS), "")
    if words[0] not in ("rsync", program):
        raise Refused("%s is no command that this key may use" % _quoted(words[0]))
    try:
        command = read_rsync(words[1:], lambda path: _check_below(path, policy))
    except RefusedRsync as problem:
        raise Refused("this rsync is not admitted: %s" % problem) from None
    _check_admitted(RSYNC_OUT if command.sends else RSYNC_IN, policy)
    if not program:
        raise Refused("there is no rsync on this host")
    return [program, *command.arguments]


def _check_admitted(name: str, policy: Policy) -> None:
    if name not in policy.admitted:
        raise Refused("%s is not admitted on this host" % name)


def _check_below(path: str, policy: Policy) -> None:
    _below_directory(path, policy)


def _below_directory(path: str, policy: Policy) -> str:
    """The part of a path below the directory of the run directories, with all links resolved."""
    if not path or path.startswith("-") or "\0" in path or ".." in path.split("/"):
        raise Refused("%s is no path that is admitted" % _quoted(path))
    base = os.path.realpath(os.path.join(policy.home, policy.directory))
    try:
        found = os.path.realpath(os.path.join(policy.home, path))
    except (OSError, ValueError):  # too many links, or a name that cannot exist
        raise Refused("%s cannot be resolved" % _quoted(path)) from None
    if not found.startswith(base + os.sep):
        raise Refused("%s is not below %s" % (_quoted(path), policy.directory))
    return found[len(base) + 1 :]


def read_policy(arguments: List[str], default: Policy) -> Policy:
    """Read the options in authorized_keys. Raises Refused: a gate with a wrong option admits nothing."""
    policy = default
    left = list(arguments)
    while left:
        name, equals, value = left.pop(0).partition("=")
        if not equals:
            value = left.pop(0) if left else ""
        if not value:
            raise Refused(_misconfigured("%s needs a value" % _quoted(name)))
        if name == "--admit":
            policy = policy._replace(admitted=_names(value))
        elif name == "--refuse":
            policy = policy._replace(admitted=policy.admitted - _names(value))
        elif name == "--command":
            policy = policy._replace(commands=(*policy.commands, tuple(value.split())))
        elif name == "--directory":
            policy = policy._replace(directory=value)
        elif name == "--log":
            policy = policy._replace(log=value)
        elif name == "--rsync" and os.path.isabs(value):
            policy = policy._replace(rsync=value)
        else:
            raise Refused(_misconfigured("%s %s is no option that it knows" % (name, value)))
    _check_directory(policy)
    return policy


def _check_directory(policy: Policy) -> None:
    """The directory must not hold files that control access: the home directory, and the far side itself."""
    base = os.path.realpath(os.path.join(policy.home, policy.directory))
    for path in (policy.home, policy.zipapp):
        if os.path.commonpath([base, os.path.realpath(path)]) == base:
            raise Refused(_misconfigured("the directory %s holds %s" % (policy.directory, path)))


def _names(value: str) -> FrozenSet[str]:
    names = frozenset(value.replace(",", " ").split())
    unknown = names.difference(EVERYTHING)
    if unknown:
        known = ", ".join(EVERYTHING)
        raise Refused(_misconfigured("%s is none of: %s" % (_quoted(sorted(unknown)[0]), known)))
    return names


def _misconfigured(problem: str) -> str:
    return "the gate is set up wrongly in authorized_keys: %s" % problem


def environment(environ: Mapping[str, str], policy: Policy) -> Dict[str, str]:
    """The environment of the admitted program."""
    kept = {name: value for name, value in environ.items() if not _UNSAFE_VARIABLE.fullmatch(name)}
    kept["HOME"] = policy.home
    kept[GATE_ADMITS] = ",".join(name for name in EVERYTHING if name in policy.admitted)
    return kept


def refuse(sentence: str, text: str, log: str, environ: Mapping[str, str]) -> int:
    """Log a refused command and answer it. A log that cannot be written changes nothing."""
    client = (environ.get("SSH_CONNECTION", "").split() or ["an unknown address"])[0]
    entry = "refused for %s: %s (%s)" % (printable(client), printable(text) or "a login", printable(sentence))
    syslog.openlog("qcg-pm-gate", syslog.LOG_PID, syslog.LOG_AUTH)
    syslog.syslog(syslog.LOG_NOTICE, entry)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with suppress(OSError):
        _append("%s %s\n" % (now, entry), log)
    with suppress(OSError):  # the client may be gone
        sys.stderr.write("%s%s\n" % (SENTENCE, printable(sentence)))
        sys.stderr.flush()
    return REFUSED


def _append(line: str, path: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    if os.path.exists(path) and os.path.getsize(path) > LARGEST_LOG:
        os.replace(path, path + ".1")
    descriptor = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(descriptor, line.encode("ascii", "backslashreplace"))
    finally:
        os.close(descriptor)


def printable(text: str) -> str:
    """Text of a client as one line of printable ASCII, cut when it is long."""
    shown = text[:LONGEST_ENTRY].encode("unicode_escape").decode("ascii")
    return shown if len(text) <= LONGEST_ENTRY else "%s... (%d characters)" % (shown, len(text))


def _quoted(text: str) -> str:
    return "'%s'" % (text if len(text) <= 80 else text[:77] + "...")
