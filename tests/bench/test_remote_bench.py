"""A tiny benchmark of remote hosts has all figures, and the bare loop does the same work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import remote
from bench.finding import BenchError, Setting
from tests.support.ssh_lab import running_lab, why_impossible


@pytest.fixture(scope="module")
def bench() -> Iterator[remote.Bench]:
    reason = why_impossible()
    if reason is not None:
        pytest.skip(reason)
    with running_lab() as lab:
        yield remote.Bench(lab, cores=2)


def test_a_tiny_run_gives_plausible_figures(bench: remote.Bench, tmp_path: Path):
    result = remote.measure(bench, Setting(directory=tmp_path, rounds=1, scale=0.002, parallel=2, peers=[]))
    found = {finding.name: finding for finding in result.findings}
    for name in (*remote.LOOPS.values(), *remote.OURS):
        assert 0.1 < found[f"remote: {name}"].value < 100_000
    for name in remote.OURS:
        assert 0 < found[f"remote: {name} / loop"].value < 2
    assert 1 <= found["remote: logins"].value <= 2
    assert 0 < found["remote: submission"].value < 60
    # A frame needs half a round trip from the host to the manager.
    assert remote.ROUND_TRIP * 500 - 1 <= found["remote: end"].value < 60_000
    assert result.missing == []


def test_jobs_have_the_same_files_as_in_the_bare_loop(bench: remote.Bench, monkeypatch: pytest.MonkeyPatch):
    made: list[set[str]] = []

    def record(tree: Path, count: int) -> None:
        tops = [tree / "log" / "job", tree / "work"]
        made.append({f"{remote.kind_of(path)} {path.relative_to(tree)}" for top in tops for path in top.rglob("*")})

    monkeypatch.setattr(remote, "check_files", record)
    bench.loop_rate(bench.fast, 3)
    bench.rate(bench.fast, 3)
    assert made[0] == made[1]
    assert "file log/job/1/job2/01/job.status" in made[0]
    assert "link log/job/1/job2/NN" in made[0]


def test_a_loop_that_leaves_out_a_file_is_refused(tmp_path: Path):
    attempt = tmp_path / "log" / "job" / "1" / "job0" / "01"
    attempt.mkdir(parents=True)
    (attempt.parent / "NN").symlink_to("01")
    (tmp_path / "work" / "1" / "job0").mkdir(parents=True)
    for name in ("job", "job.out", "job.err"):
        (attempt / name).touch()
    with pytest.raises(BenchError, match=r"has other files for job0: file log/job/1/job0/01/job\.status"):
        remote.check_files(tmp_path, 1)
    (attempt / "job.status").touch()
    remote.check_files(tmp_path, 1)
    for top in (tmp_path / "log" / "job", tmp_path / "work"):
        (top / "1" / "job0").rename(top / "1" / "job1")
    with pytest.raises(BenchError, match="has directories of 1 jobs, and 2 were run"):
        remote.check_files(tmp_path, 2)


def test_a_machine_without_support_for_the_hosts_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(remote, "why_impossible", lambda: "Hosts with SSH servers of their own need root.")
    result = remote.run(Setting(directory=tmp_path, rounds=1, scale=0.01, parallel=2, peers=[]))
    assert result.findings == []
    assert result.missing == ["remote: Hosts with SSH servers of their own need root."]
