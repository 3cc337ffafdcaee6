"""`qcg-pm bench` on full disks: it reports the error in one sentence, and leaves nothing behind."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.disks import fill, mounting
from tests.support.pilot import run, start
from tests.support.processes import descendants


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    yield from mounting(tmp_path)


@pytest.mark.parametrize("size", ["16k", "40k", "800k"])
def test_a_disk_that_fills_up_ends_the_measurement_with_one_sentence(mount: Callable[..., Path], size: str):
    disk, before = mount("disk", f"size={size}"), descendants()
    done = run("qcg-pm", "bench", "--nodes", "2", "--seconds", "30", "--wd", disk, timeout=100)
    assert done.returncode == 2, done
    told = done.stderr.splitlines()[-1]
    assert told.startswith(f"Error: the pilot that was measured could not write in {disk}: "), done.stderr
    assert told.endswith("; measure in another directory with --wd, or for fewer --seconds")
    assert "tried again" not in done.stderr
    assert done.stdout == ""
    assert list(disk.iterdir()) == []
    assert descendants() <= before


def test_a_disk_that_is_suddenly_full_ends_the_measurement_with_one_sentence(mount: Callable[..., Path]):
    disk, before = mount("disk", "size=20m"), descendants()
    with start("qcg-pm", "bench", "--nodes", "2", "--seconds", "60", "--wd", disk) as process:
        assert process.stderr is not None
        assert any(line.startswith("running") for line in process.stderr)
        fill(disk / "hog")
        told = process.stderr.read()
        assert process.wait() == 2
    assert told.startswith(f"Error: the pilot that was measured could not write in {disk}: ")
    assert descendants() <= before
    assert [path.name for path in disk.iterdir()] == ["hog"]


def test_jobs_whose_files_cannot_be_made_are_not_measured(mount: Callable[..., Path]):
    disk, before = mount("disk", "size=50m,nr_inodes=150"), descendants()
    done = run("qcg-pm", "bench", "--nodes", "2", "--seconds", "1", "--wd", disk, timeout=100)
    assert done.returncode == 2, done
    assert done.stderr.splitlines()[-1].startswith(f"Error: the pilot that was measured could not write in {disk}: ")
    assert "No space left on device" in done.stderr
    assert done.stdout == ""
    assert list(disk.iterdir()) == []
    assert descendants() <= before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_on_a_full_disk_leaves_neither_an_agent_nor_files(mount: Callable[..., Path], number: signal.Signals):
    disk, before = mount("disk", "size=20m"), descendants()
    with start("qcg-pm", "bench", "--nodes", "2", "--seconds", "60", "--wd", disk) as process:
        assert process.stderr is not None
        assert any(line.startswith("running") for line in process.stderr)
        fill(disk / "hog")
        process.send_signal(number)
        process.stderr.read()
        assert process.wait() == 128 + number
    assert descendants() <= before
    assert [path.name for path in disk.iterdir()] == ["hog"]
