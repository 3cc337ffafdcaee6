"""The reference of remote hosts describes every key, value, sub-command and status that the code knows."""

from __future__ import annotations

import re

import pytest

from qcg.pilotjob.executors.ssh import config
from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.host.records import Ended, EndReason
from qcg.pilotjob.host.remote import status_file
from qcg.pilotjob.host.remote.gate import SUB_COMMANDS
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/reference/hosts.md").read_text()
ROWS = {
    name: cells
    for name, *cells in re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ((?:[^|]|\\\|)+) \|$", PAGE, re.MULTILINE)
}
"""The rows of the tables of keys: type, default, meaning."""


def test_each_key_of_a_host_has_one_row():
    assert list(ROWS) != []
    assert sorted(ROWS) == sorted(config._KEYS)


@pytest.mark.parametrize("key", sorted(config._KEYS))
def test_the_documented_default_is_that_of_the_code(key: str):
    field, _ = config._KEYS[key]
    default = getattr(HostConfig("wizard", ("wizard",)), field)
    shown = ROWS[key][1].strip("`")
    if default in ((), "", {}) or key in ("address", "memory"):
        assert re.fullmatch(r"[a-z ]{5,}", shown), "words say what happens without the key"
    elif isinstance(default, tuple):
        assert shown == " ".join(default)
    elif isinstance(default, bool):
        assert shown == str(default).lower()
    elif isinstance(default, (int, float)):
        assert float(shown) == default
    else:
        assert shown == default


@pytest.mark.parametrize("choices", ["CHANNELS", "TRACKING", "RETRIEVE", "SECOND_FACTORS"])
def test_each_value_of_a_choice_is_named(choices: str):
    words = set(re.findall(r'`(?:\w+ = ")?([\w-]+)"?`', PAGE))
    assert set(getattr(config, choices)) <= words


def test_each_sub_command_has_a_row():
    section = PAGE.partition("## Sub-commands on a host")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE)) == sorted(SUB_COMMANDS)


def test_each_key_of_the_status_file_is_described():
    section = PAGE.partition("### `job.status`")[2].partition("\n## ")[0]
    described = set(re.findall(r"`([A-Z_]+)`", section))
    known = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)*\b", (status_file.__doc__ or "").split("Times are")[0])) - {"KEY"}
    ended = Ended("1.1", 0.0, 0, EndReason.EXIT, "because", 1, 0.0, [])
    assert {key for key, _ in status_file.end_lines(ended)} <= known
    assert described == known
