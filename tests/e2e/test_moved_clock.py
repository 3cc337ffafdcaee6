"""`--time-limit` while the time of day is set: it is measured with a clock that does not jump."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.pilot import environment, job, start, write_requests
from tests.support.waiting import wait_for

MOVED_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* The time of day is so many seconds ahead as the file that MOVED_CLOCK names says, once it is there. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    const char *path = getenv("MOVED_CLOCK");
    if (clock == CLOCK_REALTIME && path) {
        FILE *file = fopen(path, "r");
        if (file) {
            long seconds = 0;
            if (fscanf(file, "%ld", &seconds) == 1) now->tv_sec += seconds;
            fclose(file);
        }
    }
    return result;
}
"""
HOURS = 5 * 3600

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (package gcc)")


@pytest.fixture(scope="module")
def moved_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("clock")
    (directory / "clock.c").write_text(MOVED_CLOCK)
    library = directory / "clock.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(library), str(directory / "clock.c"), "-ldl"], check=True, timeout=60
    )
    return library


def begin(wd: Path, library: Path, limit: str, *more: str) -> subprocess.Popen[str]:
    """A run whose job waits for the file `go`, and whose clock the file `moved` sets."""
    script = "touch started; until [ -e go ]; do sleep 0.05; done"
    write_requests(wd / "r.json", [job("a", "bash", "-c", script), job("b", "true", after="a", wt="10m")])
    moved = environment(LD_PRELOAD=str(library), MOVED_CLOCK=str(wd / "moved"))
    manager = start("qcg-pm", "run", "r.json", "--nodes", "1", "--time-limit", limit, *more, cwd=wd, env=moved)
    wait_for((wd / "started").exists, what="the job to start")
    return manager


def set_clock(wd: Path, seconds: int) -> None:
    (wd / "new").write_text(str(seconds))
    (wd / "new").replace(wd / "moved")


def test_a_clock_that_jumps_ahead_does_not_end_a_run(tmp_path: Path, moved_clock: Path):
    manager = begin(tmp_path, moved_clock, "1h")
    set_clock(tmp_path, HOURS)
    with pytest.raises(subprocess.TimeoutExpired):
        manager.wait(2)  # time for several checks of the clock
    (tmp_path / "go").touch()
    _, err = manager.communicate(timeout=60)
    assert manager.returncode == 0, err


def test_a_clock_that_jumps_back_does_not_extend_a_run(tmp_path: Path, moved_clock: Path):
    manager = begin(tmp_path, moved_clock, "14s", "--grace", "4")
    set_clock(tmp_path, -HOURS)
    _, err = manager.communicate(timeout=60)
    assert manager.returncode == 4, err
    assert "2 jobs are left, because the time of this manager is over. Continue with: " in err
