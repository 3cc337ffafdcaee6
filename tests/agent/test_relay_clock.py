"""Timeouts of the relay while the time of day is set back: they use a monotonic clock."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("qcg.pilotjob.agent._relay", reason="the relay was not compiled")

CLOCK_AHEAD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

/* An hour ahead of the clock of the kernel: for a wait until a time of day, as if the clock is set back meanwhile. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += 3600;
    return result;
}
"""

HELD_UP = r"""
import os
import subprocess
import time
from qcg.pilotjob.agent import _relay

_, wakeup = os.pipe()
reader, ledger = os.pipe()
os.set_blocking(ledger, False)
try:
    while True:
        os.write(ledger, b"x" * 4096)
except BlockingIOError:
    os.set_blocking(ledger, True)

_relay.open(wakeup, os.open(os.devnull, os.O_RDWR), 1, 1000, 0)
done = subprocess.Popen(["true"])
offer = (b'"b"', b"\n", b"/bin/true", [b"true"], [], b"/", None, None, None, False)
assert _relay.watch(1, done.pid, b'"a"', time.time(), -1, -1, ledger, [offer])
while _relay.enter_within(0.01):  # until the relay is writing to the ledger, which is full
    _relay.leave()
print("held up", flush=True)
os._exit(0)
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (package gcc)")
def test_a_wait_with_a_limit_ends_in_time_when_the_clock_is_set_back(tmp_path: Path):
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(CLOCK_AHEAD)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, timeout=60)
    ended = subprocess.run(
        [sys.executable, "-c", HELD_UP],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (ended.stdout, ended.stderr) == ("held up\n", "")
