"""The service when something is not as it should be."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from qcg.pilotjob import service
from qcg.pilotjob.options import Options, UsageError
from qcg.pilotjob.service import Service


def test_a_contact_file_that_cannot_be_written_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def no_room(*given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def begin() -> None:
        await Service(Options(wd=str(tmp_path), nodes="1")).run()

    monkeypatch.setattr(service, "announce", no_room)
    with pytest.raises(UsageError, match="cannot be written: No space left on device; make room, and try again"):
        asyncio.run(begin())
