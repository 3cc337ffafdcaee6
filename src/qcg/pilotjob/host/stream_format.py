"""The format of output streams: files that collect the output of many jobs.

A stream file is written by one process, append-only. It begins with `FILE_HEADER`; frames follow, each with a header of
`FRAME.size` bytes and a payload:

    OPEN      an attempt begins; the payload is JSON: its name, its id, the part and the time
    STDOUT    bytes that it wrote to its standard output
    STDERR    bytes that it wrote to its standard error
    END       everything is stored that its processes have written

Frames of different attempts alternate. All frames of one attempt have the same number, and each frame has the offset of
the frame before it of the same attempt, so that the output of an attempt can be read without the rest of the file.
Header and payload have checksums: a frame that was cut off by a crash, or lost its content with the node, is
recognised. An attempt has several parts when the process that wrote the first one was killed: each is in another file.

The index beside it has a record of fixed size for each OPEN frame and each END frame, written after the frame itself.
It can lack the last records, and is never needed to read a stream.
"""

import json
import struct
import zlib
from typing import Any, Dict, NamedTuple, Optional

SUFFIX = ".stream"
INDEX_SUFFIX = ".index"

FILE_HEADER = b"qcg-pm output stream 1".ljust(31) + b"\n"
FRAME = struct.Struct("<4sB3xIIQII")
"""Mark, kind, number of the attempt in this file, length of the payload, offset of the frame before it of the same
attempt (0: none), checksum of the payload, checksum of the header before this field."""
INDEX_RECORD = struct.Struct("<8sQQII")
"""Key of the name, offset of the OPEN frame, offset of the END frame (0 in the record of an OPEN frame), number of the
attempt in this file, checksum of the record before this field."""

MARK = b"\xa9qpS"
OPEN, STDOUT, STDERR, END = 1, 2, 3, 4
KINDS = {"stdout": STDOUT, "stderr": STDERR}
LONGEST_PAYLOAD = 1 << 20
"""Of a frame of any kind; longer ones are damaged."""
_CHECKED = FRAME.size - 4


class Frame(NamedTuple):
    """The header of a frame."""

    offset: int
    kind: int
    number: int
    length: int
    previous: int
    checksum: int

    @property
    def end(self) -> int:
        """The offset after its payload."""
        return self.offset + FRAME.size + self.length


def frame_header(kind: int, number: int, payload: bytes, previous: int) -> bytes:
    header = FRAME.pack(MARK, kind, number, len(payload), previous, zlib.crc32(payload), 0)
    return header[:_CHECKED] + struct.pack("<I", zlib.crc32(header[:_CHECKED]))


def parse_frame(data: bytes, at: int, offset: int) -> Optional[Frame]:
    """The header at position `at` of the data, which is at `offset` of the file; None when there is no whole one."""
    if len(data) - at < FRAME.size:
        return None
    mark, kind, number, length, previous, checksum, own = FRAME.unpack_from(data, at)
    if mark != MARK or own != zlib.crc32(data[at : at + _CHECKED]) or length > LONGEST_PAYLOAD:
        return None
    return Frame(offset, kind, number, length, previous, checksum)


class Opening(NamedTuple):
    """The payload of an OPEN frame."""

    name: str
    """Name of the job, with index and number of the attempt, as in the names of files for captured output."""
    id: str
    """Id of the attempt."""
    part: int
    """1, or more when another process has written the output before this part."""
    at: float
    """Seconds since the epoch."""

    def encoded(self) -> bytes:
        return json.dumps(self._asdict()).encode("ascii")


def parse_opening(payload: bytes) -> Optional[Opening]:
    """None for a payload of another format."""
    try:
        found: Dict[str, Any] = json.loads(payload.decode("ascii"))
        return Opening(str(found["name"]), str(found["id"]), int(found["part"]), float(found["at"]))
    except (ValueError, KeyError, TypeError):
        return None


def key_of(name: str) -> bytes:
    """The key of a name in an index."""
    import hashlib  # here: it takes time to load, and few agents keep streams

    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()[:8]


def index_record(key: bytes, opened: int, ended: int, number: int) -> bytes:
    record = INDEX_RECORD.pack(key, opened, ended, number, 0)
    return record[:-4] + struct.pack("<I", zlib.crc32(record[:-4]))


def file_name(node: str, pid: int, started: int) -> str:
    """The name of a stream file, without suffix: no other process of the run has the same."""
    safe = "".join([character if character.isalnum() or character in "-_." else "_" for character in node])
    return "%s.%d.%d" % (safe.lstrip(".") or "node", pid, started)
