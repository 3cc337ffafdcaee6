"""Compares printed output with the output shown on a page, ignoring times, pids and names of runs."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

DIRECTORY = "/home/me/demo"
"""The directory that pages show in place of the real working directory."""

_VARIABLE_PARTS = [
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d([.,]\d+)?"), "TIME"),
    (re.compile(r"\b\d+:\d\d:\d\d(\.\d+)?"), "DURATION"),
    (re.compile(r"\.qcgpjm-service-[\w.-]+"), "RUN"),
    (re.compile(r"\bqcg-run/[\w-]+\.\d+"), "qcg-run/RUN"),
    (re.compile(r"\b[0-9a-f]{64}\.pyz"), "HASH.pyz"),
    (re.compile(r"""(\bpid["']?:? ?"?)\d+"""), r"\1PID"),
    (re.compile(r"\b(PID|PROCESS_START|RUN|BOOT)=\S+"), r"\1=VALUE"),
    (re.compile(r"\bUSAGE=[\d ]+"), "USAGE=VALUES"),
    (re.compile(r"\b([Jj]ob|scancel) \d+\b"), r"\1 N"),
    (re.compile(r"\bslurm-\d+\.out"), "slurm-N.out"),
    (re.compile(r"\.qcgpjm-alloc-[\w.-]+"), "BATCH"),
    (re.compile(r"\d+\.\d%"), "PERCENT"),
    (re.compile(r"\d+\.\d+ core-hours"), "N core-hours"),
    (re.compile(r"(?:\b\d+(\.\d [KMGT]i)? ?|< \d+ Mi)B\b"), "N B"),
    (re.compile(r"\d+ major, \d+ minor"), "N major, N minor"),
    (
        re.compile(r'"(max_memory|minor_faults|major_faults|read_bytes|written_bytes|cpu_efficiency)": "[\d.]+"'),
        r'"\1": N',
    ),
    (re.compile(r"connected from \S+"), "connected from HOST"),
    (re.compile(r"with the compiled part (.+)|without the compiled part (.+) \(see README\)"), "COMPILED OR NOT"),
    (re.compile(r"[\d,]+ jobs/s +[\d,]+"), "N jobs/s N"),
    (re.compile(r"[\d,]+ jobs/s"), "N jobs/s"),
    (re.compile(r"\S+ jobs of \S+ s, \S+ at a time, took \S+ s instead of \S+ s"), "N jobs took N s"),
    (re.compile(r"\b\d+(\.\d)? ms"), "N ms"),
    (re.compile(r"\blog\.\d{8}T\d{6}Z"), "log.TIME"),
    (re.compile(r"\d+\.\d\d s\b"), "N s"),
]
_PROGRESS = re.compile(r"\d+ of \d+ jobs done, .* cores? busy(, .* left)?")
"""Progress lines; their number depends on the speed of the machine."""

_CONNECTED = re.compile(r"TIME INFO agent \S+ connected from HOST .*")
"""The log line of a connecting agent, before or after the first reply."""

_SLOWEST = re.compile(r"\S+ DURATION [A-Z]+ (PERCENT )?(N B (of N B )?)?\S+\[\S+")
"""A row of the table of slowest jobs; their order depends on the machine."""


def lines_of(text: str, directory: Path) -> list[str]:
    """Return the comparable lines: placeholders for changing parts, no blank lines, single spaces."""
    text = text.replace(str(directory), DIRECTORY)
    for pattern, name in _VARIABLE_PARTS:
        text = pattern.sub(name, text)
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not _PROGRESS.fullmatch(line)]
    groups = itertools.groupby(lines, key=lambda line: _SLOWEST.fullmatch(line) is not None)
    return [line for is_row, group in groups for line in (sorted(group) if is_row else group)]


def same(shown: str, printed: str, directory: Path) -> bool:
    """Whether output matches a page. `...` on the page matches any text in a line; alone on a line, any lines."""
    expected, actual = lines_of(shown, directory), lines_of(printed, directory)
    if any(map(_CONNECTED.fullmatch, expected)):
        expected, actual = (sorted(lines, key=_is_ordered) for lines in (expected, actual))
    pattern = "".join(map(_line_pattern, expected))
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in actual)) is not None


def _is_ordered(line: str) -> bool:
    return _CONNECTED.fullmatch(line) is None


def _line_pattern(line: str) -> str:
    return r"(?:.*\n)*?" if line == "..." else re.escape(line).replace(re.escape("..."), ".*") + r"\n"
