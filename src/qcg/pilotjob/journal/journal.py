"""The permanent registry, as the one manager that owns it uses it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from qcg.pilotjob.core.effects import Effect, Removed, Transition
from qcg.pilotjob.core.records import Attempt
from qcg.pilotjob.core.restore import SavedRun
from qcg.pilotjob.host.safe_open import UnsafeFile, check_own_directory
from qcg.pilotjob.journal import damage, loading, reading, schema
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.group import GATHER, Group
from qcg.pilotjob.journal.metadata import EPOCH, PUT_VALUE, MetadataKey, T
from qcg.pilotjob.journal.questions import Questions
from qcg.pilotjob.journal.records import JobEnded
from qcg.pilotjob.journal.registry_files import check_own_files

FILE_NAME = "registry.sqlite"


class Journal(Questions):
    """Group commits on one SQLite file.

    `record` and what begins with `set_` only gather, and never fail. `commit` hands everything gathered to the
    operating system in one transaction, all or nothing: from then on it outlives this process. `sync` waits until all
    that was committed before the call is on the disk: from then on it outlives the machine.

    When `commit` raises, nothing is lost: all that was gathered stays, and the next `commit` tries again. A submission
    that must not be tried again (its sender got an error) is taken back by recording `Removed` for its jobs, which
    strikes them from what was gathered; the same is right when `commit` succeeded and `sync` failed.

    All methods but `sync` belong to the thread that opened the journal.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Used by `create` and `open`."""
        super().__init__(connection)
        self.path = path
        self._gathering = Group()
        self._waiting: list[Group] = []
        """Groups that are not committed yet."""
        self._closed = False
        self._written = 0
        """So many of them are in the transaction that is open."""
        self.ends_before = reading.last_end(connection)
        """The number of the last end of a job before this manager."""
        self.last_end = self.ends_before
        """The number of the last end that is committed."""
        self.epoch = self._begin_epoch()
        """How many managers have opened this registry, this one included."""
        # SQLite keeps the WAL until the connection is closed, and locks only the main file: a second descriptor on the
        # WAL is safe, and syncs it without the connection, which only one thread may use.
        self._wal = os.open(f"{path}-wal", os.O_RDWR | os.O_CLOEXEC)
        self._wal_guard = threading.Lock()
        schema.sync_directory(path.parent)

    @classmethod
    def create(cls, path: Path) -> Journal:
        """A new, empty registry, readable by its owner alone."""
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise JournalError(f"There is a registry at {path} already; resume that run, or give another id.") from None
        except OSError as error:
            raise JournalError(f"The registry {path} could not be created: {_reason(error)}.") from error
        try:
            return cls._start(path, schema.create_tables)
        except JournalError:
            for suffix in ("", "-wal", "-journal"):
                with suppress(OSError):  # what is wrong is said already
                    Path(f"{path}{suffix}").unlink(missing_ok=True)
            raise

    @classmethod
    def open(cls, path: Path) -> Journal:
        """The registry that an earlier manager left, however it ended."""
        try:
            check_own_directory(path.parent)
            check_own_files(path)
        except FileNotFoundError:
            raise JournalError(f"There is no registry at {path}; give the run directory of an earlier run.") from None
        except UnsafeFile as unsafe:
            raise JournalError(f"{unsafe.sentence}.") from None

        def prepare(connection: sqlite3.Connection) -> None:
            # SQLite opens files by name: others may have put their own there since the first check.
            check_own_directory(path.parent)
            check_own_files(path)
            schema.check_format(connection, path)
            _refuse_damage(connection, path)
            schema.prepare_existing(connection, path)

        return cls._start(path, prepare)

    @classmethod
    def _start(cls, path: Path, prepare: Callable[[sqlite3.Connection], None]) -> Journal:
        with contextlib.ExitStack() as undo:
            try:
                connection = schema.connect(path)
                undo.callback(connection.close)
                prepare(connection)
                journal = cls(path, connection)
            except (OSError, sqlite3.Error) as error:
                raise JournalError(f"The registry {path} could not be opened: {_reason(error)}.") from error
            undo.pop_all()
            return journal

    def _begin_epoch(self) -> int:
        epoch = EPOCH.read(self._connection) + 1
        self._connection.execute(PUT_VALUE, (EPOCH.name, epoch))
        return epoch

    def record(self, effect: Effect) -> None:
        """Gather what this effect changes; effects that change nothing in the registry are passed over."""
        if type(effect) is Transition:
            self._gathering.transition(effect)  # by far the most
            return
        if type(effect) is Removed:
            self._take_back(effect.job.seq)
        gather = GATHER.get(type(effect))
        if gather is not None:
            gather(self._gathering, effect)

    def _take_back(self, seq: int) -> None:
        """Strike a job from what was gathered. Its end stays, unless its submission was never committed."""
        groups = (*self._waiting, self._gathering)
        withdrawn = any(seq in group.added for group in groups)
        if withdrawn and self._written:
            self._roll_back()  # numbers of ends have no gaps, so the groups are written once more, without this job
        for group in groups:
            group.take_back(seq)
            if withdrawn:
                group.ends.pop(seq, None)

    def set_command(self, run: Attempt, command: str) -> None:
        """What a run is started with."""
        self._gathering.start_with(run, command)

    def set_metadata(self, key: MetadataKey[T], value: T) -> None:
        self._gathering.meta[key.name] = key.encode(value)
        self._gathering.empty = False

    def set_acked(self, agent: str, number: int) -> None:
        """All records of this agent up to `number` have their effects in what was gathered so far, or before."""
        self._gathering.acked[agent] = number
        self._gathering.empty = False

    def commit(self) -> None:
        self._write()
        if not self._waiting:
            return
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._put_back(error) from error
        self.last_end += sum(len(group.ends) for group in self._waiting)
        self._waiting.clear()
        self._written = 0

    def sync(self) -> None:
        """Blocks; the one method for another thread."""
        with self._wal_guard:
            if self._closed:
                raise JournalError(f"The registry {self.path} is closed already.")
            try:
                os.fdatasync(self._wal)
            except OSError as error:
                raise JournalError(
                    f"The registry {self.path} could not be synced to disk: {_reason(error)}."
                ) from error

    def give_back_memory(self) -> None:
        """What SQLite keeps of pages that it may never need again."""
        with suppress(sqlite3.ProgrammingError):  # closed meanwhile
            self._connection.execute("PRAGMA shrink_memory")

    def close(self, *, commit: bool = True) -> None:
        """Commit, and fold everything into the one file. Or leave out what was gathered since the last commit.

        A second call does nothing."""
        if self._closed:
            return
        try:
            if commit:
                self.commit()
        finally:
            with self._wal_guard:
                self._closed = True
                os.close(self._wal)
            self._connection.close()

    def acked(self) -> dict[str, int]:
        """By agent, the number of its last record whose effects are in the registry."""
        return reading.acked(self._current())

    def load(self) -> SavedRun:
        """Read the whole registry, for a manager that resumes."""
        return loading.load(self._current())

    @property
    def has_uncommitted_ends(self) -> bool:
        return any(group.ends for group in (*self._waiting, self._gathering))

    def ends_after(self, number: int, limit: int) -> list[JobEnded]:
        """The next committed ends of jobs after this number. Ends that are not committed may get another number after
        a crash, so they are never shown to clients."""
        return reading.ends_between(self._connection, number, self.last_end, limit)

    def _current(self) -> sqlite3.Connection:
        """The connection, with all that was gathered written to it but not committed: what is committed together is
        the caller's choice, and a question must not make it for him."""
        self._write()
        return self._connection

    def _write(self) -> None:
        if not self._gathering.empty:
            self._waiting.append(self._gathering)
            self._gathering = Group()
        if self._written == len(self._waiting):
            return
        try:
            if not self._connection.in_transaction:
                self._connection.execute("BEGIN")
            for group in self._waiting[self._written :]:
                group.write(self._connection)
                self._written += 1
        except sqlite3.Error as error:
            raise self._put_back(error) from error
        except Exception as error:  # no memory, or a value that SQLite does not take: half a group must not stay
            self._put_back(error)
            raise

    def _put_back(self, error: Exception) -> JournalError:
        self._roll_back()
        # What is gathered until then joins the newest group: a disk may be full for hours.
        self._gathering = self._waiting.pop()
        return JournalError(
            f"The registry {self.path} could not be written: {error}. Nothing is lost yet: it is tried again,"
            " so make room on the disk or mend what is wrong with it."
        )

    def _roll_back(self) -> None:
        """Undo the transaction, if SQLite has not, so that the next try begins with the oldest group again."""
        self._written = 0
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # then SQLite has undone it itself
                self._connection.execute("ROLLBACK")


def _refuse_damage(connection: sqlite3.Connection, path: Path) -> None:
    """Whoever goes on without what cannot be read may lose jobs, or run them twice."""
    if not damage.is_damaged(connection, whole=True, thorough=True):
        return
    with contextlib.closing(damage.salvage(connection)) as copy:
        found = damage.in_words(damage.unreadable_of(copy))
    raise damaged(path, found)


def damaged(path: Path, what: str) -> JournalError:
    """The refusal to go on with a damaged registry."""
    return JournalError(
        f"The registry {path} is damaged and cannot be continued: jobs might be lost, or run twice. Not readable:"
        f" {what}. `qcg-pm report {path.parent}` and `qcg-pm jobs --path {path.parent}` show what can still be read;"
        " restore the file from a backup, or start a new run for the jobs that have not succeeded."
    )


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
