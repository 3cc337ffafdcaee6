"""Usage of jobs, counted by a job host. Python 3.6 reads this file."""

import unittest

from qcg.pilotjob.host.records import Usage
from qcg.pilotjob.host.usage import added, bytes_text
from tests.host.driver import SHELL, HostTest, own_peak, python

MIB = 1 << 20
BURN = "import time\nwhile time.process_time() < %s: pass\n"


class UsageTest(HostTest):
    def test_cpu_time_and_peak_memory_of_a_job_are_recorded(self):
        code = BURN % 0.3 + "block = bytearray(200 << 20)"
        usage = self.run_job(*python(code)).usage
        assert 0.3 <= usage.cpu < 3
        assert usage.user > 0
        assert 200 * MIB <= usage.memory << 10 <= max(400 * MIB, own_peak())
        assert usage.minor_faults > 200 * MIB // 4096 // 512  # with huge pages

    def test_a_job_that_fails_or_is_killed_is_counted_too(self):
        failed = self.run_job(*python(BURN % 0.2 + "raise SystemExit(3)"), id="failed")
        assert (failed.exit_code, failed.usage.cpu >= 0.2) == (3, True)
        killed = self.run_job(*python(BURN % 0.2 + "import os; os.kill(os.getpid(), 9)"), id="killed")
        assert (killed.exit_code, killed.usage.cpu >= 0.2) == (-9, True)

    def test_bytes_written_to_storage_are_recorded(self):
        code = "import os\nf = os.open('data', os.O_CREAT | os.O_WRONLY)\nos.write(f, bytes(1 << 20)); os.fsync(f)"
        usage = self.run_job(*python(code)).usage
        assert usage.written >= MIB or _is_in_memory(self.folder)

    def test_a_thousand_children_are_counted_whole(self):
        burn = "import time\nend = time.process_time() + 0.002\nwhile time.process_time() < end: pass\n"
        indented = burn.replace("\n", "\n        ")
        code = (
            "import os\nfor number in range(1000):\n    if os.fork() == 0:\n        "
            + indented
            + "os._exit(0)\nfor number in range(1000):\n    os.wait()"
        )
        usage = self.run_job(*python(code)).usage
        assert usage.cpu >= 2.0

    def test_orphans_are_counted_while_the_first_process_runs(self):
        burn = BURN % 0.3 + 'open("done", "w").close()'
        # The shell in parentheses ends at once, and its child becomes a child of the job host.
        script = '("$0" -S -c "$1" &); while [ ! -e done ]; do sleep 0.01; done; sleep 0.1'
        usage = self.run_job(SHELL, "-c", script, python("")[0], burn).usage
        assert usage.cpu >= 0.3

    def test_a_job_that_could_not_be_started_has_no_usage(self):
        assert self.run_job("/no/such/program").usage is None


class UsageValuesTest(unittest.TestCase):
    def test_everything_but_the_peak_is_a_sum(self):
        one, other = Usage(1, 2, 30, 4, 5, 6, 7), Usage(10, 20, 3, 40, 50, 60, 70)
        assert added(one, other) == Usage(11, 22, 30, 44, 55, 66, 77)
        assert added(one, None) == one

    def test_amounts_have_units(self):
        amounts = [0, 1023, 1024, 1536, 1 << 20, (1 << 30) - 1, 5 << 40]
        texts = ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "1.0 GiB", "5.0 TiB"]
        assert [bytes_text(amount) for amount in amounts] == texts


def _is_in_memory(folder):
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        mounts = [line.split(" - ") for line in file]
    found = [(m[0].split()[4], m[1].split()[0]) for m in mounts]
    inside = [(len(path), kind) for path, kind in found if folder == path or folder.startswith(path.rstrip("/") + "/")]
    return max(inside)[1] == "tmpfs"


if __name__ == "__main__":
    unittest.main()
