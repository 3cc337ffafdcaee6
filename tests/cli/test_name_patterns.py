"""Patterns and ranges in job names."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from qcg.pilotjob.cli.name_patterns import NoSuchName, expand

JOBS: dict[str, range | None] = {
    "sim1": None,
    "sim2": None,
    "other": None,
    "its": range(10),
    "from5": range(5, 8),
    "even": range(0, 10, 2),
    "below": range(-3, 2),
}


class Book:
    def __init__(self) -> None:
        self.asked = 0

    def matching(self, pattern: str) -> list[str]:
        self.asked += 1
        return [name for name in JOBS if fnmatchcase(name, pattern)]

    def indices(self, job: str) -> range | None:
        self.asked += 1
        if job not in JOBS:
            raise NoSuchName(f"there is no job {job!r}")
        return JOBS[job]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("sim1", "sim1"),
        ("nobody", "nobody"),
        ("its:3", "its:3"),
        ("its:x", "its:x"),
        (f"its:0-{'9' * 5000}", f"its:0-{'9' * 5000}"),
        ("sim*", "sim1 sim2"),
        ("sim?", "sim1 sim2"),
        ("[so]*[r2]", "sim2 other"),
        ("* sim1", "sim1 sim2 other its from5 even below"),
        ("sim2 sim* sim2", "sim2 sim1"),
        ("its:3-5", "its:3 its:4 its:5"),
        ("its:8-99", "its:8 its:9"),
        ("its:1,4,7-8", "its:1 its:4 its:7 its:8"),
        ("from5:0-6", "from5:5 from5:6"),
        ("even:1-5", "even:2 even:4"),
        ("even:*", "even:0 even:2 even:4 even:6 even:8"),
        ("below:-2-0", "below:-2 below:-1 below:0"),
        ("below:-3--2", "below:-3 below:-2"),
        ("f*:*", "from5:5 from5:6 from5:7"),
        ("its:7-8 from5:7-8 even:7-8", "its:7 its:8 from5:7 even:8"),
    ],
)
def test_names_and_patterns_match(wanted: str, names: str):
    assert list(expand(wanted.split(), Book())) == names.split()


@pytest.mark.parametrize(
    ("wanted", "names"),
    [("its:*", "its"), ("f*:*", "from5"), ("its:1-2 its:*", "its:1 its:2 its"), ("even:*,4", "even even:4")],
)
def test_all_iterations_can_stand_for_their_job(wanted: str, names: str):
    expanded = expand(wanted.split(), Book(), whole_jobs=True)
    assert expanded == dict.fromkeys(names.split(), False)


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ("x*", "no job matches 'x*'"),
        ("sim1:0-3", "job 'sim1' has no iterations, so sim1:0-3 means nothing"),
        ("nobody:*", "there is no job 'nobody'"),
        ("its:20-30", "job 'its' has no iterations from 20 to 30, only 0 to 9"),
        ("its:5-3", "its:5-3 ends before it begins; write its:3-5"),
    ],
)
def test_a_pattern_or_range_without_a_match_is_an_error(wanted: str, sentence: str):
    with pytest.raises(NoSuchName) as caught:
        expand([wanted], Book())
    assert str(caught.value) == sentence


def test_all_names_without_a_match_are_named():
    with pytest.raises(NoSuchName) as caught:
        expand(["nope", "sim1", "zz*", "x*"], Book())
    assert str(caught.value) == "there is no job 'nope'; no job matches 'zz*'; no job matches 'x*'"


def test_jobs_without_iterations_are_skipped_when_a_pattern_matches_them():
    assert list(expand(["*i*:0-1"], Book())) == ["its:0", "its:1"]


def test_exact_names_need_no_lookup():
    book = Book()
    expand(["sim1", "its:3"], book)
    assert book.asked == 0


def test_expand_distinguishes_exact_names_from_patterns():
    assert expand(["sim1", "sim*", "its:3", "its:3-4"], Book()) == {
        "sim1": True,
        "sim2": False,
        "its:3": True,
        "its:4": False,
    }
