"""The page about new batch systems describes every method of the port, and the manual every batch system."""

from __future__ import annotations

import inspect
import re

import pytest

from qcg.pilotjob.cluster import registry
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


@pytest.mark.parametrize("line", registry.SYSTEMS, ids=lambda line: line.name)
def test_each_batch_system_is_in_the_manual(line: registry.Registration):
    name = f"`{line.name}:FILE`" if line.takes_file else f"`{line.name}`"
    assert name in row_of("--resources")
    if line.has_schema:
        assert f"`{line.name}`" in row_of("--envschema")
    if line.has_remote_queue:
        assert f"`{line.name}`" in (ROOT / "docs/reference/hosts.md").read_text()


def row_of(option: str) -> str:
    """The row of an option in the reference of commands."""
    (row,) = re.findall(rf"^\| `{option}` \|.*$", (ROOT / "docs/reference/commands.md").read_text(), re.MULTILINE)
    return str(row)


@pytest.mark.parametrize("field", registry.Registration._fields[3:])
def test_each_choice_of_the_registration_is_named(field: str):
    assert f"`{field}`" in PAGE.read_text()
