"""The parameter files of a run: they are copied once at submission, and read a row at a time when iterations start.

Rows are read from the copy in the run directory, so that a submitted job does not depend on later changes of the file.
The file itself is read only when the copy cannot be used, and for jobs of earlier versions, which kept no copies.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

from qcg.pilotjob.description.errors import one_line
from qcg.pilotjob.description.iteration import RowError, RowFile
from qcg.pilotjob.host.safe_open import open_own
from qcg.pilotjob.rows.copy_reader import CopyReader
from qcg.pilotjob.rows.formats import FORMATS, BadRow, format_of
from qcg.pilotjob.rows.index import IndexReader, IndexWriter, RowPlace, digest_of
from qcg.pilotjob.rows.scan import MOST_PROBLEMS, Scan

DIRECTORY = "rows"
"""Name of the directory with copies of files and their indexes in a run directory."""
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
_WINDOW = 1 << 18
"""Bytes that are read at once: rows are mostly needed in order."""
_MOST_FILES = 8
"""Files of which a part stays in memory."""
_MOST_ROWS = 512
"""Rows that stay in memory: a row is needed at the start and again at the end of its iteration."""


_Version = tuple[int, int, int]
"""File attributes that reveal a change or a replacement: inode, size and time of the last change."""


class _Window(NamedTuple):
    """A part of a file, and the file status when it was read."""

    version: _Version
    offset: int
    content: bytes


class RowFiles:
    """Reads parameter files. `row` is the `RowSource` of launches and views."""

    def __init__(self, root: str, kept: str | None, *, builds: bool = False) -> None:
        """`root`: the directory that relative paths start at. `kept`: the directory for copies and indexes, in a run
        directory; None to only check files. `builds`: write them there; otherwise they are only read."""
        self._root = root
        self._kept = kept
        self._builds = builds and kept is not None
        self._readers: dict[str, IndexReader] = {}
        self._windows: dict[str, _Window] = {}
        self._rows: dict[tuple[str, _Version, int], dict[str, Any]] = {}

    def read(self, path: str) -> RowFile | list[str]:
        """Scan a file, and keep a copy and an index of it. Returns its description, or its problems as sentences."""
        full = os.path.normpath(os.path.join(self._root, path))
        form = format_of(path)
        path = one_line(path)
        if form is None:
            return [f"{path}: a file of parameters must be one of: {', '.join(f'*{ending}' for ending in FORMATS)}"]
        content = ""
        try:
            with _opened(full) as file, self._new_file() as index, self._new_file() as copy:
                writer = IndexWriter(index)
                scan = Scan(form, writer)
                before = _version(os.fstat(file.fileno()))
                source = file if copy is None else CopyReader(file, copy)
                scan.run(source)
                after = os.fstat(file.fileno())
                if _version(after) != before:
                    return [f"{path} has changed while it was read; submit the job again when it is complete"]
                if not scan.problems and not writer.rows:
                    scan.problems.append("there is no row in it" + (" after the names" if scan.columns else ""))
                if scan.problems:
                    return _sentences(path, scan.problems)
                digest = writer.finish()
                if isinstance(source, CopyReader):
                    content = source.digest()
                    copy.flush()
                    # The index can be written again from the copy; the file of the user may be gone by then.
                    os.fdatasync(copy.fileno())
                    os.replace(copy.name, self._path_of(f"{content}.copy"))
                    index.flush()
                    os.replace(index.name, self._path_of(f"{digest}.index"))
        except OSError as error:
            if error.errno in _CANNOT_WRITE:
                return [f"the copy of {path} cannot be written to {self._kept}: {error.strerror}"]
            where = "" if os.path.isabs(path) else f"; relative paths start at {self._root}"
            return [f"{path} cannot be read: {error.strerror}{where}"]
        row = form.parse(scan.first, scan.columns) if form.has_header else {}
        padded = next((name for name, value in row.items() if isinstance(value, str) and value != value.strip()), "")
        return RowFile(
            full, writer.rows, scan.columns, digest, after.st_size, after.st_mtime_ns, content, padded=padded
        )

    def row(self, file: RowFile, position: int) -> dict[str, Any]:
        """The values of a row by name, as they were at submission. Raises RowError when they are not known any more."""
        place = self._place(file, position)
        if not file.content:
            return self._row(file, file.path, position, place)
        try:
            return self._row(file, self._copy_of(file), position, place)
        except RowError:
            return self._row(file, file.path, position, place)

    def has_copy(self, file: RowFile) -> bool:
        """Whether rows are read from a copy in the run directory."""
        return bool(file.content) and os.path.exists(self._copy_of(file))

    def differing(self, file: RowFile, other: RowFile) -> Iterator[int]:
        """Positions of rows that are not the same in another file, with as many rows. Raises RowError."""
        if file.columns != other.columns:
            yield from range(file.rows)
        elif file.digest != other.digest:
            try:
                yield from self._known_reader(file).differing(self._known_reader(other))
            except OSError as error:
                raise RowError(f"the index of {file.path} cannot be read: {error.strerror}") from None

    def _row(self, file: RowFile, path: str, position: int, place: RowPlace) -> dict[str, Any]:
        """A row from the copy of a file, or from the file itself."""
        version = _current_version(path)
        key = file.content or file.digest, version, position
        known = self._rows.get(key)
        if known is not None:
            return known
        window = self._windows.get(path)
        if (
            window is None
            or window.version != version
            or not window.offset <= place.offset <= place.offset + place.length <= window.offset + len(window.content)
        ):
            window = self._load(path, version, place, is_own=path != file.path)
        begin = place.offset - window.offset
        content = window.content[begin : begin + place.length]
        form = format_of(file.path)
        if form is None or len(content) != place.length or crc32(content) != place.checksum:
            raise RowError(
                f"row {position} of {path} has changed since the job was submitted; put the old row back, or give the"
                " job with the new rows to --rerun failed --from FILE"
            )
        try:
            values = form.parse(content, file.columns)
        except BadRow as error:
            raise RowError(f"row {position} of {path}: {error}") from None
        if len(self._rows) >= _MOST_ROWS:
            del self._rows[next(iter(self._rows))]
        self._rows[key] = values
        return values

    def change_of(self, file: RowFile) -> str:
        """A clause about a file that is not as it was at submission; empty when it is, as far as its status tells."""
        try:
            status = os.stat(file.path)
        except OSError as error:
            return f"{file.path} cannot be read: {error.strerror}"
        if (status.st_size, status.st_mtime_ns) != (file.size, file.modified):
            return f"{file.path} has changed"
        return ""

    def _load(self, path: str, version: _Version, place: RowPlace, *, is_own: bool) -> _Window:
        """Read a part of a file. `is_own`: whether it must belong to the caller, as all files of a run directory."""
        try:
            with _opened(path, is_own=is_own) as opened:
                content = os.pread(opened.fileno(), max(place.length, _WINDOW), place.offset)
        except OSError as error:
            raise RowError(_unreadable(path, error)) from None
        self._windows.pop(path, None)
        if len(self._windows) >= _MOST_FILES:
            del self._windows[next(iter(self._windows))]
        window = self._windows[path] = _Window(version, place.offset, content)
        return window

    def _place(self, file: RowFile, position: int) -> RowPlace:
        try:
            return self._known_reader(file).place(position)
        except OSError as error:
            raise RowError(f"the index of {file.path} cannot be read: {error.strerror}") from None

    def _known_reader(self, file: RowFile) -> IndexReader:
        return self._readers.get(file.digest) or self._reader(file)

    def _reader(self, file: RowFile) -> IndexReader:
        """A checked index; one that is missing or damaged is written again from the file, if that is unchanged."""
        path = self._path_of(f"{file.digest}.index")
        try:
            is_whole = digest_of(path) == file.digest
        except FileNotFoundError:
            is_whole = False
        if not is_whole and not (self._builds and self._is_written_again(file)):
            raise RowError(f"{file.path} has changed since the job was submitted, and its index is gone")
        if len(self._readers) >= _MOST_FILES:
            del self._readers[next(iter(self._readers))]
        reader = self._readers[file.digest] = IndexReader(path, file.rows)
        return reader

    def _is_written_again(self, file: RowFile) -> bool:
        """Whether the index could be written again, from the copy or else from the file."""
        form = format_of(file.path)
        if form is not None and file.content:
            copy = self._copy_of(file)
            with contextlib.suppress(OSError), _opened(copy, is_own=True) as source, self._new_file() as index:
                writer = IndexWriter(index)
                Scan(form, writer).run(source)
                if writer.finish() == file.digest:
                    index.flush()
                    os.replace(index.name, self._path_of(f"{file.digest}.index"))
                    return True
        found = self.read(file.path)
        return isinstance(found, RowFile) and found.digest == file.digest

    def _copy_of(self, file: RowFile) -> str:
        return self._path_of(f"{file.content}.copy")

    def _path_of(self, name: str) -> str:
        return os.path.join(self._kept or "", name)

    @contextlib.contextmanager
    def _new_file(self) -> Iterator[Any]:
        """A temporary file, which is removed unless it is renamed; None where nothing is kept."""
        if not self._builds or self._kept is None:
            yield None
            return
        Path(self._kept).mkdir(mode=0o700, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self._kept, delete=False) as file:
            try:
                yield file
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(file.name)


def _sentences(path: str, problems: list[str]) -> list[str]:
    sentences = [f"{path}, {problem}" if problem.startswith("line ") else f"{path}: {problem}" for problem in problems]
    if len(problems) >= MOST_PROBLEMS:
        sentences.append(f"{path}: the rest was not checked")
    return sentences


def _unreadable(path: str, error: OSError) -> str:
    return f"{path}, which has its row, cannot be read: {error.strerror}"


def _current_version(path: str) -> _Version:
    try:
        return _version(os.stat(path))
    except OSError as error:
        raise RowError(_unreadable(path, error)) from None


def _version(status: os.stat_result) -> _Version:
    return status.st_ino, status.st_size, status.st_mtime_ns


@contextlib.contextmanager
def _opened(path: str, *, is_own: bool = False) -> Iterator[BinaryIO]:
    """A regular file, opened without blocking: a named pipe could be read only once."""
    descriptor = open_own(path) if is_own else os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is no regular file")
        yield file
