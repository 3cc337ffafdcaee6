"""What the docstring of each package says about its imports is what its modules import."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.layer_rules import PACKAGE, SOURCE, imported_modules, modules_of
from tests.support.project import PROJECT

MODULES = modules_of(SOURCE)
PACKAGES = {
    module.removeprefix(f"{PACKAGE}."): ast.get_docstring(ast.parse(path.read_text())) or ""
    for module, path in MODULES.items()
    if path.name == "__init__.py" and module.startswith(f"{PACKAGE}.")
}
"""The docstrings of all packages, by their names below `qcg.pilotjob`."""
LAYERS = [layer.split(" | ") for layer in PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]]

NAMES = r"`[^`]+`(?:(?:, | and |, and )`[^`]+`)*"
SENTENCE = re.compile(
    r"It imports no other package of this project\."
    r"|May import (?:the (?P<beside>modules beside it)(?:, | and |, and )?)?"
    rf"(?P<names>{NAMES})?(?:(?:, | and )?(?P<lower>(?:the packages of )?lower layers|every other package))?"
    rf"(?:, except (?P<without>{NAMES}))?(?: alone)?(?:;.*?)?\.(?= |$)"
)


def sentences(docstring: str) -> list[re.Match[str]]:
    """The sentences of a docstring about imports."""
    return list(SENTENCE.finditer(" ".join(docstring.split())))


def names_in(text: str | None) -> set[str]:
    """Packages and modules in backquotes, by their names below `qcg.pilotjob`."""
    return {name.removesuffix(".py").replace("/", ".") for name in re.findall(r"`([^`]+)`", text or "")}


def height_of(name: str) -> int:
    """The number of its layer, counted from the highest."""
    return next(height for height, layer in enumerate(LAYERS) if name.partition(".")[0] in layer)


def lower_layers(packages: set[str]) -> set[str]:
    """The packages of the layers below all of these."""
    return {name for layer in LAYERS[max(map(height_of, packages)) + 1 :] for name in layer}


def is_part_of(module: str, packages: set[str]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def imports_of(package: str) -> set[str]:
    """The modules outside a package that its modules import, by their names below `qcg.pilotjob`."""
    found = set()
    for module, path in MODULES.items():
        if is_part_of(module, {f"{PACKAGE}.{package}"}):
            found |= imported_modules(module, path, MODULES)
    below = {module.removeprefix(f"{PACKAGE}.") for module in found if module.startswith(f"{PACKAGE}.")}
    return {module for module in below if not is_part_of(module, {package})}


def contradictions(package: str, docstring: str, imports: set[str]) -> list[str]:
    """Where the sentence of a package and its imports differ."""
    found = sentences(docstring)
    if len(found) != 1:
        return [f"has {len(found)} sentences about what it may import"]
    said = found[0].groupdict()
    names, without = names_in(said["names"]), names_in(said["without"])
    parent = package.rpartition(".")[0]
    beside = {module for module in imports if said["beside"] and module.rpartition(".")[0] == parent}
    allowed = set(names)
    if said["lower"] == "every other package":
        allowed |= {name for layer in LAYERS for name in layer} - {package.partition(".")[0]}
    elif said["lower"]:
        allowed |= lower_layers(names or {package})
    outside = {module for module in imports if is_part_of(module, without) or not is_part_of(module, allowed)} - beside
    unused = {name for name in names if not any(is_part_of(module, {name}) for module in imports)}
    return [
        *(f"imports {module}" for module in sorted(outside)),
        *(f"does not import {name}" for name in sorted(unused)),
        *(["imports no module beside it"] if said["beside"] and not beside else []),
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_what_its_docstring_says(package: str):
    assert contradictions(package, PACKAGES[package], imports_of(package)) == []


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("May import `common` and `host`.", []),
        ("May import `common`, and `host/records.py`; nothing imports it.", []),
        ("May import `host` and lower layers.", ["imports common.options"]),
        ("May import `common` and lower layers.", []),
        ("May import the packages of lower layers.", []),
        ("May import the packages of lower layers, except `host`.", ["imports host.records"]),
        ("May import `wire` and `common`.", ["imports host.records", "does not import wire"]),
        ("May import `host` alone.", ["imports common.options"]),
        ("It imports no other package of this project.", ["imports common.options", "imports host.records"]),
        ("May import every other package.", []),
        ("Runs.", ["has 0 sentences about what it may import"]),
    ],
)
def test_a_wrong_sentence_about_imports_is_reported(sentence: str, found: list[str]):
    assert contradictions("runs", f"Runs.\n\n{sentence}", {"common.options", "host.records"}) == found


def test_a_package_inside_another_may_import_the_modules_beside_it():
    imports = {"top.model", "top.keys.more", "watch.source"}
    said = "May import the modules beside it and `watch`."
    assert contradictions("top.views", said, imports) == ["imports top.keys.more"]
    assert contradictions("top.views", said, {"watch.source"}) == ["imports no module beside it"]
