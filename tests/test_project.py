"""Versions, locks and settings are consistent."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import qcg.pilotjob
from tests.support.project import PROJECT, ROOT

# Home directories and the hosts of package registries, written in pieces so that this file contains none of them. Run
# directories on remote hosts have a directory of this name too, and hobo is a user of the hosts in tests.
OF_ONE_MACHINE = re.compile(
    "|".join(
        [
            r"(?<![\w}])/" + "work/",
            "/" + "root/",
            r"/" + r"home/(?!user\b|me\b|hobo\b)\w+/",
            r"\." + r"pyenv/",
            r"/" + r"opt/(pypi|wheels)",
            "py" + r"pi\.org",
            "python" + r"hosted\.org",
            "deb" + r"\.debian\.org",
            "index" + r"-url",
        ]
    )
)


def names_in(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", text, maxsplit=1)[0].lower().replace("_", "-") for text in requirements}


def locked(file: str) -> dict[str, set[str]]:
    """The versions of each distribution in a lock: more than one where Pythons differ."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements" / file).read_text(), re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


def project_files() -> list[Path]:
    """The files that git tracks; without git, the files below the project directory."""
    git = shutil.which("git")
    listing = (
        subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False) if git else None
    )
    if listing and listing.returncode == 0:
        paths = [ROOT / name for name in listing.stdout.rstrip("\0").split("\0")]
    else:
        folders = ("src", "tests", "docs", "examples", "requirements", "scripts", ".ci")
        paths = [*ROOT.glob("*.*"), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    return [path for path in paths if path.is_file() and path.suffix != ".pyc"]


def test_the_version_is_the_one_in_the_code():
    assert importlib.metadata.version("qcg-pilotjob") == qcg.pilotjob.__version__


def test_qcg_is_a_namespace_that_others_may_share():
    assert not (ROOT / "src/qcg/__init__.py").exists()


def test_the_locks_hold_every_dependency():
    dependencies = names_in(PROJECT["project"]["dependencies"]) | names_in(PROJECT["build-system"]["requires"])
    tools = names_in(PROJECT["project"]["optional-dependencies"]["dev"])
    assert dependencies <= locked("run.lock").keys()
    assert dependencies | tools <= locked("dev.lock").keys()


def test_the_build_backend_is_locked_as_it_is_required():
    assert PROJECT["dependency-groups"]["build"] == PROJECT["build-system"]["requires"]


def test_users_and_developers_run_the_same_versions():
    for name, versions in locked("run.lock").items():
        assert locked("dev.lock")[name] == versions


@pytest.mark.parametrize("file", ["run.lock", "dev.lock"])
def test_a_lock_holds_versions_and_hashes_and_nothing_else(file: str):
    for line in (ROOT / "requirements" / file).read_text().splitlines():
        assert re.fullmatch(r"[\w.-]+==\S+( ; [^\\/]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?", line)


def test_installed_versions_match_the_locks():
    for name, versions in locked("dev.lock").items():
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another Python or system
        assert installed in versions, f"{name} {installed} is installed, the lock says {versions}: run `make setup`"


def test_the_files_that_may_have_complex_functions_are_those_that_have_them():
    settings = PROJECT["tool"]["ruff"]["lint"]
    allowed = {path for path, rules in settings["per-file-ignores"].items() if "C901" in rules}
    limit = f"lint.mccabe.max-complexity={settings['mccabe']['max-complexity']}"
    options = ["--isolated", "--no-cache", "--select", "C901", "--config", limit, "--output-format", "json"]
    command = [sys.executable, "-m", "ruff", "check", *options, "src", "tests", "bench"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert {Path(entry["filename"]).relative_to(ROOT).as_posix() for entry in json.loads(listing)} == allowed


def test_no_file_names_a_machine_or_a_registry():
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in project_files()
        for match in OF_ONE_MACHINE.finditer(path.read_text(errors="replace"))
    ]
    assert found == []


def test_traces_of_a_machine_are_recognised():
    for trace in ("/wo" + "rk/main/x", "/ro" + "ot/x", "https://py" + "pi.org/simple", "--index" + "-url x"):
        assert OF_ONE_MACHINE.search(trace)
