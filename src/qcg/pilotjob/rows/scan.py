"""Scans a parameter file once, and writes the index of its rows.

Most files have neither quotes nor empty lines: their lines are handled a block at a time. Every other block is handled
line by line.
"""

from __future__ import annotations

from itertools import accumulate, repeat
from operator import add
from typing import Protocol
from zlib import crc32

from qcg.pilotjob.rows.formats import BadRow, RowFormat
from qcg.pilotjob.rows.index import IndexWriter

LONGEST_ROW = 1 << 20
"""Bytes of a row: the values of the variables of one job may not be longer."""
MOST_PROBLEMS = 10
"""Problems after which the rest of a file is not checked."""
_UTF8_MARK = b"\xef\xbb\xbf"
"""The byte order mark with which spreadsheet programs begin a CSV file."""
_BLOCK = 1 << 18


class Source(Protocol):
    """A file that is read from its beginning to its end."""

    def read(self, size: int, /) -> bytes: ...


class Scan:
    """The scan of one file. After `run`, the names of its columns, and its problems with the lines they are about."""

    def __init__(self, form: RowFormat, index: IndexWriter) -> None:
        self.columns: tuple[str, ...] = ()
        self.problems: list[str] = []
        self.first = b""
        """The first row with values."""
        self._format = form
        self._index = index
        self._offset = 0
        self._line = 1
        """Number of the line at the offset."""
        self._given_up = False

    def run(self, file: Source) -> None:
        rest = file.read(len(_UTF8_MARK))
        if rest == _UTF8_MARK:
            self._offset, rest = len(_UTF8_MARK), b""
        while not self._given_up:
            block = file.read(_BLOCK)
            rest = self._scan(rest + block, is_last=not block)
            if len(rest) > LONGEST_ROW:
                self._report(f"the row is longer than {LONGEST_ROW} bytes; maybe a quote in it is not closed")
                self._given_up = True
            if not block:
                break

    def _scan(self, block: bytes, *, is_last: bool) -> bytes:
        """Scan the complete rows of a block; returns the rest."""
        end = len(block) if is_last else block.rfind(b"\n") + 1
        block, rest = block[:end], block[end:]
        if not block or not self._has_valid_characters(block):
            return b"" if self._given_up else rest
        if self.columns and self._format.has_header and (b'"' in block or b"\r" in block):
            block = block[self._scan_quoted(block) :]
            end = len(block)
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        if not lines:
            return rest
        if not self._are_plain(lines, block):
            return self._scan_lines(lines, is_last=is_last) + rest
        self.first = self.first or lines[0]
        lengths = list(map(len, lines))
        offsets = accumulate(map(add, lengths[:-1], repeat(1)), initial=self._offset)
        self._index.add(offsets, lengths, map(crc32, lines))
        self._offset += end
        self._line += len(lines)
        return rest

    def _scan_quoted(self, block: bytes) -> int:
        """Scan rows with quotes and carriage returns, up to the first one that needs a full check; returns its
        offset in the block."""
        rows = self._format.correct_rows(block, self.columns)
        if not rows or max([end - begin for begin, end in rows]) > LONGEST_ROW:
            return 0
        self.first = self.first or block[rows[0][0] : rows[0][1]]
        begins, ends = zip(*rows, strict=True)
        self._index.add(
            [self._offset + begin for begin in begins],
            [end - begin for begin, end in rows],
            [crc32(block[begin:end]) for begin, end in rows],
        )
        scanned = block.index(b"\n", ends[-1]) + 1
        self._advance(scanned, block.count(b"\n", 0, scanned))
        return scanned

    def _are_plain(self, lines: list[bytes], block: bytes) -> bool:
        """Whether each line is a correct row."""
        if not self.columns or b"" in lines or b"\r" in block or max(map(len, lines)) > LONGEST_ROW:
            return False
        special = b'"' if self._format.has_header else b"\\u0000"
        return special not in block and self._format.are_correct(lines, self.columns)

    def _has_valid_characters(self, block: bytes) -> bool:
        try:
            if not block.isascii():
                block.decode()
        except UnicodeDecodeError as error:
            line = self._line + block.count(b"\n", 0, error.start)
            byte = f"0x{block[error.start]:02x}"
            self._report(
                f"is not UTF-8 text: the byte {byte} is not valid; save the file with the encoding UTF-8", line
            )
            self._given_up = True
        if (nul := block.find(b"\0")) >= 0:
            self._report("holds a NUL character", self._line + block.count(b"\n", 0, nul))
            self._given_up = True
        return not self._given_up

    def _scan_lines(self, lines: list[bytes], *, is_last: bool) -> bytes:
        """Scan lines one after another; returns the lines of a row that continues in the next block."""
        begun: list[bytes] = []
        for line in lines:
            try:
                is_complete = self._format.closes(line) if begun else not self._format.opens(line)
            except BadRow as error:
                self._report_row(error)
                self._advance(len(line) + 1, 1)
                if self._given_up:
                    return b""
                continue
            begun.append(line)
            if is_complete:
                self._add(b"\n".join(begun), len(begun))
                begun = []
            if self._given_up:
                return b""
        if begun and is_last:
            self._report("a quote is not closed")
            return b""
        return b"\n".join(begun) + b"\n" if begun else b""

    def _add(self, row: bytes, lines: int) -> None:
        """Check a row and add it to the index; `lines`: how many lines it has."""
        content = row.removesuffix(b"\r")
        try:
            if len(content) > LONGEST_ROW:
                raise BadRow(f"the row is longer than {LONGEST_ROW} bytes")
            if content and not self.columns:
                self.columns = self._format.columns_of(content)
                if not self._format.has_header:
                    self._index.add([self._offset], [len(content)], [crc32(content)])
            elif content:
                self._format.check(content, self.columns)
                self.first = self.first or content
                self._index.add([self._offset], [len(content)], [crc32(content)])
        except BadRow as error:
            self._report_row(error)
        self._advance(len(row) + 1, lines)

    def _advance(self, size: int, lines: int) -> None:
        self._offset += size
        self._line += lines

    def _report_row(self, error: BadRow) -> None:
        self._report(str(error))
        # Without the names of columns, every other row would have a problem.
        self._given_up = self._given_up or not self.columns

    def _report(self, problem: str, line: int | None = None) -> None:
        self.problems.append(f"line {self._line if line is None else line}: {problem}")
        self._given_up = len(self.problems) >= MOST_PROBLEMS
