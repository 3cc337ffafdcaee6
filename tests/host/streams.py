"""Reads stream files from end to end, frame by frame: slow, simple, and independent of any index."""

import glob
import os
import zlib
from typing import NamedTuple

from qcg.pilotjob.host.stream_format import END, FILE_HEADER, FRAME, OPEN, STDERR, STDOUT, parse_frame, parse_opening


class Stored(NamedTuple):
    name: str
    id: str
    part: int
    stdout: bytes
    stderr: bytes
    ends: int


def read_streams(directory):
    """Every part of every attempt in this directory, from complete frames."""
    return [found for path in sorted(glob.glob(os.path.join(directory, "*.stream"))) for found in read_stream(path)]


def read_stream(path):
    with open(path, "rb") as file:
        data = file.read()
    if len(data) < len(FILE_HEADER):
        return []
    assert data.startswith(FILE_HEADER)
    found = {}
    last: dict = {}
    offset = len(FILE_HEADER)
    while True:
        frame = parse_frame(data, offset, offset)
        if frame is None or frame.end > len(data):
            break
        payload = data[offset + FRAME.size : frame.end]
        assert zlib.crc32(payload) == frame.checksum
        if frame.kind == OPEN:
            opening = parse_opening(payload)
            assert opening is not None
            assert frame.previous == 0
            found[frame.number] = Stored(opening.name, opening.id, opening.part, b"", b"", 0)
        else:
            one = found[frame.number]
            assert frame.previous == last[frame.number]
            found[frame.number] = one._replace(
                stdout=one.stdout + (payload if frame.kind == STDOUT else b""),
                stderr=one.stderr + (payload if frame.kind == STDERR else b""),
                ends=one.ends + (frame.kind == END),
            )
        last[frame.number] = offset
        offset = frame.end
    return list(found.values())
