"""The frames between a manager and the sub-commands of a host: JSON with an optional payload of bytes.

    near -> far     JSONLEN PAYLOADLEN newline JSON payload
    far  -> near    MARKER JSONLEN PAYLOADLEN newline JSON payload

MARKER is a random text of 32 hexadecimal digits that the first request names. The manager skips everything before it,
so banners and the output of login scripts do no harm. Processes on one host use frames without a marker.
"""

import json
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional

from qcg.pilotjob.host.remote.errors import CommandError

MOST_BYTES = 1 << 30
"""Size of the largest frame that is read."""
LONGEST_HEADER = 64
_PART = 1 << 18
_MARKER = re.compile(r"[0-9a-f]{32}\Z")


class Frame(NamedTuple):
    head: Dict[str, Any]
    payload: bytes


def request_frame(head: Dict[str, Any], payload: bytes = b"") -> bytes:
    text = _encoded(head)
    return b"%d %d\n%b%b" % (len(text), len(payload), text, payload)


def reply_frame(marker: str, head: Dict[str, Any], payload: bytes = b"") -> bytes:
    text = _encoded(head)
    return b"%b %d %d\n%b%b" % (marker.encode("ascii"), len(text), len(payload), text, payload)


def marker_of(request: Dict[str, Any]) -> str:
    """The marker that a request names. Raises CommandError when there is none."""
    marker = request.get("marker")
    if not isinstance(marker, str) or _MARKER.match(marker) is None:
        raise CommandError("The request names no marker of 32 hexadecimal digits.")
    return marker


class FrameReader:
    """Collects bytes and takes frames without a marker from them."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> List[Frame]:
        """The frames that are complete with this data. Raises CommandError for bytes that are no frame."""
        self._buffer += data
        frames: List[Frame] = []
        while True:
            frame = self._take()
            if frame is None:
                return frames
            frames.append(frame)

    def missing(self) -> int:
        """How many bytes the frame at the front still needs; a guess as long as its header is not complete."""
        sizes = self._sizes()
        return 1 if sizes is None else max(sum(sizes) - len(self._buffer), 1)

    def _sizes(self) -> "Optional[List[int]]":
        """The lengths of header, JSON and payload of the first frame."""
        end = self._buffer.find(b"\n", 0, LONGEST_HEADER)
        if end < 0:
            if len(self._buffer) >= LONGEST_HEADER:
                raise CommandError("The request is no frame: its first line has no lengths.")
            return None
        try:
            json_length, payload_length = map(int, self._buffer[:end].split())
        except ValueError:
            raise CommandError("The request is no frame: its first line has no lengths.") from None
        if not 0 < json_length <= MOST_BYTES or not 0 <= payload_length <= MOST_BYTES:
            raise CommandError("The request is larger than the %d MiB that are read." % (MOST_BYTES >> 20))
        return [end + 1, json_length, payload_length]

    def _take(self) -> Optional[Frame]:
        sizes = self._sizes()
        if sizes is None or len(self._buffer) < sum(sizes):
            return None
        header, json_length, payload_length = sizes
        text = bytes(self._buffer[header : header + json_length])
        payload = bytes(self._buffer[header + json_length : header + json_length + payload_length])
        del self._buffer[: sum(sizes)]
        try:
            head = json.loads(text.decode("utf-8"))
        except ValueError as error:
            raise CommandError("The request is no JSON: %s." % error) from None
        if not isinstance(head, dict):
            raise CommandError("The request is no JSON object.")
        return Frame(head, payload)


def read_frame(descriptor: int) -> Optional[Frame]:
    """Read one frame and nothing after it; None when there is none. Raises CommandError."""
    reader = FrameReader()
    while True:
        # Up to the end of the header byte by byte: the bytes behind the frame belong to another reader.
        data = os.read(descriptor, min(reader.missing(), _PART))
        if not data:
            return None
        frames = reader.feed(data)
        if frames:
            return frames[0]


def _encoded(head: Dict[str, Any]) -> bytes:
    # Bytes that are not UTF-8, as in names of files, cannot be read by the peer and become question marks.
    return json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
