"""The page about new batch systems describes every method of the port."""

from __future__ import annotations

import inspect
import re

import pytest

from qcg.pilotjob.cluster.base import AllocationQueue, BatchSystem
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/how-to/add-batch-system.md"
ROW = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)


@pytest.mark.parametrize("port", [BatchSystem, AllocationQueue])
def test_each_method_of_the_port_has_a_row(port: type):
    _, _, section = PAGE.read_text().partition(f"## Methods of `{port.__name__}`\n")
    rows = ROW.findall(section.partition("\n## ")[0])
    methods = [name for name, _ in inspect.getmembers(port, inspect.isfunction) if not name.startswith("_")]
    assert sorted(rows) == sorted(methods)


@pytest.mark.parametrize("port", [BatchSystem, AllocationQueue])
def test_each_attribute_of_the_port_is_named(port: type):
    words = set(re.findall(r"`(\w+)`", PAGE.read_text()))
    assert set(port.__annotations__) <= words
