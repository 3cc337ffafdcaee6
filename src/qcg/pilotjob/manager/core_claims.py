"""Claims on the cores of this host, so that two runs of one user do not bind their jobs to the same cores.

The claims of all runs are in one file for each user and boot, in a directory that nobody else can write to. A claim
holds while its manager or its agent lives, because jobs outlive their manager. Processes are named by pid and start
time, so that a claim left by a dead process is recognised even when its pid is in use again. Claims are advice: when
the file cannot be used, the run takes all cores and says why.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from qcg.pilotjob.common.environment import CORE_CLAIMS
from qcg.pilotjob.host.process_tree import boot_id, read_process

LOCK_TIMEOUT = 1.0
"""Seconds to wait for the lock. Its holder needs milliseconds, unless it was stopped."""
PAUSE = 0.02
MOST_BYTES = 1 << 20
"""Bytes of the file that are read; a larger one is damaged."""


class ClaimsError(Exception):
    """The claims cannot be read or written; the message says why."""


class ProcessId(Struct, frozen=True):
    pid: int
    started: int
    """Clock ticks after boot."""

    @property
    def is_alive(self) -> bool:
        process = read_process(self.pid)
        return process is not None and not process.dead and process.start_ticks == self.started


class Claim(Struct, frozen=True):
    """The cores of one run."""

    run_dir: str
    cores: list[int]
    manager: ProcessId
    agent: ProcessId | None = None

    @property
    def holds(self) -> bool:
        return self.manager.is_alive or (self.agent is not None and self.agent.is_alive)

    def __str__(self) -> str:
        if self.manager.is_alive or self.agent is None:
            return f"{self.run_dir} (manager {self.manager.pid})"
        return f"{self.run_dir} (agent {self.agent.pid})"


class Claims:
    """The claims of this user on this host, since it was booted."""

    def __init__(self, directory: Path | None = None) -> None:
        given = os.environ.get(CORE_CLAIMS)
        self._directory = directory or (Path(given) if given else Path(f"/tmp/qcg-pm-{os.geteuid()}"))
        # Processes of another pid namespace are not visible, so each namespace has a file of its own.
        self._name = f"cores-{boot_id() or 'boot'}-{_pid_namespace()}"

    def claim(self, run_dir: Path, cores: list[int], *, shared: bool = False) -> tuple[list[int], list[Claim]]:
        """Claim the cores that no other run has claimed. Returns them, and the claims of other runs on the rest. When
        none is left, nothing is claimed. `shared`: claim all cores, also those of other runs.

        A claim that this run already has is replaced. Claims of runs that this process belongs to, as a job, do not
        count: the cores were given to it.
        """
        me = _process(os.getpid())
        if me is None:
            raise ClaimsError("/proc does not show this process")
        ancestors = _ancestors()
        with self._locked() as directory:
            claims = [claim for claim in self._read(directory) if claim.run_dir != str(run_dir)]
            others = [
                claim
                for claim in claims
                if not set(cores).isdisjoint(claim.cores) and ancestors.isdisjoint((claim.manager, claim.agent))
            ]
            taken = {core for claim in others for core in claim.cores}
            mine = cores if shared else [core for core in cores if core not in taken]
            if mine:
                claims.append(Claim(str(run_dir), mine, me, self._agent_of(directory, run_dir)))
            self._write(directory, claims)
        return mine, others

    def set_agent(self, run_dir: Path, pid: int) -> None:
        """Let the claim of a run hold while this agent lives."""
        agent = _process(pid)
        with self._locked() as directory:
            claims = self._read(directory)
            self._write(
                directory,
                [
                    msgspec.structs.replace(claim, agent=agent) if claim.run_dir == str(run_dir) else claim
                    for claim in claims
                ],
            )

    def touch(self) -> None:
        """Mark the file as used: programs that clean `/tmp` remove files that nobody has touched for days."""
        with suppress(OSError):
            os.utime(self._directory / f"{self._name}.json", follow_symlinks=False)

    def release(self, run_dir: Path) -> None:
        """Give up the claim of a run, unless its agent lives."""
        with self._locked() as directory:
            claims = self._read(directory)
            self._write(
                directory,
                [
                    claim
                    for claim in claims
                    if claim.run_dir != str(run_dir) or (claim.agent is not None and claim.agent.is_alive)
                ],
            )

    def _agent_of(self, directory: int, run_dir: Path) -> ProcessId | None:
        """The agent of an earlier manager of this run, which still has jobs."""
        return next((claim.agent for claim in self._read(directory) if claim.run_dir == str(run_dir)), None)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The directory, open, while no other process changes the claims."""
        try:
            directory = self._open_directory()
            try:
                lock = os.open(f"{self._name}.lock", os.O_RDWR | os.O_CREAT | _SAFE, 0o600, dir_fd=directory)
                try:
                    self._lock(lock)
                    yield directory
                finally:
                    os.close(lock)
            finally:
                os.close(directory)
        except OSError as error:
            raise ClaimsError(f"{self._directory}: {os.strerror(error.errno or 0)}") from None

    def _open_directory(self) -> int:
        with suppress(FileExistsError):
            os.mkdir(self._directory, 0o700)
        try:
            descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise ClaimsError(f"{self._directory} is not a directory") from None
            raise
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            os.close(descriptor)
            raise ClaimsError(f"{self._directory} belongs to another user, or others may use it")
        return descriptor

    def _lock(self, lock: int) -> None:
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ClaimsError(f"{self._directory} is locked by another process") from None
                time.sleep(PAUSE)
            else:
                return

    def _read(self, directory: int) -> list[Claim]:
        """The claims that hold; none when the file is damaged."""
        try:
            descriptor = os.open(f"{self._name}.json", os.O_RDONLY | _SAFE, dir_fd=directory)
        except FileNotFoundError:
            return []
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return []
            content = file.read(MOST_BYTES)
        try:
            return [claim for claim in msgspec.json.decode(content, type=list[Claim]) if claim.holds]
        except msgspec.DecodeError:
            return []

    def _write(self, directory: int, claims: list[Claim]) -> None:
        """Whole or not at all."""
        temporary = f".{self._name}.{os.getpid()}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _SAFE, 0o600, dir_fd=directory)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(claims))
            os.replace(temporary, f"{self._name}.json", src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise


_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def _process(pid: int) -> ProcessId | None:
    process = read_process(pid)
    return ProcessId(pid, process.start_ticks) if process is not None else None


def _ancestors() -> set[ProcessId | None]:
    """The processes that this one descends from."""
    found: set[ProcessId | None] = set()
    process = read_process(os.getpid())
    while process is not None and process.parent:
        process = read_process(process.parent)
        if process is not None:
            found.add(ProcessId(process.pid, process.start_ticks))
    return found


def _pid_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
