"""The page about models shows the real commands."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from qcg.pilotjob.cluster.slurm.environment import SCHEMA
from qcg.pilotjob.cluster.slurm.multinode import MULTI_NODE
from qcg.pilotjob.core.records import Attempt, Grant, Job, NodePart
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.host.records import Launch
from qcg.pilotjob.launch.compose import command_line, compose
from qcg.pilotjob.launch.site import Site
from tests.description.helpers import parse
from tests.docs.pages import ROOT, blocks_of

PAGE = ROOT / "docs/reference/models.md"
BLOCKS = blocks_of(PAGE)
SHOWN = [line for block in BLOCKS if block.language == "text" for line in block.text.splitlines()]

UNBOUND = Site(root_wd="/data", instance="abc", files="FILES", allocation="77", schema=SCHEMA, multi_node=MULTI_NODE)
CPUS = {0: 4, 1: 0, 2: 5}
BOUND = replace(UNBOUND, bindings={"n1": CPUS, "n2": CPUS})
ACROSS = Grant((NodePart("n1", (0, 1)), NodePart("n2", (0, 1, 2))))
INSIDE = Grant((NodePart("n1", (0, 1)),))


def described(model: str) -> JobDescription:
    """The job of the page, with this model."""
    shown: dict[str, Any] = json.loads(next(block.text for block in BLOCKS if block.language == "json"))
    execution = {**shown["execution"], "model": model}
    if model != "openmpi":
        del execution["model_opts"]
    (job,) = parse({"name": "wave", **shown, "execution": execution})
    return job


def launched(model: str) -> Launch:
    return compose(described(model), Attempt(Job(7, "wave", b"", 0.0), -1, 1, ACROSS, 0.0), BOUND)


@pytest.mark.parametrize(
    ("model", "grant", "site"),
    [
        ("openmpi", ACROSS, BOUND),
        ("intelmpi", ACROSS, BOUND),
        ("intelmpi", INSIDE, BOUND),
        ("srunmpi", ACROSS, BOUND),
        ("openmpi", ACROSS, UNBOUND),
        ("intelmpi", ACROSS, UNBOUND),
        ("srunmpi", ACROSS, UNBOUND),
    ],
)
def test_the_page_shows_the_commands_that_are_started(model: str, grant: Grant, site: Site):
    command = command_line(described(model), -1, grant, "7.1", site)
    assert command.replace("FILES/7.1/", "FILES/") in SHOWN


def test_the_page_shows_the_files_that_are_written():
    ranks = launched("openmpi").files["ranks"].splitlines()
    assert [line for line in SHOWN if line.startswith("rank ")] == ranks
    for line in launched("intelmpi").files["processes"].splitlines():
        assert f"`{line}`" in PAGE.read_text()


def test_every_variable_of_slurm_is_named():
    text = PAGE.read_text()
    given = {name for name in launched("openmpi").env if name.startswith("SLURM") and "JOB_ID" not in name}
    assert [name for name in sorted(given - {"SLURM_JOBID"}) if f"`{name}`" not in text] == []
