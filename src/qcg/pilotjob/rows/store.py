"""The parameter files of a run: they are read once at submission, and a row at a time when iterations start."""

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
from qcg.pilotjob.rows.formats import FORMATS, BadRow, format_of
from qcg.pilotjob.rows.index import IndexReader, IndexWriter, RowPlace, digest_of
from qcg.pilotjob.rows.scan import MOST_PROBLEMS, Scan

DIRECTORY = "rows"
"""Name of the directory with indexes in a run directory."""
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
_WINDOW = 1 << 18
"""Bytes that are read at once: rows are mostly needed in order."""
_MOST_FILES = 8
"""Files of which a part stays in memory."""
_MOST_ROWS = 512
"""Rows that stay in memory: a row is needed at the start and again at the end of its iteration."""


class _Window(NamedTuple):
    """A part of a file, and the file status when it was read."""

    version: tuple[int, int, int]
    offset: int
    content: bytes


class RowFiles:
    """Reads parameter files. `row` is the `RowSource` of launches and views."""

    def __init__(self, root: str, indexes: str | None, *, builds: bool = False) -> None:
        """`root`: the directory that relative paths start at. `indexes`: the directory for indexes, in a run directory;
        None to only check files. `builds`: write indexes there; otherwise they are only read."""
        self._root = root
        self._indexes = indexes
        self._builds = builds and indexes is not None
        self._readers: dict[str, IndexReader] = {}
        self._windows: dict[str, _Window] = {}
        self._rows: dict[tuple[str, tuple[int, int, int], int], dict[str, Any]] = {}

    def read(self, path: str) -> RowFile | list[str]:
        """Scan a file and write its index. Returns what is known about it, or what is wrong with it as sentences."""
        full = os.path.normpath(os.path.join(self._root, path))
        form = format_of(path)
        path = one_line(path)
        if form is None:
            return [f"{path}: a file of parameters must be one of: {', '.join(f'*{ending}' for ending in FORMATS)}"]
        try:
            with _opened(full) as file, self._new_index() as index:
                writer = IndexWriter(index)
                scan = Scan(form, writer)
                before = _version(os.fstat(file.fileno()))
                scan.run(file)
                after = os.fstat(file.fileno())
                if _version(after) != before:
                    return [f"{path} has changed while it was read; submit the job again when it is complete"]
                if not scan.problems and not writer.rows:
                    scan.problems.append("there is no row in it" + (" after the names" if scan.columns else ""))
                if scan.problems:
                    return _sentences(path, scan.problems)
                digest = writer.finish()
                if index is not None:
                    index.flush()
                    os.replace(index.name, self._index_path(digest))
        except OSError as error:
            if error.errno in _CANNOT_WRITE:
                return [f"the index of {path} cannot be written to {self._indexes}: {error.strerror}"]
            where = "" if os.path.isabs(path) else f"; relative paths start at {self._root}"
            return [f"{path} cannot be read: {error.strerror}{where}"]
        return RowFile(full, writer.rows, scan.columns, digest, after.st_size, after.st_mtime_ns)

    def row(self, file: RowFile, position: int) -> dict[str, Any]:
        """The values of a row by name. Raises RowError when it is not as it was at submission."""
        version = self._current_version(file)
        key = file.digest, version, position
        known = self._rows.get(key)
        if known is not None:
            return known
        window = self._windows.get(file.path)
        place = self._place(file, position)
        if (
            window is None
            or window.version != version
            or not window.offset <= place.offset <= place.offset + place.length <= window.offset + len(window.content)
        ):
            window = self._load(file, version, place.offset, place.length)
        begin = place.offset - window.offset
        content = window.content[begin : begin + place.length]
        form = format_of(file.path)
        if form is None or len(content) != place.length or crc32(content) != place.checksum:
            raise RowError(f"row {position} of {file.path} has changed since the job was submitted")
        try:
            values = form.parse(content, file.columns)
        except BadRow as error:
            raise RowError(f"row {position} of {file.path}: {error}") from None
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

    def _current_version(self, file: RowFile) -> tuple[int, int, int]:
        try:
            return _version(os.stat(file.path))
        except OSError as error:
            raise RowError(f"{file.path}, which has its row, cannot be read: {error.strerror}") from None

    def _load(self, file: RowFile, version: tuple[int, int, int], offset: int, length: int) -> _Window:
        try:
            with _opened(file.path) as opened:
                content = os.pread(opened.fileno(), max(length, _WINDOW), offset)
        except OSError as error:
            raise RowError(f"{file.path}, which has its row, cannot be read: {error.strerror}") from None
        self._windows.pop(file.path, None)
        if len(self._windows) >= _MOST_FILES:
            del self._windows[next(iter(self._windows))]
        window = self._windows[file.path] = _Window(version, offset, content)
        return window

    def _place(self, file: RowFile, position: int) -> RowPlace:
        reader = self._readers.get(file.digest)
        try:
            if reader is None:
                reader = self._reader(file)
            return reader.place(position)
        except OSError as error:
            raise RowError(f"the index of {file.path} cannot be read: {error.strerror}") from None

    def _reader(self, file: RowFile) -> IndexReader:
        """A checked index; one that is missing or damaged is written again from the file, if that is unchanged."""
        path = self._index_path(file.digest)
        try:
            is_whole = digest_of(path) == file.digest
        except FileNotFoundError:
            is_whole = False
        if not is_whole:
            found = self.read(file.path) if self._builds else []
            if not isinstance(found, RowFile) or found.digest != file.digest:
                raise RowError(f"{file.path} has changed since the job was submitted, and its index is gone")
        if len(self._readers) >= _MOST_FILES:
            del self._readers[next(iter(self._readers))]
        reader = self._readers[file.digest] = IndexReader(path, file.rows)
        return reader

    def _index_path(self, digest: str) -> str:
        return os.path.join(self._indexes or "", f"{digest}.index")

    @contextlib.contextmanager
    def _new_index(self) -> Iterator[Any]:
        """A temporary file for an index, which is removed unless it is renamed; None where none are written."""
        if not self._builds or self._indexes is None:
            yield None
            return
        Path(self._indexes).mkdir(mode=0o700, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self._indexes, delete=False) as index:
            try:
                yield index
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(index.name)


def _sentences(path: str, problems: list[str]) -> list[str]:
    sentences = [f"{path}, {problem}" if problem.startswith("line ") else f"{path}: {problem}" for problem in problems]
    if len(problems) >= MOST_PROBLEMS:
        sentences.append(f"{path}: the rest was not checked")
    return sentences


def _version(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


@contextlib.contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """A regular file, opened without blocking: a named pipe could be read only once."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is no regular file")
        yield file
