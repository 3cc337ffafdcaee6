"""The files of the page: a fixed table, read once from the package."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

INDEX = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
}
_PLACEHOLDER = b"""<!doctype html>
<meta charset="utf-8">
<title>qcg-pm dashboard</title>
<p>The page of the dashboard is not installed; its data is at <a href="api/summary">api/summary</a>.</p>
"""


class PageFile(NamedTuple):
    content: bytes
    type: str
    tag: str
    """Value of `ETag`."""


def load_page() -> dict[str, PageFile]:
    """All files of the page by name."""
    found: dict[str, PageFile] = {}
    folder = files("qcg.pilotjob.dashboard").joinpath("assets")
    for file in folder.iterdir() if folder.is_dir() else ():
        kind = _TYPES.get("." + file.name.rpartition(".")[2])
        if file.is_file() and kind is not None:
            found[file.name] = _page_file(file.read_bytes(), kind)
    found.setdefault(INDEX, _page_file(_PLACEHOLDER, _TYPES[".html"]))
    return found


def _page_file(content: bytes, kind: str) -> PageFile:
    return PageFile(content, kind, f'"{sha256(content).hexdigest()[:24]}"')
