"""Objects change their own attributes only, outside `core/`, whose records are plain state by design."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.support.layer_rules import SOURCE, modules_of

MODULES = {name: path for name, path in modules_of(SOURCE).items() if not f"{name}.".startswith("qcg.pilotjob.core.")}

ALLOWED = {
    "A `host.job.ActiveJob` is the record of a running job, which the parts of the job host complete.": {
        "agent.simulated_host": {"job.exit_code"},
        "host.job_limits": {"job.memory_limit"},
        "host.jobhost": {"job.exit_code", "job.message", "job.reason"},
        "host.memory_limits": {"job.message", "job.reason", "job.usage"},
        "host.output_streams": {"job.stream"},
        "host.reaping": {"job.usage"},
    },
    "A `host.streamed_output.StreamedOutput` is the record of one output.": {
        "host.output_streams": {"output.is_over", "output.opening", "output.store_by"},
    },
    "A chain state is a record: `allocation_runner` changes it and writes it to its file.": {
        "batch.allocation_runner": {
            "self._chain.cancelled",
            "self._chain.exit_code",
            "self._chain.idle",
            "self._chain.stuck",
        },
    },
    "A commit group is a record: the journal gathers in it what it commits.": {
        "journal.journal": {"self._gathering.empty"},
    },
    "A record of the core: read from the registry, or its description dropped once the registry has it.": {
        "interfaces.registry_view": {"job.iterations", "job.iterations.began", "job.state"},
        "journal.descriptions": {"job.spec"},
    },
    "An object of a library that is configured by its attributes.": {
        "agent.program": {"options.name"},
        "api.manager": {"weakref.finalize(self, _end_later, self._pool, self._log_file, self._process).atexit"},
        "api.notebook": {"table.value"},
        "api.progress_bar": {"self._bar.bar_style", "self._bar.max", "self._bar.value", "self._label.value"},
        "cli.commands.alloc": {"command.params"},
        "cli.commands.sbatch": {"command.params", "option.help"},
        "cli.interrupts": {"sys.unraisablehook"},
        "cli.main": {"command.short_help"},
        "cli.stdout": {"sys.stdout"},
        "common.logs": {"logger.propagate"},
        "executor_api.calls": {"raised.__cause__"},
        "executors.process": {"self._child.returncode"},
        "host.captured_output": {"self._fallocate.argtypes"},
        "journal.damage": {"connection.text_factory"},
        "journal.snapshot": {"connection.text_factory"},
        "top.render": {"line.end", "line.no_wrap"},
        "wire.keys": {
            "socket.curve_publickey",
            "socket.curve_secretkey",
            "socket.curve_server",
            "socket.curve_serverkey",
        },
    },
    "The object whose table it is: the thread that updates the table does not keep the object alive.": {
        "api.notebook": {"shown._table"},
    },
}
"""Assignments to attributes of other objects, by reason and module."""


def assignments_to_others(text: str) -> list[str]:
    """The assignments to attributes of objects other than `self`. Objects that the function has just constructed are
    left out, and records of the same module: classes without methods."""
    tree = ast.parse(text)
    own = {name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for name in _record_fields(node)}
    return [f"{line}: {what}" for line, what, name in sorted(_assigned(tree, {"self", "cls"})) if name not in own]


def _record_fields(node: ast.ClassDef) -> Iterator[str]:
    methods = [part for part in node.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))]
    if any(method.name != "__init__" and not method.decorator_list for method in methods):
        return
    for part in ast.walk(node):
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            yield part.target.id
        elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and ast.unparse(part.value) == "self":
            yield part.attr


def _assigned(node: ast.AST, known: set[str]) -> Iterator[tuple[int, str, str]]:
    """Line, expression and attribute of each assignment to an object other than these names."""
    for part in ast.iter_child_nodes(node):
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _assigned(part, known | set(_constructed(part)))
            continue
        is_known = isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id in known
        if isinstance(part, ast.Attribute) and not (is_known or isinstance(part.ctx, ast.Load)):
            yield part.lineno, ast.unparse(part), part.attr
        yield from _assigned(part, known)


def _constructed(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """The names that a function gives to new objects: calls of a class."""
    for node in ast.walk(function):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call):
            called = ast.unparse(node.value.func).rpartition(".")[2]
            if re.match(r"_*[A-Z]|(cls|__new__)\Z", called):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (target.id for target in targets if isinstance(target, ast.Name))


def allowed_in(module: str) -> set[str]:
    return {what for modules in ALLOWED.values() for what in modules.get(module.removeprefix("qcg.pilotjob."), ())}


@pytest.fixture(scope="module")
def assigned() -> dict[str, list[str]]:
    """The assignments in each module."""
    return {module: assignments_to_others(path.read_text()) for module, path in MODULES.items()}


def test_no_module_assigns_to_attributes_of_objects_of_others(assigned: dict[str, list[str]]):
    found = [
        f"{module}:{line}"
        for module, lines in assigned.items()
        for line in lines
        if line.partition(": ")[2] not in allowed_in(module)
    ]
    assert found == []


def test_every_exception_is_still_needed(assigned: dict[str, list[str]]):
    needed = defaultdict(set)
    for module, lines in assigned.items():
        for line in lines:
            needed[module.removeprefix("qcg.pilotjob.")].add(line.partition(": ")[2])
    allowed = [(module, what) for modules in ALLOWED.values() for module in modules for what in modules[module]]
    assert sorted((module, what) for module, what in allowed if what not in needed[module]) == []
    assert len(allowed) == len(set(allowed))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(engine):\n    engine.state = 1", ["2: engine.state"]),
        ("def f(self):\n    self._executor.count += 1", ["2: self._executor.count"]),
        ("def f(x):\n    x.a, (y, x.b) = 1, (2, 3)", ["2: x.a", "2: x.b"]),
        ("def f(x):\n    del x.a\n    for x.b in y: ...\n    with y as x.c: ...", ["2: x.a", "3: x.b", "4: x.c"]),
        ("async def f(x):\n    x = find()\n    x.a = 1", ["3: x.a"]),
        ("class A:\n    def __init__(self): self.a = 1\n    def go(self): ...\ndef f(x): x.a = 2", ["4: x.a"]),
        ("class A:\n    def __init__(self): self.a = 1\ndef f(x): x.a = 2", []),
        ("class A(Struct):\n    a: int\ndef f(x): x.a = 2", []),
        ("def f(self):\n    self.a = 1\n    job = Job(1)\n    job.a = 2\n    x = m._Job(2)\n    x.a = 2", []),
        ("def f(x):\n    x[0] = y.a\n    x[y.b] = y.c", []),
    ],
)
def test_assignments_to_other_objects_are_found(text: str, found: list[str]):
    assert assignments_to_others(text) == found
