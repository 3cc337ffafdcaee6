"""Bundles the page into one file with styles, modules and data, so that the page loads no other file.

Modules of the page import each other by lines of one form, `import { a, b } from "./name.js";`, and export
declarations. Each becomes a function that returns its exports; the functions are called in the order of their imports.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256

from qcg.pilotjob.dashboard.page_files import INDEX, PageFile

ENTRY = "main.js"
ICON = "icon.svg"
_IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./([\w.-]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b", re.MULTILINE)
_STYLE = re.compile(r'<link rel="stylesheet" href="assets/([\w.-]+)">\n')
_SCRIPT = re.compile(r'<script type="module" src="assets/main\.js"></script>\n')
_ICON = re.compile(r'<link rel="icon"[^>]*>\n')
_HEAD = '<meta charset="utf-8">\n'


def bundle_page(files: Mapping[str, PageFile], data: bytes) -> bytes:
    """The page as one document with its data, a JSON document, which it reads instead of asking a server."""
    text = {name: file.content.decode() for name, file in files.items()}
    page = text[INDEX]
    style = "".join(text[name] for name in _STYLE.findall(page))
    script = bundle_modules(text, ENTRY)
    for inline in (style, script):
        if re.search(r"</(?:script|style)|<!--", inline, re.IGNORECASE):
            raise ValueError("an asset of the page has markup that would end its element")
    policy = (
        f"default-src 'none'; script-src '{_source_hash(script)}'; style-src '{_source_hash(style)}';"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )
    icon = b64encode(files[ICON].content).decode()
    page = _STYLE.sub("", page)
    page = _replaced(page, _SCRIPT, f"<style>{style}</style>\n")
    page = _replaced(page, _ICON, f'<link rel="icon" href="data:image/svg+xml;base64,{icon}">\n')
    head, found, rest = page.partition(_HEAD)
    body, end, tail = rest.partition("</body>")
    assert found
    assert end
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    inside = f'<script type="module">{script}</script>\n'
    return b"".join(
        [
            (head + found + meta + body).encode(),
            b'<script type="application/json" id="run-data">',
            # No markup in data: neither an end of the element nor a comment.
            data.replace(b"<", b"\\u003c"),
            b"</script>\n",
            (inside + end + tail).encode(),
        ]
    )


def bundle_modules(modules: Mapping[str, str], entry: str) -> str:
    """One script from a module and the modules that it imports."""
    ordered: dict[str, None] = {}
    _collect(modules, entry, (), ordered)
    return "".join(_as_function(name, modules[name]) for name in ordered)


def _collect(modules: Mapping[str, str], name: str, importers: tuple[str, ...], ordered: dict[str, None]) -> None:
    """Add a module after all that it imports."""
    if name in importers:
        raise ValueError(f"modules import each other: {', '.join((*importers, name))}")
    for _, imported in _IMPORT.findall(modules[name]):
        if imported not in ordered:
            _collect(modules, imported, (*importers, name), ordered)
    ordered[name] = None


def _as_function(name: str, source: str) -> str:
    exports = _EXPORT.findall(source)
    source = _EXPORT.sub("", _IMPORT.sub(lambda found: f"const {{ {found[1]} }} = {_variable(found[2])};\n", source))
    if left := _LEFT.search(source):
        raise ValueError(f"{name} has an import or export that cannot be bundled: {source[left.start() :][:60]!r}")
    return f"const {_variable(name)} = (() => {{\n{source}return {{ {', '.join(exports)} }};\n}})();\n"


def _variable(name: str) -> str:
    return "$" + re.sub(r"\W", "_", name.removesuffix(".js"))


def _source_hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def _replaced(page: str, pattern: re.Pattern[str], by: str) -> str:
    changed, times = pattern.subn(lambda _: by, page)
    assert times == 1, pattern.pattern
    return changed
