"""Rules for the imports of each package, checked on the source of its modules.

The functions of a pure package depend on their arguments only. So the package may import only modules without I/O and
clocks, and the modules of this project that it imports must be pure as well. Each module is checked in the same way, so
the rule holds for chains of any length.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGE = "qcg.pilotjob"

# The pure packages, each with the pure packages that it must not import.
PURE_PACKAGES = {
    "description": ("core", "launch"),
    "core": ("launch",),
    "launch": (),
}

SOURCE = Path(__file__).parents[2] / "src"
CLUSTER = SOURCE / "qcg/pilotjob/cluster"

# Packages that hold pure and other modules. Importing a module runs the `__init__` of its packages: that is pure too.
MIXED_PACKAGES = {
    PACKAGE,
    *(f"{PACKAGE}.{name}" for name in ("batch", "cluster", "common", "host")),
    *(f"{PACKAGE}.cluster.{path.parent.name}" for path in CLUSTER.glob("*/__init__.py")),
}

# The modules of a batch system that are pure, where it has them.
PURE_IN_BATCH_SYSTEMS = ("environment", "multinode", "options", "parse", "sizes")

PURE_MODULES = {
    f"{PACKAGE}.host.records",
    f"{PACKAGE}.batch.script",
    *(f"{PACKAGE}.common.{name}" for name in ("environment", "exit_codes", "similarity", "wording")),
    *(f"{PACKAGE}.cluster.{name}" for name in ("errors", "spec", "time_limits", "local.virtual_nodes")),
    *(
        f"{PACKAGE}.cluster.{path.parent.name}.{path.stem}"
        for path in CLUSTER.glob("*/*.py")
        if path.stem in PURE_IN_BATCH_SYSTEMS
    ),
}

# Other modules that a pure package may import. Add a missing one if it does no I/O and reads no clock.
# fmt: off
PURE_IMPORTS = {
    "__future__", "abc", "array", "ast", "base64", "bisect", "collections", "contextlib", "copy", "dataclasses",
    "datetime", "decimal", "difflib", "enum", "fractions", "functools", "hashlib", "heapq", "itertools", "json",
    "keyword", "math", "msgspec", "numbers", "operator", "re", "shlex", "statistics", "string", "struct", "textwrap",
    "types", "typing", "typing_extensions", "unicodedata", "weakref",
}
# fmt: on

# Modules of which only some names are pure: they are imported by these names or not at all.
PURE_NAMES = {
    "pathlib": {"PurePath", "PurePosixPath"},
    "posixpath": {"basename", "commonpath", "dirname", "isabs", "join", "normpath", "split", "splitext"},
}

IMPURE_BUILTINS = {"__import__", "breakpoint", "eval", "exec", "input", "open", "print"}
CLOCKS = {"now", "today", "utcnow"}

NEWER_THAN_36 = {"contextvars", "dataclasses", "graphlib", "tomllib", "zoneinfo"}
# fmt: off
TYPING_NEWER_THAN_36 = {
    "Annotated", "Concatenate", "Final", "ForwardRef", "Literal", "Never", "OrderedDict", "ParamSpec", "Protocol",
    "Self", "TypeAlias", "TypeGuard", "TypedDict", "final", "get_args", "get_origin", "runtime_checkable",
}
# fmt: on
BUILTIN_GENERICS = {"dict", "frozenset", "list", "set", "tuple", "type"}


class Import(NamedTuple):
    """`import module` (no name), or one name of `from module import name`."""

    line: int
    module: str
    name: str | None
    bound_as: str


@cache
def parse(text: str) -> ast.Module:
    """The syntax tree of a text. Many rules look at the same modules: clear the cache after them."""
    return ast.parse(text)


def modules_of(source_root: Path) -> dict[str, Path]:
    """Every module below `source_root`, by its dotted name."""
    found = {}
    for path in sorted(source_root.rglob("*.py")):
        parts = path.relative_to(source_root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def is_pure(module: str) -> bool:
    """Whether this module belongs to a pure package, or is a pure module of another package."""
    if module in MIXED_PACKAGES or module in PURE_MODULES:
        return True
    return _package_of(module) in PURE_PACKAGES


def breaches(module: str, source: str, is_package: bool = False) -> list[str]:
    """The breaches of the rules of its package in a module, a sentence each."""
    tree = parse(source)
    imports = list(_imports(tree, module if is_package else module.rpartition(".")[0]))
    found: list[tuple[int, str]] = []
    if is_pure(module):
        found += _impure_imports(module, imports)
        found += _impure_names(tree, imports)
    if _package_of(module) == "host":
        found += _foreign_imports(imports)
        found += _too_new(tree, source)
    return [f"{module}:{line} {what}" for line, what in sorted(found)]


def importers(package: str, modules: Mapping[str, Path]) -> set[str]:
    """The modules outside of a package that import it or one of its modules."""
    found = set()
    for module, path in modules.items():
        if f"{module}.".startswith(f"{package}."):
            continue
        inside = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for one in _imports(parse(path.read_text()), inside):
            if f"{one.module}.{one.name or ''}.".startswith(f"{package}."):
                found.add(module)
    return found


def imported_modules(module: str, path: Path, modules: Mapping[str, Path]) -> set[str]:
    """The modules of ours that a module imports, at any place and also for type checkers alone."""
    inside = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for one in _imports(parse(path.read_text()), inside):
        whole = f"{one.module}.{one.name}"
        found.add(whole if whole in modules else one.module)
    return found & modules.keys()


def shared_private_members(modules: Mapping[str, Path]) -> set[tuple[str, str]]:
    """The classes that use or override a private member of a base class in another module of the project."""
    trees = {module: parse(path.read_text()) for module, path in modules.items()}
    classes = {
        (module, node.name): node
        for module, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    found = set()
    for (module, name), node in classes.items():
        imported = {one.bound_as: (one.module, one.name) for one in _imports(trees[module], module.rpartition(".")[0])}
        for base in node.bases:
            origin = imported.get(base.id) if isinstance(base, ast.Name) else None
            if origin in classes and _private_members(node) & _private_members(classes[origin]):
                found.add((module, name))
    return found


def _private_members(node: ast.ClassDef) -> set[str]:
    names = set()
    for part in ast.walk(node):
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(part.name)
        elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id in ("self", "cls"):
            names.add(part.attr)
        elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            names.add(part.id)
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def _package_of(module: str) -> str | None:
    """`core` for `qcg.pilotjob.core.queue`; `None` for modules outside all packages."""
    if not module.startswith(PACKAGE + "."):
        return None
    return module[len(PACKAGE) + 1 :].partition(".")[0]


def _imports(tree: ast.Module, package: str) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, None, alias.asname or alias.name.partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]) if base else ".".join(above)
            for alias in node.names:
                yield Import(node.lineno, base, alias.name, alias.asname or alias.name)


def _impure_imports(module: str, imports: list[Import]) -> Iterator[tuple[int, str]]:
    for found in imports:
        top = found.module.partition(".")[0]
        if top == "qcg":
            yield from _impure_own_import(module, found)
        elif top in PURE_NAMES:
            if found.name not in PURE_NAMES[top]:
                names = ", ".join(sorted(PURE_NAMES[top]))
                yield found.line, f"imports {found.name or 'all'} of {top}; of that a pure package may import: {names}."
        elif top not in PURE_IMPORTS:
            yield found.line, f"imports {found.module}, which is not known to be free of I/O, clocks and chance."


def _impure_own_import(module: str, found: Import) -> Iterator[tuple[int, str]]:
    target = found.module
    if found.name and target in MIXED_PACKAGES and not found.name.startswith("__"):
        target += f".{found.name}"
    if not is_pure(target):
        yield found.line, f"imports {target}, which is in no pure package."
    elif _package_of(target) in PURE_PACKAGES.get(_package_of(module) or "", ()):
        yield found.line, f"imports {target}, but {_package_of(module)} must not know {_package_of(target)}."


def _impure_names(tree: ast.Module, imports: list[Import]) -> Iterator[tuple[int, str]]:
    dates = {found.bound_as for found in imports if found.module == "datetime"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in IMPURE_BUILTINS:
            yield node.lineno, f"uses {node.id}, which a pure package must not."
        elif isinstance(node, ast.Attribute) and node.attr in CLOCKS and _root(node) in dates:
            yield node.lineno, f"reads the clock with {ast.unparse(node)}: a pure package gets the time as an argument."


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _foreign_imports(imports: list[Import]) -> Iterator[tuple[int, str]]:
    for found in imports:
        top = found.module.partition(".")[0]
        whole = f"{found.module}.{found.name}" if found.name else found.module
        if top == "qcg":
            if _package_of(whole) != "host":
                yield found.line, f"imports {whole}, but host/ is shipped alone and must not import other packages."
        elif top not in sys.stdlib_module_names:
            yield found.line, f"imports {found.module}, but host/ may use the standard library only."
        elif _is_newer_than_36(top, found.name):
            yield found.line, f"imports {whole}, which Python 3.6 does not have."


def _is_newer_than_36(module: str, name: str | None) -> bool:
    if module == "typing":
        return name in TYPING_NEWER_THAN_36
    return module in NEWER_THAN_36 or (module, name) == ("__future__", "annotations")


def _too_new(tree: ast.Module, source: str) -> Iterator[tuple[int, str]]:
    try:
        ast.parse(source, feature_version=(3, 6))
    except SyntaxError as error:
        yield error.lineno or 0, f"is no Python 3.6: {error.msg}."
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in BUILTIN_GENERICS:
            yield node.lineno, f"says {ast.unparse(node)}; Python 3.6 needs the form from typing."
    for annotation in _annotations(tree):
        if any(isinstance(part, ast.BinOp) for part in ast.walk(annotation)):
            yield annotation.lineno, f"says {ast.unparse(annotation)}; Python 3.6 needs Optional or Union."


def _annotations(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.AnnAssign, ast.arg)) and node.annotation:
            yield node.annotation
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns:
            yield node.returns
