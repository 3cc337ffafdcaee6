"""Status files, frames and ledgers as the far side reads and writes them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from qcg.pilotjob.host.ledger import Ledger, OpenStart
from qcg.pilotjob.host.records import Ended, EndReason, Usage
from qcg.pilotjob.host.remote import status_file
from qcg.pilotjob.host.remote.attempts import Attempt, AttemptLedger, Attempts
from qcg.pilotjob.host.remote.errors import CommandError
from qcg.pilotjob.host.remote.frames import FrameReader, read_frame, reply_frame, request_frame
from qcg.pilotjob.host.remote.layout import LEDGER_SUFFIX, Layout
from qcg.pilotjob.host.remote.ledger_view import LedgerView, to_json
from qcg.pilotjob.host.remote.logout import logout_notices
from qcg.pilotjob.host.remote.supervisor import AttemptSetup
from tests.support.ssh_executor import a_launch


def test_values_of_a_status_file_keep_newlines_and_backslashes(tmp_path: Path) -> None:
    lines = [("ATTEMPT", "1"), ("MESSAGE", "a\nb"), ("MESSAGE", "c\\n=d\r"), ("ENDED", "")]
    status_file.append(str(tmp_path), lines)
    assert (tmp_path / "job.status").read_text().count("\n") == 5
    assert status_file.read(str(tmp_path)) == {"ATTEMPT": "1", "MESSAGE": ["a\nb", "c\\n=d\r"], "ENDED": ""}


def test_a_status_file_has_the_usage_of_an_attempt(tmp_path: Path) -> None:
    usage = Usage(1_500_000, 20, 2048, 300, 4, 512, 0)
    ended = Ended("1", 2.0, 0, EndReason.EXIT, "", 7, 1.0, [], usage)
    status_file.append(str(tmp_path), status_file.end_lines(ended))
    assert status_file.read_usage(status_file.read(str(tmp_path)) or {}) == usage
    for damaged in ({}, {"USAGE": ""}, {"USAGE": "1 2"}, {"USAGE": "1 2 3 4 5 6 x"}):
        assert status_file.read_usage(damaged) is None


def test_a_torn_last_line_of_a_status_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "job.status").write_text("PID=12\nEXIT_CODE=1")
    assert status_file.read(str(tmp_path)) == {"PID": "12"}


def test_a_missing_status_file_is_no_error(tmp_path: Path) -> None:
    assert status_file.read(str(tmp_path / "nowhere")) is None


def test_times_are_iso_8601_in_utc() -> None:
    assert status_file.timestamp(1524019847.25) == "2018-04-18T02:50:47.250Z"


def test_frames_are_put_together_from_any_pieces() -> None:
    data = request_frame({"a": "ä"}, b"xyz") + request_frame({"b": 2})
    reader = FrameReader()
    frames = [frame for byte in data for frame in reader.feed(bytes([byte]))]
    assert frames == [({"a": "ä"}, b"xyz"), ({"b": 2}, b"")]
    assert FrameReader().feed(data) == frames


def test_one_frame_is_read_and_nothing_behind_it() -> None:
    reader, writer = os.pipe()
    os.write(writer, request_frame({"a": 1}, b"x" * 1000) + b"rest")
    assert read_frame(reader) == ({"a": 1}, b"x" * 1000)
    assert os.read(reader, 100) == b"rest"
    os.close(writer)
    assert read_frame(reader) is None
    os.close(reader)


@pytest.mark.parametrize(
    "data", [b"x 1\n", b"1\n", b"-1 0\n{}", b"9999999999999 0\n", b"x" * 100, b"3 0\nabc", b"2 0\n[]"]
)
def test_bytes_that_are_no_frame_are_refused_with_a_sentence(data: bytes) -> None:
    with pytest.raises(CommandError, match="The request is"):
        FrameReader().feed(data)


def test_names_that_are_not_utf_8_do_not_break_a_reply() -> None:
    assert reply_frame("0" * 32, {"error": "a\udc80b"}).endswith(b'{"error":"a?b"}')


def started(ledger: Ledger, id: str) -> None:
    assert ledger.starting(id, "marker", [("n", (0,), ())])
    ledger.started(id, OpenStart("marker", 7, 1.0, [("n", (0,), ())], 1, 2))


def ended(ledger: Ledger, id: str) -> None:
    ledger.ended(Ended(id, 2.0, 0, EndReason.EXIT, "", 7, 1.0, [("n", (0,), ())]))


def test_a_ledger_is_followed_while_it_is_written(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "ledger"))
    view = LedgerView(str(tmp_path / "ledger"))
    assert view.read() == []
    started(ledger, "1")
    ledger.flush()
    assert [number for number, _ in view.read()] == [1]
    assert list(view.open) == ["1"]
    ended(ledger, "1")
    started(ledger, "2")
    ledger.flush()
    new = view.read()
    assert [number for number, _ in new] == [2, 3]
    assert [record[:2] for record in to_json(new)] == [["e", 2], ["s", 3]]
    assert view.ended == {"1"}
    assert view.acknowledge(2) == ["1"]
    assert [number for number, _ in view.kept] == [3]
    ledger.close()


def test_a_ledger_that_was_compacted_is_read_again_without_repetitions(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger")
    ledger = Ledger(path)
    view = LedgerView(path)
    for number in range(5):
        started(ledger, str(number))
    for number in range(4):
        ended(ledger, str(number))
    ledger.flush()
    assert len(view.read()) == 9
    ledger.acknowledge(7)
    ledger._compact()
    ended(ledger, "4")
    ledger.flush()
    assert [(number, body.id) for number, body in view.read()] == [(10, "4")]
    assert view.acknowledge(7) == []
    assert view.open == {}
    ledger.close()


def test_a_line_that_is_being_written_is_read_later(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(str(path))
    ended(ledger, "1")
    ledger.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    view = LedgerView(str(path))
    assert view.read() == []
    with path.open("ab") as file:
        file.write(whole[-5:])
    assert [body.id for _, body in view.read()] == ["1"]


def with_hole(path: Path, id: str, filler: bytes) -> bytes:
    """A ledger in which `filler` replaces the line of the end of this attempt. Returns the whole content."""
    whole = path.read_bytes()
    (line,) = [line for line in whole.split(b"\n") if line.startswith(b'["e"') and b'"%s"' % id.encode() in line]
    path.write_bytes(whole.replace(line, (filler * len(line))[: len(line)]))
    return whole


@pytest.mark.parametrize("filler", [b"\0", b"x\n"])
def test_a_record_that_a_network_file_system_shows_later_is_not_skipped(tmp_path: Path, filler: bytes) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(str(path))
    at = time.time() - 600  # the command that found these ends ran later
    for id in ("1", "2", "3"):
        ledger.ended(Ended(id, at, 0, EndReason.EXIT, "", 7, at, []))
    ledger.flush()
    whole = with_hole(path, "2", filler)
    view = LedgerView(str(path))
    assert [number for number, _ in view.read()] == [1]
    assert view.read() == []
    path.write_bytes(whole)
    assert [(number, body.id) for number, body in view.read()] == [(2, "2"), (3, "3")]
    ledger.close()


def test_a_record_that_is_lost_for_good_does_not_hide_later_ones(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(str(path))
    at = time.time()
    for id in ("1", "2", "3"):
        ledger.ended(Ended(id, at, 0, EndReason.EXIT, "", 7, at, []))
    ledger.close()
    with_hole(path, "2", b"\0")
    view = LedgerView(str(path))
    assert [number for number, _ in view.read()] == [1]
    os.utime(path, (at - 1000, at - 1000))
    assert [number for number, _ in view.read()] == [3]


def test_a_channel_waits_for_a_hole_in_a_busy_ledger_for_some_time_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(str(path))
    at = time.time()
    for id in ("1", "2", "3"):
        ledger.ended(Ended(id, at, 0, EndReason.EXIT, "", 7, at, []))
    ledger.close()
    with_hole(path, "2", b"\0")
    view = LedgerView(str(path))
    assert [number for number, _ in view.read()] == [1]
    later = time.monotonic() + 121
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert [number for number, _ in view.read()] == [3]


def test_records_after_a_line_that_was_cut_off_and_written_again_are_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(str(path))
    ended(ledger, "1")
    ledger.close()
    with path.open("a") as file:
        file.write('["e",2,"2",17')
    view = LedgerView(str(path))
    assert [number for number, _ in view.read()] == [1]
    ledger = Ledger(str(path))
    assert view.read() == []
    now = time.time()
    ledger.ended(Ended("2", now, 0, EndReason.EXIT, "", 7, now, []))
    ledger.flush()
    assert [(number, body.id) for number, body in view.read()] == [(2, "2")]
    ledger.close()


def test_numbers_that_were_left_out_on_purpose_are_no_hole(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(str(path))
    ended(ledger, "1")
    ledger.close()
    with path.open("a") as file:
        file.write("\0\0\0\n")
    ledger = Ledger(str(path))
    ledger.manager_has_seen(1000)
    now = time.time()
    ledger.ended(Ended("2", now, 0, EndReason.EXIT, "", 7, now, []))
    ledger.flush()
    assert [number for number, _ in LedgerView(str(path)).read()] == [1, 1001]
    ledger.close()


def logind(root: Path, text: str, directory: str = "etc/systemd") -> None:
    (root / "run/systemd/users").mkdir(parents=True, exist_ok=True)
    (root / directory).mkdir(parents=True, exist_ok=True)
    (root / directory / "logind.conf").write_text(text)


@pytest.mark.parametrize(
    ("settings", "is_told"),
    [
        ("", False),
        ("[Login]\n#KillUserProcesses=yes\n", False),
        ("[Login]\nKillUserProcesses=no\n", False),
        ("[Login]\nKillUserProcesses=yes\n", True),
        ("[Login]\nKillUserProcesses = on\nKillExcludeUsers=root hobo\n", False),
        ("[Login]\nKillUserProcesses=yes\nKillOnlyUsers=boss\n", False),
        ("[Login]\nKillUserProcesses=yes\nKillOnlyUsers=boss hobo\n", True),
    ],
)
def test_hosts_that_end_processes_at_logout_are_recognised(tmp_path: Path, settings: str, is_told: bool) -> None:
    logind(tmp_path, settings)
    notices = logout_notices(str(tmp_path), "hobo")
    assert bool(notices) is is_told
    assert all("loginctl enable-linger hobo" in notice for notice in notices)


def test_later_settings_of_logind_replace_earlier_ones(tmp_path: Path) -> None:
    logind(tmp_path, "KillUserProcesses=yes\n", "usr/lib/systemd")
    assert logout_notices(str(tmp_path), "hobo")
    folder = tmp_path / "etc/systemd/logind.conf.d"
    folder.mkdir(parents=True)
    (folder / "10-site.conf").write_text("[Login]\nKillUserProcesses=no\n")
    assert logout_notices(str(tmp_path), "hobo") == []


def test_a_user_who_lingers_keeps_processes_after_logout(tmp_path: Path) -> None:
    logind(tmp_path, "KillUserProcesses=yes\n")
    (tmp_path / "var/lib/systemd/linger").mkdir(parents=True)
    (tmp_path / "var/lib/systemd/linger/hobo").touch()
    assert logout_notices(str(tmp_path), "hobo") == []


def test_a_host_without_logind_ends_nothing_at_logout(tmp_path: Path) -> None:
    (tmp_path / "etc/systemd").mkdir(parents=True)
    (tmp_path / "etc/systemd/logind.conf").write_text("KillUserProcesses=yes\n")
    assert logout_notices(str(tmp_path), "hobo") == []


def test_an_attempt_that_waited_for_capacity_keeps_its_directory(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path / "run"))
    layout.make()
    ledger = AttemptLedger(layout.of_host(LEDGER_SUFFIX), layout, print)
    setup = AttemptSetup(ledger, Attempts(layout, "run", "far"))
    for seq in (1, 2):
        ledger.attempts[f"{seq}.1"] = Attempt(str(tmp_path / f"job{seq}" / "01"), 1.0)
    for seq in (1, 1, 2):
        made = setup.prepare(a_launch(seq))
        assert made.stdout == str(tmp_path / f"job{seq}" / "01" / "job.out")
    ledger.close()
    assert sorted(os.listdir(tmp_path / "job1")) == sorted(os.listdir(tmp_path / "job2")) == ["01", "NN"]
