"""The table of test cases of version 0.14 names tests that exist, and accounts for every case."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TABLE = (Path(__file__).parent / "earlier-suite.md").read_text()
SECTIONS = re.findall(r"^## (.*)\n\n\| case .*\n\|[-|]+\|\n((?:\|.*\n)+)", TABLE, re.MULTILINE)
ROWS = [[cell.strip() for cell in row.strip("|").split("|")] for _, rows in SECTIONS for row in rows.splitlines()]


@pytest.mark.parametrize("reference", sorted(set(re.findall(r"`([^`]+\.py::[^`]+)`", TABLE))))
def test_the_table_names_tests_that_exist(reference: str):
    file, _, name = reference.partition("::")
    tree = ast.parse((TESTS / file).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def test_every_case_has_a_test_or_a_reason():
    assert [case for case, _, covered, reason in ROWS if "::test_" not in covered and not reason] == []
    assert len({case for case, *_ in ROWS}) == len(ROWS)


def test_the_numbers_of_cases_are_right():
    counted = {title: rows.count("\n") for title, rows in SECTIONS}
    stated = {title: sum(map(int, re.findall(r"(\d+) cases?", title))) for title in counted}
    assert counted == stated
    assert f"has {len(ROWS)} test cases" in TABLE
