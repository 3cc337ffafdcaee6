"""A file with a million rows: a manager accepts it at once, and its memory does not grow with it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.pilot import job
from tests.support.serving import served
from tests.support.waiting import wait_for

ROWS = 1_000_000


@pytest.mark.timed
@pytest.mark.parametrize(
    ("name", "header", "row"),
    [
        ("plain.csv", "T,p,seed\n", "{0},{0},{0}\n"),
        ("quoted.csv", "T,p,seed\r\n", '{0},"a, ""b""",{0}\r\n'),
        ("rows.jsonl", "", '{{"T": {0}, "p": [1, 2], "seed": "x{0}"}}\n'),
    ],
    ids=["plain", "quoted", "json"],
)
def test_a_million_rows_are_accepted_in_two_seconds_with_flat_memory(
    tmp_path: Path, name: str, header: str, row: str
) -> None:
    with (tmp_path / name).open("w", newline="") as file:
        file.write(header)
        file.writelines(row.format(number) for number in range(ROWS))
    with served(tmp_path, "--nodes", "1") as service:
        service.submit(job("first", "sleep", "600"))
        service.wait("first", "EXECUTING")
        before, computed = service.memory(), service.computed()
        service.forget_most_memory()
        sweep = job("sweep", "touch", "${row.T}", iteration={"file": name}, stdout="/dev/null", stderr="/dev/null")
        began = time.monotonic()
        service.submit(sweep)
        assert time.monotonic() - began < 2.0
        assert service.computed() - computed < 2.0
        assert service.data("jobInfo", jobNames=["sweep"])["jobs"]["sweep"]["data"]["iterations"]["total"] == ROWS
        last = service.data("jobInfo", jobNames=[f"sweep:{ROWS - 1}"])["jobs"][f"sweep:{ROWS - 1}"]["data"]
        assert str(last["itval"]["T"]) == str(ROWS - 1)
        service.data("cancelJob", jobNames=["first"])
        wait_for(lambda: (tmp_path / "200").exists(), what="the iteration with index 200")
        # A byte for each iteration, the records of those that have ended, and parts of the file.
        assert service.most_memory() < before + 20
        service.data("cancelJob", jobNames=["sweep"])
