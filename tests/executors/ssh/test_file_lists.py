"""Include lists for rsync."""

from __future__ import annotations

import pytest

from qcg.pilotjob.executors.ssh.file_lists import (
    earlier_log_rules,
    include_rules,
    is_below,
    log_rules,
    missing_patterns,
    without_parts,
)


def test_every_level_of_a_wanted_path_is_included_and_nothing_else():
    assert include_rules([("sims/1/sim", "result/*.dat")]) == [
        "--include=/sims/",
        "--include=/sims/1/",
        "--include=/sims/1/sim/",
        "--include=/sims/1/sim/result/",
        "--include=/sims/1/sim/result/*.dat",
        "--include=/sims/1/sim/result/*.dat/**",
        "--exclude=*",
    ]


def test_names_of_directories_are_no_patterns():
    assert "--include=/sims/1/a\\[1]/" in include_rules([("sims/1/a[1]", "out")])


def test_logs_of_several_attempts_are_one_list():
    assert log_rules(["1/remote-a/01", "1/remote-b/01"]) == [
        "--include=/1",
        "--include=/1/remote-a",
        "--include=/1/remote-a/01",
        "--include=/1/remote-a/01/**",
        "--include=/1/remote-b",
        "--include=/1/remote-b/01",
        "--include=/1/remote-b/01/**",
        "--exclude=/**",
    ]


@pytest.mark.parametrize(
    ("patterns", "missing"),
    [
        (["result"], []),
        (["result/*.dat"], []),
        (["result/*.txt"], ["result/*.txt"]),
        (["*.log", "result/"], ["*.log"]),
        (["result/a.dat/deeper"], ["result/a.dat/deeper"]),
    ],
)
def test_patterns_without_a_copied_file_are_missing(patterns: list[str], missing: list[str]):
    copied = ["work/", "work/1/sim/", "work/1/sim/result/", "work/1/sim/result/a.dat", "work/1/simulation.log"]
    assert missing_patterns("work/1/sim", patterns, copied) == missing


@pytest.mark.parametrize(("path", "below"), [("a/b", True), ("..", False), ("a/../../b", False), ("/a", False)])
def test_a_path_with_parent_directories_is_not_below_its_start(path: str, below: bool):
    assert is_below(path) is below


def test_logs_of_an_earlier_manager_are_looked_for_in_all_log_directories():
    assert earlier_log_rules(["1/a/01"]) == [
        "--include=/log.*/",
        "--include=/log.*/job/",
        "--include=/log.*/job/1",
        "--include=/log.*/job/1/a",
        "--include=/log.*/job/1/a/01",
        "--include=/log.*/job/1/a/01/**",
        "--exclude=*",
    ]


def test_a_directory_includes_its_files():
    pairs = [("/wd/model/a", "w/model/a"), ("/wd/model-b", "w/model-b"), ("/wd/model", "w/model"), ("/wd/x", "w/x")]
    kept = [("/wd/model", "w/model"), ("/wd/model-b", "w/model-b"), ("/wd/x", "w/x")]
    assert without_parts(pairs) == kept
    assert without_parts(pairs[::-1] + pairs) == kept


@pytest.mark.parametrize(
    ("first", "second", "target"),
    [(("/wd/a", "w/a"), ("/other/a", "w/a"), "w/a"), (("/other/m", "w/m"), ("/wd/m/a", "w/m/a"), "w/m/a")],
)
def test_two_sources_of_one_target_are_an_error(first, second, target):
    with pytest.raises(ValueError, match=f"would both arrive at {target}"):
        without_parts([first, second])
