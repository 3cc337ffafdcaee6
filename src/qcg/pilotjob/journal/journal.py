"""The registry as its manager uses it: group commits, sync to disk, and queries."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from qcg.pilotjob.core.effects import Effect, Removed, Reran, Transition
from qcg.pilotjob.core.records import Attempt
from qcg.pilotjob.host.safe_open import UnsafeFile, check_own_directory
from qcg.pilotjob.journal import damage, queries, schema
from qcg.pilotjob.journal.commit_group import GATHER, CommitGroup
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.metadata import EPOCH, PUT_VALUE, MetadataKey, T
from qcg.pilotjob.journal.records import JobEnded
from qcg.pilotjob.journal.registry_files import FILE_NAME as FILE_NAME
from qcg.pilotjob.journal.registry_files import check_own_files
from qcg.pilotjob.journal.registry_reader import RegistryReader

if TYPE_CHECKING:
    from qcg.pilotjob.core.restore import SavedRun


class Journal(RegistryReader):
    """Group commits on one SQLite file.

    `record` and the `set_` methods only gather changes in memory, and never fail. `commit` hands all gathered changes
    to the operating system in one transaction: they survive the end of this process. `sync` waits until all committed
    changes are on the disk: they survive a crash of the machine.

    When `commit` raises, no change is lost: the next `commit` tries again. To withdraw a submission whose sender got an
    error, record `Removed` for its jobs, which drops them from the gathered changes. Do the same when `commit` has
    succeeded and `sync` has failed.

    All methods except `sync` must be called by the thread that opened the journal.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Used by `create` and `open`."""
        super().__init__(connection)
        self.path = path
        self._gathering = CommitGroup()
        self._waiting: list[CommitGroup] = []
        """Groups that are not committed yet, the oldest first."""
        self._closed = False
        self._written = 0
        """Number of waiting groups that are written to the open transaction."""
        self.ends_before = queries.last_end(connection)
        """Number of the last end of a job that earlier managers recorded."""
        self.last_end = self.ends_before
        """Number of the last committed end."""
        self.epoch = self._begin_epoch()
        """Number of managers that have opened this registry, including this one."""
        # SQLite keeps the WAL until the connection is closed, and locks only the main file: a second descriptor on the
        # WAL is safe, and lets another thread sync it without the connection.
        self._wal = os.open(f"{path}-wal", os.O_RDWR | os.O_CLOEXEC)
        self._wal_guard = threading.Lock()
        schema.sync_directory(path.parent)

    @classmethod
    def create(cls, path: Path) -> Journal:
        """Create an empty registry that only its owner can read."""
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
                with suppress(OSError):  # the first error is reported
                    Path(f"{path}{suffix}").unlink(missing_ok=True)
            raise

    @classmethod
    def open(cls, path: Path) -> Journal:
        """Open the registry of an earlier manager, however that manager ended."""
        try:
            check_own_directory(path.parent)
            check_own_files(path)
        except FileNotFoundError:
            raise JournalError(f"There is no registry at {path}; give the run directory of an earlier run.") from None
        except UnsafeFile as unsafe:
            raise JournalError(f"{unsafe.sentence}.") from None

        def prepare(connection: sqlite3.Connection) -> None:
            # SQLite opens files by name: another user may have replaced them since the first check.
            check_own_directory(path.parent)
            check_own_files(path)
            schema.check_format(connection, path)
            schema.complete_columns(connection)
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
            except UnicodeDecodeError as error:  # in a message of SQLite, which quotes the schema
                raise JournalError(f"The registry {path} could not be opened: its schema is damaged.") from error
            undo.pop_all()
            return journal

    def _begin_epoch(self) -> int:
        epoch = EPOCH.read(self._connection) + 1
        self._connection.execute(PUT_VALUE, (EPOCH.name, epoch))
        return epoch

    def record_transition(self, effect: Transition) -> None:
        """Like `record`, for the most frequent effect."""
        self._gathering.transition(effect)

    def record(self, effect: Effect) -> None:
        """Gather the changes of an effect; effects that do not change the registry are ignored."""
        if type(effect) is Removed:
            self._withdraw(effect.job.seq)
        elif type(effect) is Reran and not self._gathering.empty:
            # The end that is undone may be in the current group: it has to be written first.
            self._waiting.append(self._gathering)
            self._gathering = CommitGroup()
        gather = GATHER.get(type(effect))
        if gather is not None:
            gather(self._gathering, effect)

    def _withdraw(self, seq: int) -> None:
        """Drop a job from the gathered changes. Its end stays, unless its submission was never committed."""
        groups = (*self._waiting, self._gathering)
        withdrawn = any(seq in group.added for group in groups)
        if withdrawn and self._written:
            self._roll_back()  # ends are numbered without gaps: write the groups again, without this job
        for group in groups:
            group.withdraw(seq)
            if withdrawn:
                group.ends.pop(seq, None)

    def set_command(self, attempt: Attempt, command: str) -> None:
        """Gather the command line of an attempt."""
        self._gathering.set_command(attempt, command)

    def set_metadata(self, key: MetadataKey[T], value: T) -> None:
        self._gathering.meta[key.name] = key.encode(value)
        self._gathering.empty = False

    def set_acked(self, agent: str, number: int) -> None:
        """Gather that the effects of all records of this agent up to `number` are recorded."""
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
        """Wait until all committed changes are on the disk. The only method that another thread may call."""
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
        """Free the memory of SQLite's page cache."""
        with suppress(sqlite3.ProgrammingError):  # closed meanwhile
            self._connection.execute("PRAGMA shrink_memory")

    def close(self, *, commit: bool = True) -> None:
        """Commit unless disabled, and merge the WAL into the main file. A second call does nothing."""
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
        """The number of the last record of each agent whose effects are in the registry."""
        return queries.acked(self._current())

    def load(self) -> SavedRun:
        """Read the whole registry, for a manager that resumes."""
        from qcg.pilotjob.journal import saved_run  # here: new runs do not need it

        return saved_run.load(self._current())

    @property
    def has_uncommitted_ends(self) -> bool:
        return any(group.ends for group in (*self._waiting, self._gathering))

    def ends_after(self, number: int, limit: int) -> list[JobEnded]:
        """Return the next committed ends of jobs after this number.

        Clients never see an end that is not committed: after a crash it may get another number."""
        return queries.ends_between(self._connection, number, self.last_end, limit)

    def _current(self) -> sqlite3.Connection:
        """The connection, with all gathered changes written to it but not committed: only the caller decides which
        changes are committed together."""
        self._write()
        return self._connection

    def _write(self) -> None:
        if not self._gathering.empty:
            self._waiting.append(self._gathering)
            self._gathering = CommitGroup()
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
        except Exception as error:  # out of memory, or an unsupported value: half a group must not stay
            self._put_back(error)
            raise

    def _put_back(self, error: Exception) -> JournalError:
        self._roll_back()
        # Later changes join the newest group: a disk may be full for hours.
        self._gathering = self._waiting.pop()
        return JournalError(
            f"The registry {self.path} could not be written: {error}. Nothing is lost yet: it is tried again,"
            " so make room on the disk or mend what is wrong with it."
        )

    def _roll_back(self) -> None:
        """Roll back the transaction, so that the next commit begins with the oldest group again."""
        self._written = 0
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # SQLite has rolled it back itself
                self._connection.execute("ROLLBACK")


def _refuse_damage(connection: sqlite3.Connection, path: Path) -> None:
    """Raise JournalError for a damaged registry: without the damaged rows jobs could be lost, or run twice."""
    if not damage.is_damaged(connection, whole=True, thorough=True):
        return
    with contextlib.closing(damage.salvage(connection)) as copy:
        found = damage.in_words(damage.unreadable_of(copy))
    raise damaged(path, found or "pages of the metadata")


def damaged(path: Path, what: str) -> JournalError:
    """The error of a damaged registry, which no manager continues."""
    return JournalError(
        f"The registry {path} is damaged and cannot be continued: jobs might be lost, or run twice. Not readable:"
        f" {what}. `qcg-pm report {path.parent}` and `qcg-pm jobs --path {path.parent}` show what can still be read;"
        " restore the file from a backup, or start a new run for the jobs that have not succeeded."
    )


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
