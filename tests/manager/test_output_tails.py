"""The last lines of output where a file system hangs: displays and the end of the manager do not wait for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from qcg.pilotjob.manager import output_tails
from qcg.pilotjob.manager.output_tails import MOST_HUNG, OutputTails
from qcg.pilotjob.report import tail
from tests.support.conversation import Conversation, talk
from tests.support.pilot import job
from tests.support.waiting import wait_for


class HangingFiles:
    """Files that hang until `go_on`, and the reads that have started."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.began: list[str] = []

    def last_lines(self, path: str, most: int = 0) -> list[str]:
        name = Path(path).name
        self.began.append(name)
        if name.startswith("hangs"):
            self.go_on.wait()
        return [f"the end of {name}"]


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingFiles]:
    found = HangingFiles()
    monkeypatch.setattr(tail, "last_lines", found.last_lines)
    yield found
    found.go_on.set()


async def until_read(tails: OutputTails, path: str) -> list[str]:
    while (found := await tails.read({"stderr": path})) is None:  # noqa: ASYNC110 the loop itself ends the read
        await asyncio.sleep(0.01)
    return found[1]


def test_a_read_that_hangs_is_given_up_shared_and_taken_up_when_it_ends(
    files: HangingFiles, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(output_tails, "PATIENCE", 0.2)

    async def test() -> None:
        tails = OutputTails()
        both = await asyncio.gather(*[tails.read({"stderr": "hangs"}) for _ in range(2)])
        assert both == [None, None]
        assert await tails.read({"stderr": "hangs"}) is None
        assert files.began == ["hangs"]
        monkeypatch.setattr(output_tails, "PATIENCE", 60.0)
        assert await tails.read({"stderr": "fine"}) == ("fine", ["the end of fine"])
        files.go_on.set()
        assert await until_read(tails, "hangs") == ["the end of hangs"]

    asyncio.run(test())


def test_only_a_few_reads_may_hang(files: HangingFiles, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(output_tails, "PATIENCE", 0.2)

    async def test() -> None:
        tails = OutputTails()
        for number in range(2 * MOST_HUNG):
            assert await tails.read({"stderr": f"hangs{number}"}) is None
        wait_for(lambda: len(files.began) == MOST_HUNG, what="the threads to begin")
        files.go_on.set()
        monkeypatch.setattr(output_tails, "PATIENCE", 60.0)
        assert await until_read(tails, "fine") == ["the end of fine"]
        assert len(files.began) <= MOST_HUNG + 1

    asyncio.run(test())


def test_a_job_without_output_files_needs_no_thread(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(output_tails, "call_in_thread", None)
    assert asyncio.run(OutputTails().read({"jobName": "a"})) == ("", [])


def test_where_no_thread_can_be_started_there_are_no_lines(monkeypatch: pytest.MonkeyPatch):
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def test() -> None:
        tails = OutputTails()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            assert await tails.read({"stderr": "/dev/null"}) is None
        assert await until_read(tails, "/dev/null") == []

    asyncio.run(test())


def test_displays_of_a_run_show_all_but_the_lines_that_hang(
    tmp_path: Path, files: HangingFiles, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(output_tails, "PATIENCE", 0.5)

    async def ask(service: Conversation) -> None:
        jobs = [
            job("hangs", "sh", "-c", "echo x >&2; exit 3", stderr="hangs.err"),
            job("fine", "sh", "-c", "echo x >&2; exit 4", stderr="fine.err"),
        ]
        await service.data("submit", jobs=jobs)
        for name in ("hangs", "fine"):
            await service.until(name, "FAILED")
        found = {group["example"]: group for group in (await service.data("summary"))["failed"]}
        assert set(found) == {"hangs", "fine"}
        assert found["hangs"]["last_lines"] == []
        reason = (await service.data("why", jobNames=["hangs"]))["jobs"]["hangs"]["data"]
        assert reason["sentence"] == "it failed: exit code 3"
        assert "lastLines" not in reason
        assert files.began.count("hangs.err") == 1
        files.go_on.set()
        monkeypatch.setattr(output_tails, "PATIENCE", 60.0)
        while not found["hangs"]["last_lines"]:
            await asyncio.sleep(0.01)
            found = {group["example"]: group for group in (await service.data("summary"))["failed"]}
        assert found["hangs"]["last_lines"] == ["the end of hangs.err"]
        assert found["fine"]["last_lines"] == ["the end of fine.err"]

    talk(tmp_path, ask)
