"""The examples of the documents: fenced blocks, each with the marker that may stand right before it.

A marker is a comment that readers do not see:

    <!-- file: NAME -->             the block is saved as NAME; a later console block of the page has to use it
    <!-- part of a job -->          a JSON object with some keys of a job in the standard form
    <!-- reply: N, FILE -->         the last answer to request N in the log FILE
    <!-- not run: REASON -->        nothing is done with it, and this is why

A page whose second line is `<!-- on a cluster -->` is run by `tests/slurm/test_cluster_pages.py`, on the login node of
a Slurm cluster. A page whose second line is `<!-- on remote hosts -->` is run by `tests/ssh/test_host_pages.py`, on
the host citadel of the SSH laboratory. Such a page may save files as `~/NAME`, and cause trouble before a block:

    <!-- trouble: wizard cut -->    calls `Host.cut` of wizard

A block without a marker is a `console` block, which is run, or a `json` block: a request file (which is run), a request
or a job.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _pages_with(second_line: str) -> list[Path]:
    return [page for page in PAGES if page.read_text().splitlines()[1] == second_line]


CLUSTER_PAGES = _pages_with("<!-- on a cluster -->")
HOST_PAGES = _pages_with("<!-- on remote hosts -->")

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_MARKER = re.compile(r"<!-- (?P<kind>file|part of a job|reply|not run)(?:: (?P<value>[^\n]*?))? -->\n\Z")
_TROUBLE = re.compile(r"<!-- trouble: (\w+) (\w+) -->")


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str
    marker: str
    """`file`, `part of a job`, `reply`, `not run`, or empty."""
    value: str
    """The text of the marker after its colon."""
    trouble: tuple[tuple[str, str], ...] = ()
    """Hosts, and the trouble of each before this block."""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


class Command(NamedTuple):
    line: str
    expected: str


def blocks_of(page: Path) -> list[Block]:
    content = page.read_text()
    blocks = []
    end = 0
    for match in _FENCE.finditer(content):
        before = content[: match.start()]
        marker = _MARKER.search(before)
        blocks.append(
            Block(
                page=page,
                line=before.count("\n") + 1,
                language=match["language"],
                text=re.sub(f"^{match['indent']}", "", match["text"], flags=re.MULTILINE),
                marker=marker["kind"] if marker else "",
                value=(marker["value"] or "") if marker else "",
                trouble=tuple(_TROUBLE.findall(content[end : match.start()])),
            )
        )
        end = match.end()
    assert 2 * len(blocks) == len(re.findall(r"^ *```", content, re.MULTILINE)), f"{page}: a fence is not closed"
    return blocks


def commands_of(block: Block) -> list[Command]:
    """`$ command` lines, long ones continued after a backslash, and the output that follows each."""
    commands: list[Command] = []
    continued = False
    for line in block.text.splitlines(keepends=True):
        if continued or line.startswith("$ "):
            text = line if continued else line[2:]
            if continued:
                commands[-1] = Command(commands[-1].line + text, "")
            else:
                commands.append(Command(text, ""))
            continued = text.endswith("\\\n")
        else:
            assert commands, f"{block.place}: a console block begins with a command"
            commands[-1] = Command(commands[-1].line, commands[-1].expected + line)
    return commands
