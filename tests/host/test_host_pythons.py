"""host/ runs on hosts with old Pythons: its tests run with every old version on this machine."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "src/qcg/pilotjob/host").rglob("*.py"))
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted(Path(__file__).parent.rglob("test_host_*.py"))
    if path != Path(__file__)
]
OLD = ("3.6", "3.7", "3.8", "3.9")


def interpreters() -> list[str]:
    """One interpreter of each installed old version."""
    found = {}
    for version in OLD:
        for path in [
            shutil.which(f"python{version}"),
            *map(str, Path.home().joinpath(".pyenv", "versions").glob(f"{version}.*/bin/python")),
        ]:
            if path and _runs_as(path, version):
                found[version] = path
    return list(found.values())


def _runs_as(path: str, version: str) -> bool:
    # A shim of pyenv exists even when its version is not selected.
    version_output = subprocess.run([path, "--version"], capture_output=True, text=True)
    return version_output.returncode == 0 and version_output.stdout.startswith(f"Python {version}.")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_of_the_host_is_python_3_6(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 6))
    # Annotations as strings came with 3.7, and the parser alone accepts them.
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    assert not imports


@pytest.mark.long
@pytest.mark.timeout(600)
def test_behaviour_is_the_same_with_every_old_python_of_this_machine() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    runs = [
        subprocess.Popen(
            [path, "-W", "error", "-m", "unittest", *MODULES],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for path in interpreters()
    ]
    outputs = [(run.communicate()[0], run.returncode) for run in runs]
    failed = [output for output, code in outputs if code != 0]
    if failed:
        # An assertion would cut the output short, before the name of the test that failed.
        pytest.fail("\n".join(failed), pytrace=False)
