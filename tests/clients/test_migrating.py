"""The commands of docs/how-to/migrating.md install a working set, in fresh environments and with the real packages.

Versions of EasyVVUQ's own dependencies are those of `easyvvuq.lock`. The first command for pip is run by uv, which
installs the same packages in a tenth of the time.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import Block, blocks_of, commands_of

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
RUN_BY_THIS = "tests/clients/test_migrating.py runs it"


CHECK = """
import base64, hashlib, json
from importlib.metadata import PackageNotFoundError, distribution
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.executor_api.qcgpj_executor import QCGPJExecutor

def installed(name):
    try:
        return distribution(name).version
    except PackageNotFoundError:
        return None

def is_ours(file):
    digest = hashlib.new(file.hash.mode, file.locate().read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=") == file.hash.value

files = [file for file in distribution("qcg-pilotjob").files if file.hash is not None]
with LocalManager(["--nodes", "1"]) as manager:
    state = manager.wait4(manager.submit(Jobs().add(name="a", exec="true")), 60)
print(json.dumps({
    "versions": [installed(name) for name in ("qcg-pilotjob", "qcg-pilotjob-executor-api", "qcg-pilotjob-cmds")],
    "easyvvuq": installed("easyvvuq"),
    "overwritten": sorted(file.name for file in files if not is_ours(file)),
    "state": state,
}))
"""


class Environment:
    """A fresh virtual environment in which commands are run as a user would."""

    def __init__(self, directory: Path, uv: Path, wheels: Path) -> None:
        self.directory = directory
        self._environ = {
            **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")},
            "VIRTUAL_ENV": str(directory / ".venv"),
            "PATH": f"{directory}/.venv/bin:{uv.parent}:{os.environ['PATH']}",
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_FIND_LINKS": str(wheels),
            "UV_CONSTRAINT": str(HERE / "easyvvuq.lock"),
            "UV_VENV_SEED": "1",
            "PIP_FIND_LINKS": f"{os.environ.get('PIP_FIND_LINKS', '')} {wheels}",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1",
        }

    def run(self, command: str) -> str:
        # For nothing but the creation: otherwise uv installs into the environment of this Python.
        chosen = {"UV_PYTHON": python_for_easyvvuq()} if command == "uv venv" else {}
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            env={**self._environ, **chosen},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def check(self) -> dict[str, object]:
        (self.directory / "check.py").write_text(CHECK)
        versions: dict[str, object] = json.loads(self.run("python check.py"))
        return versions


def python_for_easyvvuq() -> str:
    """EasyVVUQ wants NumPy below 2, which is there for these."""
    for candidate in (sys.executable, "python3.12", "python3.11", "python3.10"):
        wanted = "import sys; assert (3, 10) <= sys.version_info < (3, 13); print(sys._base_executable)"
        try:
            done = subprocess.run([candidate, "-c", wanted], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            return done.stdout.strip()
    pytest.skip("EasyVVUQ needs a Python from 3.10 to 3.12, and none was found")


@pytest.fixture(scope="module")
def uv() -> Path:
    """Kept from one run of the tests to the next."""
    venv = ROOT / "build/uv"
    venv.parent.mkdir(exist_ok=True)
    with open(ROOT / "build/uv.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (venv / "bin/uv").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
            install = [str(venv / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "uv"]
            done = subprocess.run(install, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.skip(f"uv could not be installed: {done.stderr.strip()[-500:]}")
    return venv / "bin/uv"


@pytest.fixture(scope="module")
def wheels(uv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package of this source tree, which installers take for the published one."""
    source, wheels = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info"))
    build = [str(uv), "build", "--quiet", "--wheel", "--python", python_for_easyvvuq(), "--out-dir", str(wheels)]
    subprocess.run([*build, str(source)], check=True, capture_output=True)
    return wheels


@pytest.fixture
def environment(uv: Path, wheels: Path, tmp_path: Path) -> Iterator[Environment]:
    directory = tmp_path / "environment"
    directory.mkdir()
    yield Environment(directory, uv, wheels)
    shutil.rmtree(directory)  # it is large


def blocks() -> list[Block]:
    """For pip; the overrides of uv, and for uv; to repair."""
    return [block for block in blocks_of(ROOT / "docs/how-to/migrating.md") if block.value == RUN_BY_THIS]


def lines(block: Block) -> list[str]:
    return [command.line.strip() for command in commands_of(block)]


WORKING = {"versions": ["1.0.0", None, None], "easyvvuq": "1.3", "overwritten": [], "state": {"a": "SUCCEED"}}


def test_the_page_has_commands_for_pip_and_for_uv_and_to_repair():
    by_pip, overrides, by_uv, repair = blocks()
    assert lines(by_pip)[0].startswith("pip install ")
    assert "qcg-pilotjob" in overrides.text
    assert any(line.startswith("uv pip install ") for line in lines(by_uv))
    assert all(line.startswith("pip ") for line in lines(repair))


@pytest.mark.long
@pytest.mark.timeout(900)  # the first time includes downloads
def test_the_commands_for_pip_install_a_working_set_and_repair_it(environment: Environment):
    by_pip, _, _, repair = blocks()
    first, *others = lines(by_pip)
    environment.run("uv venv")
    environment.run(f"uv {first}")
    assert environment.run("pip show qcg-pilotjob").splitlines()[1].startswith("Version: 0.13.")
    for line in others:
        environment.run(line)
    assert environment.check() == WORKING

    environment.run("pip install --no-deps 'qcg-pilotjob-executor-api~=0.13.0'")
    broken = environment.run("python check.py || echo {}").splitlines()[-1]
    assert json.loads(broken).get("overwritten") != []
    for line in lines(repair):
        environment.run(line)
    assert environment.check() == WORKING


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_commands_for_uv_install_a_working_set(environment: Environment):
    _, overrides, by_uv, _ = blocks()
    (environment.directory / "overrides.txt").write_text(overrides.text)
    for line in lines(by_uv):
        environment.run(line)
    assert environment.check() == WORKING
    environment.run("python -c 'from easyvvuq.actions import QCGPJPool'")  # a campaign is run by test_easyvvuq.py
