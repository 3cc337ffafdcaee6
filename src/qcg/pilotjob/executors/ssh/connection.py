"""Connects to a remote host: chooses an address and a way to call it, initialises the run there, installs files."""

from __future__ import annotations

import io
import logging
import os
import sys
import tarfile
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from qcg.pilotjob.executors.ssh import child
from qcg.pilotjob.executors.ssh.commands import (
    Control,
    connect_command,
    control_directory,
    control_path,
    destination,
    exit_command,
    install_command,
    one_shot_control,
    serve_control,
    side_control,
)
from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.executors.ssh.errors import (
    ConnectionProblem,
    NotShared,
    SubCommandRefused,
    no_shared_connection,
    not_startable,
    rsync_failed,
)
from qcg.pilotjob.executors.ssh.frames import Frame
from qcg.pilotjob.executors.ssh.job_files import ConnectedHost
from qcg.pilotjob.executors.ssh.transport import (
    ChannelObserver,
    OneShotTransport,
    RemoteError,
    Replaced,
    ServeTransport,
    Transport,
)
from qcg.pilotjob.executors.ssh.user_connection import is_open, socket_path
from qcg.pilotjob.host.remote.supervisor import NUMBERS_LOST_AT_MOST
from qcg.pilotjob.host.safe_open import UnsafeFile, check_own_directory

log = logging.getLogger(__name__)

CHECK_PATIENCE = 15.0
INSTALL_PATIENCE = 3600.0
"""Seconds for the files of `install` to be copied; rsync itself gives up after ten minutes without progress."""


class RunIdentity(Struct, frozen=True):
    """The identity of a run for its remote hosts."""

    id: str
    instance: str
    """The first part of the markers of all its jobs."""
    wd: str
    """The working directory of the manager."""
    run_dir: Path
    log: str
    """The name of the log directory of this start, such as `log.20180418T025047Z`."""
    uuid: str
    """Random, new for each manager: a host that finds it in its own run directory shares the file system."""

    @classmethod
    def of(cls, id: str, instance: str, wd: Path, run_dir: Path, stamp: str) -> RunIdentity:
        return cls(id, instance, str(wd), run_dir, f"log.{stamp}", uuid.uuid4().hex)

    @property
    def label(self) -> str:
        """Tells the control sockets of runs apart."""
        return self.instance[:8]


class Setup(Struct, frozen=True):
    """The data of `remote-init` besides the identity of the run."""

    batch: dict[str, Any] | None = None
    """The commands of the batch system there; None: jobs run in the background."""
    notify: dict[str, Any] | None = None
    """How jobs send messages; None: they do not."""
    service_files: Callable[[], Mapping[str, bytes]] = dict
    """The files of `.service`: contact and keys, with their present content."""


class Connection:
    """An initialised connection to one address."""

    def __init__(self, transport: Transport, host: ConnectedHost, reply: Mapping[str, Any], *, serves: bool) -> None:
        self._transport = transport
        self.host = host
        self.serves = serves
        """Whether the channel stays open, and pushes new records."""
        self.hostname = str(reply.get("hostname", ""))
        self.python = str(reply.get("python", ""))
        self.cpus = int(reply.get("cpus") or 0)
        self.notices = [str(notice) for notice in reply.get("notices", [])]
        self._epoch = reply.get("epoch")

    async def call(self, request: dict[str, Any], payload: bytes = b"", replaced: Replaced | None = None) -> Frame:
        """Raises ConnectionProblem, also when another connection of this run has replaced this one; RemoteError."""
        try:
            return await self._transport.call({**request, "epoch": self._epoch}, payload, replaced)
        except RemoteError as error:
            if error.code in ("stale-epoch", "other-run"):
                raise ConnectionProblem(f"{self.host.config.name}: {error}") from None
            raise

    def close(self) -> None:
        self._transport.close()

    async def close_shared(self) -> None:
        """Close the connection that commands of one-shot mode share."""
        config, address = self.host.config, self.host.address
        if not self.serves and config.second_factor == "none":
            control = one_shot_control(config, self.host.control.path)
            await child.run(exit_command(config, address, control), CHECK_PATIENCE)


class Connector:
    """Connects to one host, as often as needed."""

    def __init__(
        self, config: HostConfig, run: RunIdentity, setup: Setup, ledgers: Callable[[], Mapping[str, int]]
    ) -> None:
        """`ledgers`: by name, the last number in the journal of each ledger of this host."""
        self.config = config
        self._run = run
        self._setup = setup
        self._ledgers = ledgers
        self._directory = config.run_directory(run.id)
        self._path = control_path(config, os.getuid(), run.label)
        self._serves = config.channel == "serve"
        self._installed = False
        self._asked = False
        self._last = config.addresses[0]
        """The address that was used last: jobs in the background run there."""
        self.notices: list[str] = []
        """Notices for the user from connecting."""

    @property
    def tree(self) -> str:
        """The directory on this side for retrieved logs; empty: none are retrieved."""
        return "" if self.config.retrieve == "never" else str(self.config.near_tree(self._run.id))

    async def connect(self, observer: ChannelObserver) -> Connection:
        """Try all addresses, the last one used first. Raises ConnectionProblem when none can be used."""
        _make_control_directory()
        self._write_uuid()
        problems = []
        for address in sorted(self.config.addresses, key=lambda address: address != self._last):
            try:
                connection = await self._connect_to(address, observer)
            except ConnectionProblem as problem:
                problems.append(problem)
                log.info("%s: %s", self.config.name, problem)
                continue
            self._last = address
            return connection
        sentence = "; ".join(dict.fromkeys(map(str, problems)))
        raise ConnectionProblem(sentence, by_network=all(problem.by_network for problem in problems))

    async def _connect_to(self, address: str, observer: ChannelObserver) -> Connection:
        path = self._path
        if self.config.second_factor != "none":
            await self._require_shared(address)
            path = await socket_path(self.config, address, path)
        if self._serves:
            transport: Transport = ServeTransport(
                self.config, address, self._directory, serve_control(self.config, path), observer
            )
            try:
                return await self._initialise(transport, address, path)
            except SubCommandRefused as refused:
                self._serves = False
                self.notices.append(
                    f"{self.config.name} does not admit remote-serve: the manager uses one ssh command for each"
                    f" request, and polls ({refused})"
                )
        control = one_shot_control(self.config, path)
        return await self._initialise(OneShotTransport(self.config, address, self._directory, control), address, path)

    async def _initialise(self, transport: Transport, address: str, path: str) -> Connection:
        try:
            await transport.open()
            request = {
                "do": "remote-init",
                "host": self.config.name,
                "instance": self._run.instance,
                "uuid": self._run.uuid,
                "log": self._run.log,
                "notify": self._setup.notify,
                "batch": self._setup.batch,
            }
            reply = (await transport.call(request, _archive(self._setup.service_files()))).head
            self._check_ledgers(address, reply)
            control = side_control(self.config, path)
            shared = bool(reply.get("shared"))
            run_dir = str(reply.get("run_dir", self._directory))
            host = ConnectedHost(self.config, address, control, self._directory, run_dir, shared, self._run.log)
            await self._install(host)
            return Connection(transport, host, reply, serves=isinstance(transport, ServeTransport))
        except RemoteError as error:
            transport.close()
            raise ConnectionProblem(f"{destination(self.config, address)}: {error}") from None
        except BaseException:
            transport.close()
            raise

    def _check_ledgers(self, address: str, reply: Mapping[str, Any]) -> None:
        """Refuse a login host without the records that the run has received from another one, and a run directory
        that is older than these records."""
        present = reply.get("ledgers", {})
        missing = [name for name, number in self._ledgers().items() if number and name not in present]
        there = destination(self.config, address)
        if not missing:
            if any(_is_older(name, number, reply) for name, number in self._ledgers().items()):
                raise NotShared(
                    f"the records of this run in {self._directory} on {there} end before those that this manager has:"
                    f" an old copy of the directory was restored; jobs that ran there since then cannot be found again,"
                    " so restore the newest copy, or start a new run"
                )
            return
        if len(self.config.addresses) > 1:
            raise NotShared(
                f"{there} does not share the file system of the other addresses of {self.config.name}: the records of"
                f" this run are missing in {self._directory} there; remove it from `address`"
            )
        raise NotShared(
            f"the records of this run are missing in {self._directory} on {there}: the directory was removed, or this"
            f" is another machine; jobs that ran there cannot be found again"
        )

    async def _install(self, host: ConnectedHost) -> None:
        if not self.config.install or host.shared or self._installed:
            return
        argv = install_command(self.config, host.address, host.control, host.run)
        try:
            finished = await child.run(argv, INSTALL_PATIENCE, self._run.wd)
        except OSError as error:
            raise not_startable(self.config, argv[0], error) from None
        if finished.exit_code != 0:
            what = f"the files of `install` could not be copied to {self.config.name}"
            code = -1 if finished.exit_code is None else finished.exit_code
            raise ConnectionProblem(rsync_failed(self.config, what, code, finished.stderr))
        self._installed = True

    async def _require_shared(self, address: str) -> None:
        """Make sure that a connection is open which a person has made."""
        if await is_open(self.config, address, self._path):
            return
        if self.config.second_factor == "ask" and not self._asked and sys.stdin is not None and sys.stdin.isatty():
            self._asked = True
            try:
                await child.run_at_terminal(connect_command(self.config, address, Control("no", self._path)))
            except OSError as error:
                log.info("%s: nobody can be asked: %s", self.config.name, error)
            if await is_open(self.config, address, self._path):
                return
        raise no_shared_connection(self.config, address)

    def _write_uuid(self) -> None:
        """Write the UUID to the run directory of the same path here, for the test of a shared file system."""
        path = self._uuid_file()
        if os.path.isabs(self.config.directory) and not os.path.isdir(self.config.directory):
            return  # a directory missing here is not shared
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_text(self._run.uuid + "\n")
        except OSError as error:
            log.info("no test for a shared file system: %s cannot be written (%s)", path, error.strerror)

    def forget_uuid(self) -> None:
        """Remove the UUID, and the directories around it that are empty then."""
        path = self._uuid_file()
        with suppress(OSError):
            path.unlink()
            path.parent.rmdir()
            path.parent.parent.rmdir()

    def _uuid_file(self) -> Path:
        return self.config.near_tree(self._run.id) / ".service" / "uuid"


def _is_older(ledger: str, number: int, reply: Mapping[str, Any]) -> bool:
    """Whether a ledger lacks records up to `number`, and no crash of its machine can be the reason."""
    missing = number - int(reply.get("ledgers", {}).get(ledger, number))
    is_of_this_boot = reply.get("boots", {}).get(ledger) == reply.get("boot")
    return missing > (0 if is_of_this_boot else NUMBERS_LOST_AT_MOST)


def _make_control_directory() -> None:
    path = control_directory(os.getuid())
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        check_own_directory(path)
    except UnsafeFile as unsafe:
        raise ConnectionProblem(f"{unsafe.sentence}; remove it, because ssh keeps its connections there") from None
    except OSError as error:
        raise ConnectionProblem(
            f"the directory {path} for shared ssh connections cannot be made: {error.strerror}"
        ) from None


def _archive(files: Mapping[str, bytes]) -> bytes:
    """A tar archive of the service files; empty without any."""
    if not files:
        return b""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as writer:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o600
            writer.addfile(entry, io.BytesIO(content))
    return archive.getvalue()
