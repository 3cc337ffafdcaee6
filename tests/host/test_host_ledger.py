"""The ledger of a job host. Python 3.6 reads this file."""

import json
import os
import resource
import stat
import tempfile
import unittest
from unittest import mock

from qcg.pilotjob.host import ledger as ledger_module
from qcg.pilotjob.host import ledger_format
from qcg.pilotjob.host.ledger import Ledger, LedgerError, OpenStart
from qcg.pilotjob.host.process_tree import boot_id
from qcg.pilotjob.host.records import Ended, Running, Started, Usage

GRANT: list = [("n1", (0, 1), ("gpu0",))]


def opened(pid, marker="m"):
    return OpenStart(marker, pid, 1234.5678901, GRANT, 100, 101)


def ended(id, message=""):
    return Ended(id, 2345.25, 0, "exit", message, 7, 1234.5, GRANT)


class LedgerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "ledger")
        self.ledger = Ledger(self.path)
        self.addCleanup(lambda: self.ledger.close())

    def start(self, id, pid=7):
        assert self.ledger.starting(id, "m", GRANT)
        return self.ledger.started(id, opened(pid))

    def reopen(self):
        self.ledger.flush()
        os.close(self.ledger._fd)
        self.ledger = Ledger(self.path)
        return self.ledger

    def test_only_the_owner_can_read_a_ledger(self):
        assert stat.S_IMODE(os.stat(self.path).st_mode) == 384

    def test_record_numbers_start_at_one_and_continue_after_a_restart(self):
        assert self.start("a")[0] == 1
        assert self.ledger.ended(ended("a"))[0] == 2
        self.reopen()
        assert self.start("b")[0] == 3

    def test_a_restart_finds_unacknowledged_records_as_they_were(self):
        self.start("a")
        self.ledger.ended(ended("a", 'quotes " and\nlines and żółw'))
        self.ledger.flush()
        before = self.ledger.unacknowledged()
        assert before[0] == (1, Started("a", 7, 1234.5678901, GRANT))
        assert self.reopen().unacknowledged() == before

    def test_a_restart_finds_starts_without_end(self):
        self.start("a", 11)
        self.start("b", 12)
        self.ledger.ended(ended("b"))
        self.ledger.starting("c", "marker of c", [])
        found = self.reopen().open
        assert set(found) == {"a", "c"}
        assert found["a"] == opened(11)
        assert (found["c"].pid, found["c"].marker) == (0, "marker of c")

    def test_the_line_of_a_start_is_written_before_the_start(self):
        self.ledger.starting("a", "m", [])
        with open(self.path) as file:
            assert '["b","a","m",[]]\n' in file.read()

    def test_acknowledged_records_are_dropped_also_after_a_restart(self):
        self.start("a")
        self.ledger.ended(ended("a"))
        self.start("b")
        assert self.ledger.knows("a")
        self.ledger.acknowledge(2)
        assert not self.ledger.knows("a")
        self.ledger.sync()
        assert [number for number, _ in self.reopen().unacknowledged()] == [3]
        assert not self.ledger.knows("a")
        assert self.ledger.knows("b")

    def test_an_incomplete_last_line_is_ignored_and_later_lines_are_read(self):
        self.start("a")
        self.ledger.flush()
        with open(self.path, "a") as file:
            file.write('["e",2,"a",23')
        self.reopen()
        assert self.ledger.unreadable_lines == 1
        assert set(self.ledger.open) == {"a"}
        self.ledger.ended(ended("a"))
        assert self.reopen().open == {}
        assert self.ledger.last == 2

    def test_blocks_of_zeros_after_a_power_cut_are_ignored(self):
        self.start("a")
        self.ledger.flush()
        with open(self.path, "ab") as file:
            file.write(b"\0" * 512)
        assert set(self.reopen().open) == {"a"}

    def test_pids_from_before_a_boot_are_not_used(self):
        self.start("a", 11)
        self.ledger.flush()
        with mock.patch.object(ledger_module, "boot_id", return_value="another boot"):
            found = self.reopen().open["a"]
        assert (found.pid, found.since, found.until) == (11, 0, 0)

    def test_a_start_is_refused_while_the_disk_is_full_and_nothing_is_lost(self):
        self.start("a")
        self.ledger.flush()
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        # There is space for some bytes: the line is torn in the middle.
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(self.path) + 5, hard))
        try:
            self.ledger.ended(ended("a"))
            assert not self.ledger.starting("b", "m", [])
            assert "cannot be written" in self.ledger.write_error
            assert self.path in self.ledger.write_error
            assert not self.ledger.starting("c", "m", [])
            assert self.ledger.last == 2
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        self.ledger._next_sync = 0.0
        self.ledger.sync()
        assert self.ledger.write_error == ""
        assert self.ledger.starting("c", "m", [])
        self.reopen()
        assert self.ledger.unreadable_lines == 1, "the torn line, which was written again as a whole"
        assert [body for _, body in self.ledger.unacknowledged()][1] == ended("a")

    def test_a_start_that_was_refused_is_never_written(self):
        self.start("a")
        self.ledger.flush()
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        for room in (0, 5):
            size = os.path.getsize(self.path)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, hard))
            try:
                assert not self.ledger.starting("b", "m", [])
                assert not self.ledger.flush(), "the file is still full"
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            assert self.ledger.flush()
            assert self.ledger.write_error == ""
        assert self.ledger.starting("c", "m", [])
        assert set(self.reopen().open) == {"a", "c"}

    def test_an_end_that_was_written_without_a_number_gets_one_after_a_restart(self):
        self.start("a")
        self.ledger.flush()
        with open(self.path, "ab") as file:
            file.write(b'\n["x","a",7,1234.5,2345.25]\n["b","c","m",[["n1",[1],[]]]]\n')
        self.reopen()
        assert self.ledger.unacknowledged()[1:] == [(2, ended("a"))]
        assert {id: opened.grant for id, opened in self.ledger.open.items()} == {"c": [("n1", (1,), ())]}
        self.reopen()
        assert self.ledger.unacknowledged()[1:] == [(2, ended("a"))]

    def test_lines_of_earlier_versions_have_no_grants(self):
        with open(self.path, "ab") as file:
            file.write(b'["b","a","m"]\n["e",1,"a",2.0,0,"exit","",7,1.0]\n["b","c","m"]\n')
        self.reopen()
        assert self.ledger.unreadable_lines == 0
        assert self.ledger.unacknowledged() == [(1, Ended("a", 2.0, 0, "exit", "", 7, 1.0, []))]
        assert list(self.ledger.open) == ["c"]

    def test_the_header_has_the_version_of_the_format(self):
        with open(self.path, encoding="ascii") as file:
            header = next(line for line in file if line != "\n")
        assert json.loads(header) == ["h", boot_id(), ledger_format.VERSION]

    def test_a_ledger_without_a_version_in_its_header_is_read(self):
        grant = '[["n1",[0],[]]]'
        with open(self.path, "w", encoding="ascii") as file:
            file.write(f'\n["h","{boot_id()}"]\n["b","a","m",{grant}]\n["s",1,"a",7,5.0,{grant},1,2]\n')
        assert self.reopen().open["a"] == OpenStart("m", 7, 5.0, [("n1", (0,), ())], 1, 2)
        assert self.ledger.unreadable_lines == 0

    def test_a_ledger_of_a_later_version_is_refused(self):
        with open(self.path, "a", encoding="ascii") as file:
            file.write(f'\n["h","{boot_id()}",{ledger_format.VERSION + 1}]\n')
        with self.assertRaisesRegex(LedgerError, "later version of the program"):  # noqa: PT027
            Ledger(self.path)

    def test_the_line_of_a_success_is_read_as_it_is_written(self):
        used = Usage(1, 2, 3, 4, 5, 6, 7)
        line = ledger_format.SUCCEEDED % ('"a"', 7, 1.5, 2.25, *used)
        assert ledger_format.read_line(line.encode("ascii")) == ledger_format.Succeeded("a", 7, 1.5, 2.25, used)

    def test_the_usage_of_an_attempt_is_read_as_it_is_written(self):
        used = Usage(1_500_000, 20_000, 2048, 300, 4, 512, 1 << 40)
        for usage in (used, None):
            body = Ended("a", 2.0, 1, "exit", "why", 7, 1.0, [("n1", (0,), ())], usage)
            assert ledger_format.read_line(ledger_format.ended_line(9, body).encode("ascii")) == (9, body)

    def test_ends_of_ledgers_without_usage_are_read(self):
        grant = '[["n1",[0],[]]]'
        with open(self.path, "w", encoding="ascii") as file:
            file.write(f'\n["h","{boot_id()}",2]\n["e",1,"a",2.0,0,"exit","",7,1.0,{grant}]\n["x","b",8,1.0,2.0]\n')
        self.reopen()
        ends = [body for _, body in self.ledger.unacknowledged()]
        assert [(body.id, body.usage) for body in ends if isinstance(body, Ended)] == [("a", None), ("b", None)]
        assert self.ledger.unreadable_lines == 0

    def test_ends_without_numbers_get_them_in_their_order(self):
        with open(self.path, "ab") as file:
            file.write(b"".join(b'["b","%d","m",[]]\n["x","%d",7,1.0,2.0]\n' % (n, n) for n in range(3)))
        self.reopen()
        assert [body.id for _, body in self.ledger.unacknowledged()] == ["0", "1", "2"]

    def test_an_end_is_recorded_once_when_it_gets_its_number(self):
        self.start("a")
        self.ledger.flush()
        with open(self.path, "ab") as file:
            file.write(b'\n["x","a",7,1234.5,2345.25]\n')
        number, _ = self.ledger.ended(ended("a"))
        self.ledger.acknowledge(number)
        self.ledger.sync()
        assert self.reopen().unacknowledged() == []
        assert not self.ledger.knows("a")

    def test_a_long_ledger_shrinks_to_what_is_needed(self):
        self.start("old", 5)
        for number in range(200):
            self.start(f"job{number}")
            last, _ = self.ledger.ended(ended(f"job{number}"))
        self.start("new", 6)
        self.ledger.starting("unsure", "m", [])
        self.ledger.acknowledge(last)
        self.ledger._compact_above = 10000
        self.ledger._next_sync = 0.0
        self.ledger.sync()
        assert os.path.getsize(self.path) < 1000
        assert stat.S_IMODE(os.stat(self.path).st_mode) == 384
        self.ledger.ended(ended("new"))
        self.reopen()
        assert set(self.ledger.open) == {"old", "unsure"}
        assert self.ledger.open["old"] == opened(5)
        assert [number for number, _ in self.ledger.unacknowledged()] == [last + 1, last + 2]

    def test_records_that_are_not_in_the_file_are_not_sent(self):
        self.start("a")
        self.ledger.flush()
        assert [number for number, _ in self.ledger.unacknowledged()] == [1]
        self.ledger.ended(ended("a"))
        assert self.ledger.unreported() == []
        assert [number for number, _ in self.ledger.unacknowledged()] == [1]
        assert self.ledger.unstored_ends() == [Running("a", 7, 1234.5, GRANT)]
        self.ledger.flush()
        assert self.ledger.unreported() == [(2, ended("a"))]
        assert self.ledger.unreported() == []
        assert self.ledger.unstored_ends() == []

    def test_a_manager_that_has_seen_more_than_the_ledger_has_gets_higher_numbers(self):
        self.start("a")
        self.ledger.flush()
        self.reopen()
        self.ledger.ended(ended("a"))
        self.ledger.manager_has_seen(500)
        self.ledger.acknowledge(500)
        assert self.ledger.unreported() == []
        self.ledger.flush()
        assert self.ledger.unacknowledged() == [(501, ended("a"))]
        self.ledger._next_sync = 0.0
        self.ledger.sync()
        assert self.reopen().unacknowledged() == [(501, ended("a"))]
        assert self.start("b")[0] == 502

    def test_new_records_are_renumbered_above_the_last_number_that_the_manager_has_seen(self):
        self.start("a")
        self.start("b")
        self.reopen()
        for id in ("a", "b"):
            self.ledger.ended(ended(id))
        self.ledger.flush()
        self.ledger.manager_has_seen(3)
        assert [body.id for body in self.ledger.unstored_ends()] == ["a", "b"]
        self.ledger.flush()
        assert [number for number, _ in self.ledger.unacknowledged()] == [1, 2, 4, 5]
        self.ledger.manager_has_seen(5)
        assert [number for number, _ in self.reopen().unacknowledged()] == [1, 2, 4, 5]

    def test_a_ledger_that_cannot_be_opened_is_reported_in_one_sentence(self):
        message = ""
        try:
            Ledger("/no/such/ledger")
        except LedgerError as error:
            message = str(error)
        assert message == "The ledger /no/such/ledger cannot be opened: No such file or directory."
