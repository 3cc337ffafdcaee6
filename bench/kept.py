"""Stored results at full size, one file a benchmark, so that benchmarks can run one by one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.finding import Finding, Result, Series


@dataclass(frozen=True)
class Kept:
    on: list[str]
    """Description of the machine."""
    how: str
    result: Result


def keep(directory: Path, name: str, kept: Kept) -> None:
    path = _path(directory, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(asdict(kept)))
    new.replace(path)


def all_kept(directory: Path, names: Iterable[str], on: list[str]) -> dict[str, Kept] | None:
    """Stored results by name; None unless all were measured on this machine."""
    found = {}
    for name in names:
        try:
            fields = json.loads(_path(directory, name).read_text())
        except FileNotFoundError:
            return None
        if fields["on"] != on:
            return None
        result = fields["result"]
        series = [Series(**{**one, "ours": tuple(one["ours"])}) for one in result["series"]]
        findings = [Finding(**finding) for finding in result["findings"]]
        found[name] = Kept(on, fields["how"], Result(findings, series, result["missing"]))
    return found


def _path(directory: Path, name: str) -> Path:
    return directory / "kept" / f"{name}.json"
