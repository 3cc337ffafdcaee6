"""Remote hosts as configured in `hosts.toml`.

Each table is a host: `[wizard]`. Three files are read: the site's, the user's, and the one of `--hosts FILE`. A host of
a later file replaces the host of the same name in an earlier one.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from qcg.pilotjob.cluster.registry import remote_queue_names
from qcg.pilotjob.common.options import UsageError
from qcg.pilotjob.common.similarity import nearest
from qcg.pilotjob.common.wording import list_names
from qcg.pilotjob.description.counters import check_counter
from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.model import Counters
from qcg.pilotjob.description.walltime import parse_wall_time
from qcg.pilotjob.executors.ssh.host_files import SITE_FILE, user_file

MOST_CORES = 100_000
"""Most cores, GPUs or jobs of one host."""
MOST_MEMORY = 1 << 40
"""Most memory of one host, in MiB."""

BACKGROUND = "background"
CHANNELS = ("serve", "one-shot")
TRACKING = ("poll", "messages", "ssh")
RETRIEVE = ("never", "on-failure", "always")
SECOND_FACTORS = ("none", "reuse", "own", "ask")

_NAME = re.compile(r"\w[\w.-]*", re.ASCII)
_ADDRESS = re.compile(r"[\w\[][\w.:%\]-]*", re.ASCII)
_OWNER = re.compile(r"[\w][\w.@+\\-]*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SIZE = re.compile(r"[0-9]{1,15}[KMGT]?", re.ASCII | re.IGNORECASE)


class HostsError(UsageError):
    """Hosts are not configured correctly; the message says where, and what to change."""


class HostConfig(Struct, frozen=True):
    """One remote host, or several login hosts of one file system."""

    name: str
    addresses: tuple[str, ...]
    """Destinations for ssh, in the order in which they are tried: more than one for login hosts of one file system."""
    source: str = ""
    """The file that configures it."""
    owner: str = ""
    """The user there; empty: as the user's ssh configuration says."""
    batch: str = BACKGROUND
    """`background`, or the name of a batch system."""
    cores: int = 1
    """Cores to use at once."""
    gpus: int = 0
    memory: int = 0
    """Memory to use at once, in MiB; 0: not counted."""
    counters: Counters = ()
    """Named counters of the host."""
    jobs: int = 100
    """Most jobs at once in a batch system."""
    channel: str = "serve"
    tracking: str = "poll"
    """How a manager in one-shot mode learns of starts and ends between two polls."""
    manager_address: str = ""
    """Where jobs reach the manager with tracking by messages or ssh: a host, or USER@HOST; empty: found out."""
    submit_poll_interval: float = 5.0
    """Most seconds between two polls while jobs wait for their start, in one-shot mode."""
    poll_interval: float = 15.0
    """Most seconds between two polls while jobs run, in one-shot mode."""
    login_shell: bool = False
    python: str = "python3"
    command: tuple[str, ...] = ()
    """The far command, where it is installed; empty: it is sent by each manager that needs it."""
    directory: str = "qcg-run"
    """The directory of all runs, relative to the home directory there, or absolute."""
    install: tuple[str, ...] = ()
    """Files and directories to copy to the run directory, relative to the manager's working directory."""
    retrieve: str = "on-failure"
    retrieve_max_size: str = "1M"
    """The size of the largest log file that is retrieved, such as `10M`; empty: any."""
    ssh: tuple[str, ...] = ("ssh",)
    rsync: tuple[str, ...] = ("rsync",)
    environment: dict[str, str] = {}
    directives: dict[str, str] = {}
    """Options for the batch system, for all jobs."""
    second_factor: str = "none"

    @property
    def is_batch(self) -> bool:
        return self.batch != BACKGROUND

    def run_directory(self, run_id: str) -> str:
        """The directory of a run, relative to the home directory there, or absolute."""
        return f"{self.directory}/{run_id}"

    def near_tree(self, run_id: str) -> Path:
        """The directory with the same tree on the manager's side."""
        return Path(os.path.expanduser("~")) / self.run_directory(run_id)


class _Problem(Exception):
    """A wrong value, as a clause after its key."""


def load_hosts(given: str | None, environ: Mapping[str, str], site: Path = SITE_FILE) -> dict[str, HostConfig]:
    """All configured hosts by name. `given`: the file of `--hosts`, which must exist."""
    hosts: dict[str, HostConfig] = {}
    for path in (site, user_file(environ)):
        hosts.update(_read(path, required=False))
    if given is not None:
        hosts.update(_read(Path(given), required=True))
    return hosts


def find_host(hosts: Mapping[str, HostConfig], name: str) -> HostConfig:
    """The host of this name; raises HostsError with the most similar name."""
    if name in hosts:
        return hosts[name]
    if not hosts:
        raise HostsError(f"there is no host {name!r}: no remote host is configured; {where_to_configure()}")
    known = _did_you_mean(name, hosts) or f"; the configured hosts are {list_names(sorted(hosts))}"
    raise HostsError(f"there is no host {name!r}{known}")


def where_to_configure() -> str:
    return f"write it to {user_file(os.environ)}, or to a file given with --hosts"


def _read(path: Path, *, required: bool) -> dict[str, HostConfig]:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        if not required:
            return {}
        raise HostsError(f"--hosts {path}: there is no such file") from None
    except OSError as error:
        raise HostsError(f"the hosts in {path} cannot be read: {os.strerror(error.errno or 0)}") from None
    except UnicodeDecodeError:
        raise HostsError(f"{path} is not UTF-8 text, so that its hosts cannot be read") from None
    return parse_hosts(text, str(path))


def parse_hosts(text: str, source: str) -> dict[str, HostConfig]:
    """The hosts of one file, by name. `source`: its path, for messages."""
    if sys.version_info >= (3, 11):  # here, because most runs have no remote hosts
        import tomllib
    else:
        import tomli as tomllib
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise HostsError(f"{source} is not valid TOML: {error}") from None
    return {name: _host(name, table, source) for name, table in tables.items()}


def _host(name: str, table: Any, source: str) -> HostConfig:
    where = f"{source}, [{name}]"
    if not isinstance(table, dict):
        raise HostsError(f"{source}: the key {name!r} belongs to no host; put it below a line [NAME]")
    if _NAME.fullmatch(name) is None:
        raise HostsError(
            f"{where}: the name of a host consists of letters, digits and ._- and begins with a letter or digit"
        )
    values: dict[str, Any] = {"addresses": (name,)}
    for key, given in table.items():
        if key not in _KEYS:
            if isinstance(given, dict) and not (similar := _did_you_mean(key, _KEYS)):
                similar = f'; for a host with a dot in its name, write ["{name}.{key}"]'
            else:
                similar = _did_you_mean(key, _KEYS) or f"; known are {', '.join(sorted(_KEYS))}"
            raise HostsError(f"{where}: there is no key {key!r}{similar}")
        field, check = _KEYS[key]
        try:
            values[field] = check(given)
        except _Problem as problem:
            raise HostsError(f"{where}: {key} {problem}") from None
    config = HostConfig(name, source=source, **values)
    _check_together(config, table, where)
    return config


def _check_together(config: HostConfig, table: Mapping[str, Any], where: str) -> None:
    if config.is_batch:
        for key in ("cores", "gpus", "memory"):
            if key in table:
                raise HostsError(
                    f"{where}: {key} is for hosts without a batch system; {config.batch} counts resources itself:"
                    " leave it out, and limit the number of jobs with `jobs`"
                )
    else:
        for key in ("jobs", "directives"):
            if key in table:
                raise HostsError(f"{where}: {key} is for hosts with a batch system; set batch as well, or leave it out")
    if config.command and "python" in table:
        raise HostsError(f"{where}: command is an installed program, which chooses its own Python; leave out python")


_SYNONYMS = {"user": "owner", "username": "owner", "host": "address", "hostname": "address", "env": "environment"}
"""Keys of other programs, and the equivalent key here."""


def _did_you_mean(given: str, known: Mapping[str, Any]) -> str:
    if _SYNONYMS.get(given.lower()) in known:
        return f"; did you mean {_SYNONYMS[given.lower()]!r}?"
    near = nearest(given.lower().replace("-", "_"), known)
    return f"; did you mean {near!r}?" if near is not None else ""


# -- values of keys -------------------------------------------------------------------------------------------------


def _choice(*known: str) -> Callable[[Any], str]:
    def check(given: Any) -> str:
        if given in known:
            return str(given)
        similar = _did_you_mean(given, dict.fromkeys(known)) if isinstance(given, str) else ""
        raise _Problem(f"must be {', '.join(map(repr, known[:-1]))} or {known[-1]!r}, not {given!r}{similar}")

    return check


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def check(given: Any) -> int:
        if type(given) is not int or not least <= given <= most:
            raise _Problem(f"must be a whole number from {least} to {most:,}, not {given!r}")
        return given

    return check


def _flag(given: Any) -> bool:
    if type(given) is not bool:
        raise _Problem(f"must be true or false, without quotes, not {given!r}")
    return given


def _seconds(given: Any) -> float:
    if type(given) not in (int, float, str):
        raise _Problem(f"must be a number of seconds, or text such as '1m30s', not {given!r}")
    try:
        return parse_wall_time(given)
    except DescriptionError:
        raise _Problem(f"must be a number of seconds above zero, or text such as '1m30s', not {given!r}") from None


def _addresses(given: Any) -> tuple[str, ...]:
    found = _strings(given)
    for address in found:
        if _ADDRESS.fullmatch(address) is None:
            advice = "; the user there is the value of `owner`" if "@" in address else ""
            raise _Problem(f"must be a host as ssh takes it, or a list of them, not {address!r}{advice}")
    if len(set(found)) != len(found):
        raise _Problem("names a host twice")
    return found


def _owner(given: Any) -> str:
    if not isinstance(given, str) or _OWNER.fullmatch(given) is None:
        raise _Problem(f"must be the name of a user, not {given!r}")
    return given


def _command(given: Any) -> tuple[str, ...]:
    """A command as a list of words, or as text that is split like in a shell."""
    if isinstance(given, str):
        try:
            words = tuple(shlex.split(given))
        except ValueError as error:
            raise _Problem(f"cannot be split into words: {error}") from None
    else:
        words = _strings(given)
    if not words or not words[0]:
        raise _Problem("must name a program")
    return words


def _strings(given: Any) -> tuple[str, ...]:
    found = [given] if isinstance(given, str) else given
    if not isinstance(found, list) or not found or not all(isinstance(word, str) and word for word in found):
        raise _Problem(f"must be text, or a list of texts, not {given!r}")
    _refuse_control_characters(found)
    return tuple(found)


def _text(given: Any) -> str:
    if not isinstance(given, str) or not given:
        raise _Problem(f"must be text, not {given!r}")
    _refuse_control_characters([given])
    return given


def _directory(given: Any) -> str:
    path = _text(given)
    if path.startswith("~/"):
        path = path[2:]
    path = path.rstrip("/")
    if not path or path.startswith("~") or "$" in path or ".." in path.split("/"):
        raise _Problem(
            f"must be a path on the host, absolute or relative to the home directory, without '~', '$' and '..', not"
            f" {given!r}"
        )
    return path


def _install(given: Any) -> tuple[str, ...]:
    for path in (found := _strings(given)):
        if path.startswith(("/", "~")) or ".." in path.split("/"):
            raise _Problem(f"must list relative paths inside the working directory of the run, not {path!r}")
    return found


def _size(given: Any) -> str:
    found = str(given) if type(given) is int else given
    if not isinstance(found, str) or _SIZE.fullmatch(found) is None:
        raise _Problem(f"must be a number of bytes, also with K, M or G after it, not {given!r}")
    return found


def _variables(given: Any) -> dict[str, str]:
    found = _options(given)
    for name in found:
        if _VARIABLE.fullmatch(name) is None:
            raise _Problem(f"has the name {name!r}, which no environment variable can have")
    return found


def _counters(given: Any) -> Counters:
    if not isinstance(given, dict):
        raise _Problem(f"must be a table, such as {{ fpga = 2 }}, not {given!r}")
    for name, number in given.items():
        if type(number) is not int:
            raise _Problem(f"has {name} = {number!r}, where a whole number is needed")
        try:
            check_counter(name, number)
        except DescriptionError as error:
            raise _Problem(f"is wrong: {error}") from None
    return tuple(sorted(given.items()))


def _options(given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        raise _Problem(f'must be a table, such as {{ NAME = "value" }}, not {given!r}')
    found = {}
    for name, value in given.items():
        if not isinstance(value, (str, int, float)) or isinstance(value, bool):
            raise _Problem(f"has {name} = {value!r}, where text or a number is needed")
        found[name] = str(value)
    _refuse_control_characters([*found, *found.values()])
    return found


def _refuse_control_characters(texts: Sequence[str]) -> None:
    for text in texts:
        if any(character < " " for character in text):
            raise _Problem(f"has a control character in {text!r}")


_KEYS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "address": ("addresses", _addresses),
    "owner": ("owner", _owner),
    "batch": ("batch", _choice(BACKGROUND, *remote_queue_names())),
    "cores": ("cores", _whole(1, MOST_CORES)),
    "gpus": ("gpus", _whole(0, MOST_CORES)),
    "memory": ("memory", _whole(1, MOST_MEMORY)),
    "resources": ("counters", _counters),
    "jobs": ("jobs", _whole(1, MOST_CORES)),
    "channel": ("channel", _choice(*CHANNELS)),
    "tracking": ("tracking", _choice(*TRACKING)),
    "manager_address": ("manager_address", _text),
    "submit_poll_interval": ("submit_poll_interval", _seconds),
    "poll_interval": ("poll_interval", _seconds),
    "login_shell": ("login_shell", _flag),
    "python": ("python", _text),
    "command": ("command", _command),
    "directory": ("directory", _directory),
    "install": ("install", _install),
    "retrieve": ("retrieve", _choice(*RETRIEVE)),
    "retrieve_max_size": ("retrieve_max_size", _size),
    "ssh": ("ssh", _command),
    "rsync": ("rsync", _command),
    "environment": ("environment", _variables),
    "directives": ("directives", _options),
    "second_factor": ("second_factor", _choice(*SECOND_FACTORS)),
}
"""The keys of a host: the field of HostConfig, and the check of its value."""
