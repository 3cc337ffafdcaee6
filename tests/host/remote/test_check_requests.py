"""The requests of `qcg-pm hosts check` to the far side."""

from __future__ import annotations

from tests.host.remote.far_side import FarSide, launch


def test_a_run_directory_without_jobs_is_discarded(far: FarSide) -> None:
    (far.run_dir / "work/sent").write_text("a file that a check has copied")
    assert far.call("remote-tidy", discard=True)["discarded"]
    assert not far.run_dir.exists()
    assert far.home.joinpath("qcg-run").is_dir()


def test_a_run_directory_with_jobs_is_kept(far: FarSide) -> None:
    far.submit(launch("1", "true"))
    far.ended("1")
    assert not far.call("remote-tidy", discard=True)["discarded"]
    assert far.log.is_dir()


def test_missing_commands_of_the_batch_system_are_named(far: FarSide) -> None:
    queue = {"submit": ["sh", "{script}"], "list_jobs": ["no-such-list", "x"], "kill": ["no-such-kill"]}
    assert far.init()["missing"] == []
    assert far.init(batch=queue)["missing"] == ["no-such-kill", "no-such-list"]
    assert far.init(batch=None)["missing"] == []
