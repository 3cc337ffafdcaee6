"""Packages import only modules that their rules allow, and no file is too long to read at once."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest

from qcg.pilotjob.cluster import registry
from tests.support import memory_executor
from tests.support.layer_rules import (
    PURE_PACKAGES,
    SOURCE,
    breaches,
    importers,
    is_pure,
    modules_of,
    parse,
    shared_private_members,
)
from tests.support.project import ROOT

MODULES = modules_of(SOURCE)
LONGEST_FILE = 500


@pytest.fixture(scope="module", autouse=True)
def _parsed() -> Iterator[None]:
    yield
    parse.cache_clear()


def test_every_module_keeps_to_the_rules_of_its_package():
    found = [
        breach
        for module, path in MODULES.items()
        for breach in breaches(module, path.read_text(), is_package=path.name == "__init__.py")
    ]
    assert found == []


def test_no_file_is_longer_than_the_limit():
    lengths = {module: len(path.read_text().splitlines()) for module, path in MODULES.items()}
    assert {module: length for module, length in lengths.items() if length > LONGEST_FILE} == {}


def test_the_pure_packages_are_found():
    pure = [module for module in MODULES if is_pure(module)]
    assert set(PURE_PACKAGES) <= {module.split(".")[2] for module in pure if module.count(".") >= 2}


@pytest.mark.parametrize(
    ("module", "line", "reported"),
    [
        ("core.queue", "import asyncio", "imports asyncio"),
        ("core.queue", "import os", "imports os"),
        ("core.queue", "from os import path", "imports os"),
        ("core.queue", "from time import monotonic", "imports time"),
        ("core.queue", "def f():\n    import socket", "imports socket"),
        ("core.queue", "import logging", "imports logging"),
        ("core.queue", "import random", "imports random"),
        ("core.queue", "import zmq.asyncio", "imports zmq.asyncio"),
        ("core.queue", "from pathlib import Path", "imports Path of pathlib"),
        ("core.queue", "import pathlib", "imports all of pathlib"),
        ("launch.paths", "from posixpath import exists", "imports exists of posixpath"),
        ("core.queue", "print('here')", "uses print"),
        ("core.queue", "with open('x') as f: ...", "uses open"),
        ("core.queue", "map(open, names)", "uses open"),
        ("core.queue", "from datetime import datetime\ndatetime.now()", "reads the clock with datetime.now"),
        ("core.queue", "import datetime as d\nx = d.date.today", "reads the clock with d.date.today"),
        ("core.queue", "import qcg.pilotjob.journal", "imports qcg.pilotjob.journal"),
        ("core.queue", "from qcg.pilotjob import journal", "imports qcg.pilotjob.journal"),
        ("core.queue", "from ..journal import store", "imports qcg.pilotjob.journal"),
        ("core.queue", "from qcg.pilotjob.host import spawn", "imports qcg.pilotjob.host.spawn"),
        ("core.queue", "from qcg.pilotjob.host.spawn import start", "imports qcg.pilotjob.host.spawn"),
        ("core.queue", "from qcg.pilotjob.cluster import find", "imports qcg.pilotjob.cluster.find"),
        ("core.queue", "from qcg.pilotjob.launch.models import plan", "core must not know launch"),
        ("core.queue", "from qcg.pilotjob import interfaces", "imports qcg.pilotjob.interfaces"),
        ("description.model", "from qcg.pilotjob.core.job_states import State", "description must not know core"),
        ("launch.models", "import subprocess", "imports subprocess"),
        ("cluster.slurm.parse", "import subprocess", "imports subprocess"),
        ("cluster", "from qcg.pilotjob.cluster.find import find_nodes", "imports qcg.pilotjob.cluster.find"),
        ("host", "from qcg.pilotjob.host.spawn import start", "imports qcg.pilotjob.host.spawn"),
        ("host.records", "import os", "imports os"),
        ("host.spawn", "import msgspec", "the standard library only"),
        ("host.spawn", "from qcg.pilotjob.core.job_states import State", "must not import other packages"),
        ("host.spawn", "from qcg.pilotjob import __version__", "must not import other packages"),
        ("host.spawn", "import dataclasses", "Python 3.6 does not have"),
        ("host.spawn", "from __future__ import annotations", "Python 3.6 does not have"),
        ("host.spawn", "from typing import Protocol", "Python 3.6 does not have"),
        ("host.spawn", "if (n := 1): ...", "is no Python 3.6"),
        ("host.spawn", "def f(a, /): ...", "is no Python 3.6"),
        ("host.spawn", "def f(a: list[int]): ...", "needs the form from typing"),
        ("host.spawn", "def f() -> int | None: ...", "needs Optional or Union"),
    ],
)
def test_a_breach_is_reported_with_its_place(module: str, line: str, reported: str):
    found = breaches(f"qcg.pilotjob.{module}", line, is_package=module in {"cluster", "host"})
    assert len(found) >= 1
    assert found[0].startswith(f"qcg.pilotjob.{module}:{1 + line.count(chr(10))} ")
    assert reported in found[0]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("core.queue", "from __future__ import annotations\nimport heapq\nfrom collections.abc import Iterator"),
        ("core.queue", "from qcg.pilotjob.core import scheduler"),
        ("core.queue", "from qcg.pilotjob.description.model import ResourceRequest"),
        ("core.queue", "from qcg.pilotjob.host.records import Ended"),
        ("core.queue", "from datetime import datetime\ndef f(now: datetime): return now.date()"),
        ("core.queue", "class Clock:\n    def f(self): return self.now"),
        ("launch.models", "from qcg.pilotjob.core.records import Grant\nfrom posixpath import join"),
        ("launch.models", "from pathlib import PurePosixPath"),
        ("launch.models", "from qcg.pilotjob import __version__"),
        ("cluster.slurm.parse", "import re"),
        ("cluster.local.machine", "import os, subprocess"),
        (
            "host.spawn",
            "import os, signal\nfrom qcg.pilotjob.host.records import Launch\nfrom qcg.pilotjob.host import files",
        ),
        ("host.spawn", "from typing import Dict, Optional\nflags = 1 | 2"),
        ("engine.loop", "import asyncio, time\nprint(open('x'))"),
    ],
)
def test_imports_that_a_package_needs_are_allowed(module: str, line: str):
    assert breaches(f"qcg.pilotjob.{module}", line) == []


def found_in(modules: Iterable[str], search: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """What a search finds in the text of each module, of those in which it finds anything."""
    results = {module: search(MODULES[module].read_text()) for module in modules}
    assert results
    return {module: found for module, found in results.items() if found}


def pooled_calls(text: str) -> list[str]:
    """The calls in threads of the event loop's own pool."""
    found = []
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            in_pool = name == "run_in_executor" and ast.unparse(node.args[0]) == "None"
            if in_pool or name == "to_thread":
                found.append((node.lineno, name))
    return [f"{line}: {name}" for line, name in sorted(found)]


def test_a_manager_uses_no_threads_that_its_end_waits_for():
    """`asyncio.run` joins the threads of the pool at its end, even one that hangs: use `call_in_thread`."""
    for package in ("qcg.pilotjob.manager.", "qcg.pilotjob.interfaces."):
        assert found_in([name for name in MODULES if name.startswith(package)], pooled_calls) == {}


def test_a_call_in_the_pool_is_reported_with_its_line():
    text = "loop.run_in_executor(syncer, f)\nloop.run_in_executor(None, f)\nawait asyncio.to_thread(f)\nto_thread(f)\n"
    assert pooled_calls(text) == ["2: run_in_executor", "3: to_thread", "4: to_thread"]


PUBLIC = {"_asdict", "_exit", "_fields", "_make", "_replace"}
"""Names of the standard library that are public in spite of their underscore."""


def foreign_private_names(text: str) -> list[str]:
    """The uses of private attributes of objects whose class is in another file."""
    tree = parse(text)
    own = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            of_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if of_self:
                own.add(node.attr)
            elif re.match(r"_[^_]", node.attr) and node.attr not in PUBLIC:
                found.append((node.lineno, node.attr))
    return [f"{line}: {name}" for line, name in found if name not in own]


def test_no_module_uses_private_attributes_of_objects_of_others():
    assert found_in(MODULES, foreign_private_names) == {}


def test_the_use_of_a_private_attribute_is_reported_with_its_line():
    text = "def f(engine):\n    engine._executor = None\n    engine.state._replace(a=1)\n"
    assert foreign_private_names(text) == ["2: _executor"]


OVERRIDES = {
    ("qcg.pilotjob.agent.simulated_host", "SimulatedHost"): "starts no processes, for measurements",
    ("qcg.pilotjob.api.manager", "LocalManager"): "starts the manager that it connects to",
    ("qcg.pilotjob.executors.ssh.log_viewer", "_ViewTransport"): "reads on after the answer",
    ("qcg.pilotjob.host.remote.batch_ledger", "BatchLedger"): "is written by several processes",
    ("qcg.pilotjob.journal.journal", "Journal"): "also reads",
    ("qcg.pilotjob.api.client", "Manager"): "implements the interface of queries",
    ("qcg.pilotjob.cli.offline_client", "RegistryClient"): "implements the interface of queries",
}
"""Classes that use or override private members of a class in another file, and why."""


def test_only_these_classes_build_on_private_members_of_a_class_in_another_file():
    assert shared_private_members(MODULES) == OVERRIDES.keys()


def test_the_executor_of_the_engines_tests_is_small():
    """The interface of executors is so small that an executor in memory takes fewer than 100 lines."""
    assert len(inspect.getsource(memory_executor).splitlines()) < 100
    assert not memory_executor.MemoryExecutor.__abstractmethods__


ENVIRONMENT_NAME = re.compile(r"QCG_(?:PM|PJM)_[A-Z_]+")


def environment_names(text: str) -> set[str]:
    """The names of environment variables of the project in the string literals of a module, docstrings aside."""
    tree = parse(text)
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    literals = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in docstrings]
    return {name for node in literals for name in ENVIRONMENT_NAME.findall(str(node.value))}


def test_each_environment_variable_is_named_in_one_module():
    """`common/environment.py` has those of several packages; `host/`, which imports no other package, has its own."""
    named: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for name in environment_names(path.read_text()):
            named.setdefault(name, []).append(module)
    assert len(named) > 20
    assert {name: modules for name, modules in named.items() if len(modules) > 1} == {}


def test_the_names_of_environment_variables_are_found():
    text = '"""QCG_PM_NOTE"""\nX = "QCG_PM_X"\nf(f"{name}=QCG_PJM_Y", b"QCG_PM_Z")  # QCG_PM_N\n"""QCG_PM_OF_X"""\n'
    assert environment_names(text) == {"QCG_PM_X", "QCG_PJM_Y", "QCG_PM_Z"}


def exit_code_literals(text: str, *, every_function: bool) -> list[str]:
    """The exit codes other than 0 that a program exits with, or that its functions return, and that are written as
    numbers. `every_function`: not only those that `main` and its like return."""
    tree = parse(text)
    programs = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.endswith("main")]
    returning = [tree] if every_function else programs
    returns = {node for one in returning for node in ast.walk(one) if isinstance(node, ast.Return)}
    found = []
    for node in ast.walk(tree):
        if node in returns:
            value = node.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("sys.exit", "os._exit", "SystemExit"):
            value = node.args[0] if node.args else None
        else:
            continue
        codes = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
        if any(isinstance(code, ast.Constant) and type(code.value) is int and code.value for code in codes):
            found.append((node.lineno, ast.unparse(node)))
    return [f"{line}: {what}" for line, what in sorted(found)]


@pytest.mark.parametrize("of_commands", [True, False])
def test_programs_take_their_exit_codes_from_one_module(of_commands: bool):
    """`common/exit_codes.py` has them; `host/` imports no other package."""
    modules = [
        module
        for module in MODULES
        if not module.startswith("qcg.pilotjob.host") and module.startswith("qcg.pilotjob.cli") == of_commands
    ]
    assert found_in(modules, partial(exit_code_literals, every_function=of_commands)) == {}


def test_an_exit_code_written_as_a_number_is_reported_with_its_line():
    text = "sys.exit(1 if problems else 0)\ndef main():\n    return 0\ndef g():\n    return FAILURE if x else 3\n"
    exits, returns = "1: sys.exit(1 if problems else 0)", "5: return FAILURE if x else 3"
    assert exit_code_literals(text, every_function=True) == [exits, returns]
    assert exit_code_literals(text, every_function=False) == [exits]
    assert exit_code_literals(text.replace("g()", "main()"), every_function=False) == [exits, returns]


def reading_loops(text: str) -> list[str]:
    """The calls that receive from a ZeroMQ socket without waiting, as a loop over all that has arrived does."""
    found = []
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("recv", "recv_multipart"):
            given = [ast.unparse(value) for value in (*node.args, *(keyword.value for keyword in node.keywords))]
            if any("NOBLOCK" in value or "DONTWAIT" in value for value in given):
                found.append((node.lineno, ast.unparse(node)))
    return [f"{line}: {call}" for line, call in sorted(found)]


READING_LOOPS = {
    "qcg.pilotjob.wire.hub": "needs the descriptor of the connection that each message came from",
    "qcg.pilotjob.wire.sockets": "has `receive_all`, which all others use",
}
"""Modules that receive all messages of a socket by themselves, and why."""


def test_the_messages_of_a_socket_are_received_in_one_place():
    assert {module for module, path in MODULES.items() if reading_loops(path.read_text())} == READING_LOOPS.keys()


def test_a_reading_loop_is_reported_with_its_line():
    text = "a.recv()\na.b.recv(zmq.NOBLOCK)\na.send(x, zmq.NOBLOCK)\nrecv_multipart(copy=False, flags=zmq.DONTWAIT)\n"
    assert reading_loops(text) == ["2: a.b.recv(zmq.NOBLOCK)", "4: recv_multipart(copy=False, flags=zmq.DONTWAIT)"]


KNOWS_SLURM = ("cluster/slurm/", "cluster/registry.py", "cli/commands/sbatch.py")
"""The batch system itself, its line of registration, and the command that is named after it."""
OLD_OPTIONS = re.compile(
    r"slurm[-_]limit[-_]nodes[-_]range[-_](?:begin|end)|--slurm-(?:partition-nodes|resources-file)", re.IGNORECASE
)
"""Options of earlier versions keep their names."""
WITH_OLD_OPTIONS = ("cli/legacy_options.py", "cli/options.py", "common/options.py")
"""The modules that define these options."""


PLACES = {
    path.relative_to(SOURCE / "qcg/pilotjob").as_posix(): path
    for module, path in MODULES.items()
    if module.startswith("qcg.pilotjob")
}


def slurm_lines(place: str, text: str) -> list[str]:
    """The lines of a file that mention Slurm and must not."""
    if place.startswith(KNOWS_SLURM):
        return []
    lines = (OLD_OPTIONS.sub("", text) if place in WITH_OLD_OPTIONS else text).splitlines()
    return [f"{place}:{number} {line}" for number, line in enumerate(lines, 1) if "slurm" in line.lower()]


def test_only_the_package_of_slurm_mentions_slurm():
    assert len(PLACES) > 300
    assert [line for place, path in PLACES.items() for line in slurm_lines(place, path.read_text())] == []


def test_a_mention_of_slurm_elsewhere_is_reported_with_its_place():
    assert slurm_lines("core/queue.py", "import os\n# as Slurm does\n") == ["core/queue.py:2 # as Slurm does"]


@pytest.mark.parametrize("place", WITH_OLD_OPTIONS)
def test_every_module_that_may_name_old_options_does(place: str):
    assert OLD_OPTIONS.search((SOURCE / "qcg/pilotjob" / place).read_text())


OTHER_SOURCES = [
    *(path for pattern in ("*.c", "*.h", "*.pyi", "*.js", "*.css", "*.html") for path in sorted(SOURCE.rglob(pattern))),
    *sorted((SOURCE / "qcg/appscheduler").rglob("*.py")),
    *sorted((ROOT / "bench").rglob("*.*")),
    *sorted((ROOT / "scripts").iterdir()),
]


@pytest.mark.parametrize("path", [path for path in OTHER_SOURCES if path.suffix != ".pyc"], ids=lambda path: path.name)
def test_no_other_source_mentions_slurm(path: Path):
    lines = path.read_text().splitlines()
    assert [line for line in lines if "slurm" in line.lower() or SLURM_COMMAND.search(line)] == []


def test_the_other_sources_are_found():
    names = {"relay.c", "relay.h", "_relay.pyi", "live.js", "index.html", "manager.py", "noop.py", "create-venv"}
    assert names <= {path.name for path in OTHER_SOURCES}


SLURM_COMMAND = re.compile(r"sbatch|(?<![a-z])srun|salloc|scancel|scontrol|\bsqueue", re.IGNORECASE)
MAY_BE_MENTIONED = {
    "cli/main.py": ('"sbatch": "The same as alloc, for sbatch."', '("run", "alloc", "sbatch", "bench")'),
    "description/forms.py": ('"srunmpi"', "srun_args", "More arguments for srun, in srunmpi."),
    "description/model.py": ('"srunmpi"', "srun_args"),
    "description/normalize.py": ("srun_args",),
    "description/variables.py": ('"srun_args"',),
    "host/process_tree.py": ('b"srun"',),
    "host/termination.py": ('b"srun"',),
    "launch/models.py": ("srunmpi", "srun_args"),
    "launch/site.py": ("srunmpi",),
    "runs/submissions.py": ('".qcgpjm-sbatch-"',),
}
"""Texts with names of Slurm's commands that stay: a command of this project, names in request files and on disk, and
programs that pass signals on."""


def slurm_commands(place: str, text: str) -> list[str]:
    """The lines of a file that name a command of Slurm and must not."""
    if place.startswith(KNOWS_SLURM):
        return []
    for allowed in sorted(MAY_BE_MENTIONED.get(place, ()), key=len, reverse=True):
        text = text.replace(allowed, "")
    return [
        f"{place}:{number} {line}" for number, line in enumerate(text.splitlines(), 1) if SLURM_COMMAND.search(line)
    ]


def test_only_the_package_of_slurm_names_its_commands():
    assert [line for place, path in PLACES.items() for line in slurm_commands(place, path.read_text())] == []


@pytest.mark.parametrize(
    ("place", "allowed"), [(place, text) for place in MAY_BE_MENTIONED for text in MAY_BE_MENTIONED[place]]
)
def test_every_exception_is_still_needed(place: str, allowed: str):
    assert allowed in (SOURCE / "qcg/pilotjob" / place).read_text()


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("launch/models.py", '"start qcg-pm with sbatch"'),
        ("batch/follower.py", "# srun"),
        ("cli/main.py", '"salloc": "x"'),
    ],
)
def test_a_command_of_slurm_elsewhere_is_reported_with_its_place(place: str, line: str):
    assert slurm_commands(place, f"import os\n{line}\n") == [f"{place}:2 {line}"]


def test_the_batch_system_is_registered_in_one_entry():
    text = MODULES["qcg.pilotjob.cluster.registry"].read_text()
    registration = re.compile(r'^    Registration\(\s+"slurm",.*?^    \),\n', re.MULTILINE | re.DOTALL)
    assert len(registration.findall(text)) == 1
    rest = registration.sub("", text).replace('\nSYSTEM_OF_EARLIER_VERSIONS = "slurm"\n', "\n", 1)
    assert [line for line in rest.splitlines() if "slurm" in line.lower()] == []


@pytest.mark.parametrize("line", registry.SYSTEMS, ids=lambda line: line.name)
def test_no_other_package_imports_a_batch_system(line: registry.Registration):
    """The registry imports it by name."""
    assert importers(line.module.rpartition(".")[0], MODULES) == set()


@pytest.mark.parametrize(
    "line",
    [
        "import qcg.pilotjob.cluster.toy",
        "from qcg.pilotjob.cluster.toy.system import SYSTEM",
        "from qcg.pilotjob.cluster import toy",
        "from .toy import system",
        "def f():\n    from ..cluster.toy import system",
    ],
)
def test_an_import_of_a_batch_system_is_found(line: str, tmp_path: Path):
    near, inside, other = (tmp_path / name for name in ("near.py", "inside.py", "other.py"))
    near.write_text(line)
    inside.write_text(line)
    other.write_text("from qcg.pilotjob.cluster import toys, base")
    cluster = "qcg.pilotjob.cluster"
    modules = {f"{cluster}.near": near, f"{cluster}.toy.inside": inside, f"{cluster}.other": other}
    assert importers(f"{cluster}.toy", modules) == {f"{cluster}.near"}
