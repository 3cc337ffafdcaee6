"""The far side as one file, and with the oldest Python of this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host.remote.far_side import FarSide, build_zipapp, channel, launch, script
from tests.host.test_host_pythons import interpreters


@pytest.fixture(params=["this", "old"])
def zipapp_host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FarSide]:
    python = sys.executable
    if request.param == "old":
        old = interpreters()
        if not old:
            pytest.skip("this machine has no old Python")
        python = old[0]
    far = FarSide(tmp_path, command=[python, str(build_zipapp(tmp_path / "far.pyz"))], source="")
    yield far
    far.kill_everything()


def test_the_whole_life_of_jobs_from_one_file(zipapp_host: FarSide) -> None:
    far = zipapp_host
    assert far.init()["epoch"] == 1
    far.submit(script("1", "$QCG_PM_REMOTE message $QCG_PM_REMOTE_RUN hello; exit 3"), launch("2", "sleep", "1000"))
    assert far.ended("1")[0][1:3] == [3, "exit"]
    assert [message[3] for message in far.poll()["messages"]] == ["hello"]
    with channel(far) as open_channel:
        open_channel.init()
        report = open_channel.call("jobs-poll", acks={}, full=True)
        assert [running[0] for running in report["live"]] == ["2"]
        open_channel.call("jobs-kill", ids=["2"], how="kill", reason="cancel", message="")
        open_channel.until(lambda: "2" in open_channel.ends(), "the end of the killed job")
    reply, rest = far.raw_call("cat-log", directory="1/job-1/NN", mode="cat", file="job.status")
    assert reply["ok"]
    assert b"EXIT_CODE=3\n" in rest
    assert far.call("remote-tidy", remove=True)["removed"] is True
