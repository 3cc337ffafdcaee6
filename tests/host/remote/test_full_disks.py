"""Hosts whose disk or quota is full."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.host.remote import messages, status_file
from qcg.pilotjob.host.remote.claims import Claims, claimed_ids, read_claim
from qcg.pilotjob.host.remote.errors import CommandError
from qcg.pilotjob.host.remote.layout import Layout
from qcg.pilotjob.host.remote.messages import Messages
from qcg.pilotjob.host.remote.orders import Orders
from tests.host.remote import test_batch_jobs as batch
from tests.host.remote.far_side import INSTANCE, LOG, FarSide, alive, channel, launch, script, until
from tests.support.disks import fill, mounting
from tests.support.stub_queue import StubQueue

PAGE = 4096
"""The number of bytes that a small file system allocates at once: the last page of a file can be written on a full
disk."""


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    yield from mounting(tmp_path)


@pytest.fixture
def disk(mount: Callable[..., Path]) -> Path:
    return mount("disk", "size=1m,mode=700")


@pytest.fixture
def layout(disk: Path) -> Layout:
    layout = Layout(str(disk / "run"))
    layout.make()
    return layout


def almost_full_page(path: Path, line: str, room: int) -> None:
    """A file whose last page has room for a few bytes."""
    text = line + "\n"
    path.write_text(text + "\n" * (PAGE - room - len(text)))


def test_a_status_line_that_does_not_fit_is_an_error_and_leaves_no_part_of_a_value(disk: Path) -> None:
    path = disk / "job.status"
    almost_full_page(path, "ATTEMPT=1.1", len("\nJOB_ID=12"))
    fill(disk / "big")
    with pytest.raises(OSError, match="No space left"):
        status_file.append(str(disk), [("JOB_ID", "1234")])
    (disk / "big").unlink()
    status_file.append(str(disk), [("KILL", "cancel")])
    assert status_file.read(str(disk)) == {"ATTEMPT": "1.1", "KILL": "cancel"}


def test_a_torn_line_of_a_status_file_does_not_swallow_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "job.status").write_text("ATTEMPT=1.1\nMESSAGE=2018|tor")
    status_file.append(str(tmp_path), [("EXIT_CODE", 3), ("ENDED", "now")])
    status = status_file.read(str(tmp_path)) or {}
    assert (status["EXIT_CODE"], status["ENDED"]) == ("3", "now")


def test_an_order_that_does_not_fit_is_an_error_and_the_next_one_is_read(layout: Layout, disk: Path) -> None:
    orders = Orders(layout, "citadel")
    orders.give({"ids": ["1"]})
    path = Path(layout.of_host(".orders", "citadel"))
    almost_full_page(path, path.read_text(), 9)
    fill(disk / "big")
    with pytest.raises(CommandError, match="No space left"):
        orders.give({"ids": ["2"]})
    (disk / "big").unlink()
    orders.give({"ids": ["3"]})
    assert [order["ids"] for order in orders.take()] == [["1"], ["3"]]


def test_a_message_that_does_not_fit_is_an_error(layout: Layout, disk: Path) -> None:
    almost_full_page(Path(layout.messages), "", 9)
    fill(disk / "big")
    with pytest.raises(OSError, match="No space left"):
        messages.store(layout, "1.1", 1.0, "hello")
    (disk / "big").unlink()
    messages.store(layout, "1.1", 2.0, "again")
    assert [message[1:] for message in Messages(layout).unacknowledged()] == [["1.1", 2.0, "again"]]


def test_a_claim_that_does_not_fit_is_not_made(layout: Layout, disk: Path) -> None:
    own = Claims(layout, "wizard")
    fill(disk / "big")
    with pytest.raises(OSError, match="No space left"):
        own.make("1.1", "/somewhere", [])
    assert os.listdir(layout.claims) == []
    (disk / "big").unlink()
    assert own.make("1.1", "/somewhere", [])
    assert not own.make("1.1", "/elsewhere", [])
    claim = read_claim(layout, "1.1")
    assert claim is not None
    assert (claim.ledger, claim.directory) == ("wizard", "/somewhere")
    assert os.listdir(layout.claims) == ["1.1"]


def test_a_claim_has_its_content_as_soon_as_others_see_it(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    seen: list[list[str]] = []

    def write_a_little(descriptor: int, content: bytes) -> int:
        seen.append(claimed_ids(layout))
        return real(descriptor, content[:20])

    monkeypatch.setattr(os, "write", write_a_little)
    assert Claims(layout, "wizard").make("1.1", "/somewhere", [])
    assert len(seen) > 2
    assert ["1.1"] not in seen
    claim = read_claim(layout, "1.1")
    assert claim is not None
    assert claim.directory == "/somewhere"


def test_a_claim_is_made_on_a_file_system_without_hard_links(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*paths: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    own = Claims(layout, "wizard")
    assert own.make("1.1", "/somewhere", [])
    assert not own.make("1.1", "/elsewhere", [])
    assert os.listdir(layout.claims) == ["1.1"]


def test_a_claim_whose_answer_nfs_has_lost_is_made(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def link_and_repeat(source: str, target: str) -> None:
        real(source, target)
        real(source, target)

    monkeypatch.setattr(os, "link", link_and_repeat)
    own = Claims(layout, "wizard")
    assert own.make("1.1", "/somewhere", [])
    assert not own.make("1.1", "/elsewhere", [])


@pytest.fixture
def far(disk: Path) -> Iterator[FarSide]:
    """A host with a small home directory."""
    far = FarSide(disk)
    far.init()
    yield far
    (disk / "big").unlink(missing_ok=True)
    far.kill_everything()


def start_and_fill(far: FarSide) -> int:
    """Start a job, and fill the disk. Returns the pid of the job."""
    far.submit(launch("0", "true"), script("1", "echo $$ > pid; exec sleep 600"))
    path = far.run_dir / "work/1/job-1/pid"
    pid = int(until(lambda: path.exists() and path.read_text(), "the start of the job"))
    far.ended("0")
    fill(far.home / "big")
    return pid


def numbers(reports: dict[str, list[Any]]) -> list[int]:
    return [record[1] for record in reports.get("wizard", [])]


def test_a_job_on_a_full_disk_is_killed_through_a_new_channel(far: FarSide) -> None:
    pid = start_and_fill(far)
    before = far.epoch
    reply = far.init()
    assert reply["epoch"] == (before or 0) + 1
    assert reply["notices"] == []
    report = far.poll(acks={"wizard": 1})
    assert [running[0] for running in report["live"]] == ["1"]
    assert far.call("jobs-kill", ids=["1"], how="kill", reason="cancel", message="enough")["done"] == ["1"]
    until(lambda: not alive(pid), "the end of the job")
    (far.home / "big").unlink()
    assert far.ended("1")[0][2:4] == ["cancel", "enough"]


def test_a_new_manager_reaches_jobs_on_a_full_disk_and_learns_why_no_others_start(far: FarSide) -> None:
    start_and_fill(far)
    reply = far.init(log="log.20190418T025047Z", notify={"how": "messages"})
    (notice,) = reply["notices"]
    assert "No space left on device" in notice
    assert "can be watched and killed" in notice
    assert far.log.readlink() == Path(LOG)
    assert [running[0] for running in far.poll()["live"]] == ["1"]
    (far.home / "big").unlink()
    assert far.init(log="log.20190418T025047Z")["notices"] == []


def test_the_first_init_on_a_full_disk_fails_with_a_sentence(disk: Path) -> None:
    fill(disk / "big")
    reply, _ = FarSide(disk).raw_call("remote-init", instance=INSTANCE, uuid="u", log=LOG)
    assert not reply["ok"]
    assert "No space left on device" in reply["error"]


def test_an_acknowledgement_that_cannot_be_stored_is_stored_with_the_next_one(far: FarSide) -> None:
    with channel(far) as opened:
        opened.init()
        start_and_fill(far)
        assert numbers(opened.call("jobs-poll", acks={"wizard": 2}, full=True)["reports"])[:1] == [3]
        assert not (far.service / "wizard.acked").exists()
        (far.home / "big").unlink()
        opened.call("jobs-poll", acks={"wizard": 2}, full=False)
        assert (far.service / "wizard.acked").read_text() == "2\n"


def test_a_batch_job_on_a_full_disk_is_killed(disk: Path, tmp_path: Path) -> None:
    stub = StubQueue(tmp_path / "queue")
    host = batch.Host(disk / "run", stub)
    host.submit(batch.launch("a"), batch.launch("b"))
    status = host.directory("a") / "job.status"
    with status.open("a") as file:
        file.write("\n" * (PAGE - status.stat().st_size))
    fill(disk / "big")
    assert host.jobs.kill({"ids": ["a:1.1", "b:1.1"], "reason": "cancel", "message": ""}) == ["a:1.1", "b:1.1"]
    assert [job["state"] for job in stub.jobs()] == ["CANCELLED"] * 2
    (disk / "big").unlink()
    assert [ended.reason for ended in batch.ends(host.poll())] == ["cancel", "cancel"]
    host.jobs.close()


class FullDisk:
    """Makes writes to one file fail, and no others."""

    def __init__(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = True
        self._path = path
        self._write = os.write
        monkeypatch.setattr(os, "write", self._write_if_room)

    def _write_if_room(self, descriptor: int, content: bytes) -> int:
        if self.is_full and os.path.realpath(f"/proc/self/fd/{descriptor}") == os.path.realpath(self._path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._write(descriptor, content)


def test_a_batch_job_that_the_full_ledger_refused_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stub = StubQueue(tmp_path / "queue")
    host = batch.Host(tmp_path / "run", stub)
    host.poll()
    full = FullDisk(host.layout.of_host(".ledger", "batch"), monkeypatch)
    results = host.submit(batch.launch("a"), batch.launch("b"))
    assert ["No space left on device" in results[id]["error"] for id in ("a:1.1", "b:1.1")] == [True, True]
    assert claimed_ids(host.layout) == []
    full.is_full = False
    assert host.submit(batch.launch("c")) == {"c:1.1": "accepted"}, "the first launch after that finds the room"
    another = batch.Host(tmp_path / "run", stub)
    assert another.poll() == host.poll() == []
    assert [running.id for running in another.view.live()] == ["c:1.1"]
    assert len(stub.jobs()) == 1
    host.jobs.close()
    another.jobs.close()
