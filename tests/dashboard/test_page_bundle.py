"""The page as one file: modules as one script, data that cannot end its element, a policy that allows nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pytest

from qcg.pilotjob.dashboard.page_bundle import bundle_modules, bundle_page
from qcg.pilotjob.dashboard.page_files import load_page
from tests.support.project import ROOT


def test_modules_come_after_those_that_they_import():
    modules = {
        "main.js": 'import { one } from "./a.js";\nimport { two } from "./b.js";\none(two);\n',
        "a.js": 'import { two } from "./b.js";\nexport function one() {}\n',
        "b.js": "const hidden = 1;\nexport const two = hidden;\n",
    }
    script = bundle_modules(modules, "main.js")
    assert re.findall(r"^const \$(\w+) = ", script, re.MULTILINE) == ["b", "a", "main"]
    assert "const { one } = $a;" in script
    assert "return { two };" in script
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)


def test_modules_that_import_each_other_are_refused():
    modules = {"a.js": 'import { b } from "./b.js";\n', "b.js": 'import { a } from "./a.js";\n'}
    with pytest.raises(ValueError, match=r"a\.js, b\.js, a\.js"):
        bundle_modules(modules, "a.js")


@pytest.mark.parametrize("line", ['import x from "./b.js";', 'export * from "./b.js";', "export default 1;"])
def test_other_forms_of_import_and_export_are_refused(line: str):
    with pytest.raises(ValueError, match="cannot be bundled"):
        bundle_modules({"a.js": line + "\n"}, "a.js")


def test_data_has_no_markup():
    page = bundle_page(load_page(), b'{"name":"</script><script>alert(1)</script><!--"}').decode()
    assert page.count("</script>") == 2
    assert '{"name":"\\u003c/script>\\u003cscript>alert(1)\\u003c/script>\\u003c!--"}' in page


def test_the_policy_allows_its_own_script_and_style_alone():
    page = bundle_page(load_page(), b"{}").decode()
    script = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    style = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    hashes = [b64encode(sha256(text.encode()).digest()).decode() for text in (*script, *style)]
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)
    assert re.findall(r"'sha256-([^']+)'", policy) == hashes
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; ")


def test_nothing_is_loaded():
    page = bundle_page(load_page(), b"{}").decode()
    head = page.partition("<style>")[0]
    assert re.findall(r'(?:src|href)="(?!data:|#)([^"]*)"', head) == []
    assert re.findall(r"https?://[^\s\"'`)]+", page) == ["http://www.w3.org/2000/svg"]


def test_all_modules_of_the_page_are_used():
    page = load_page()
    script = bundle_modules({name: file.content.decode() for name, file in page.items()}, "main.js")
    assert script.count("= (() => {") == len([name for name in page if name.endswith(".js")])


def test_every_file_of_the_page_is_installed_with_the_package(tmp_path: Path):
    """As in a wheel: a pattern of package data that missed one would leave it out without a word."""
    source = tmp_path / "source"
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        source.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info"))
    build = [sys.executable, "-c", "import setuptools; setuptools.setup()", "--quiet", "build_py", "--build-lib"]
    subprocess.run([*build, str(tmp_path / "built")], cwd=source, check=True, capture_output=True)
    assets = Path("qcg/pilotjob/dashboard/assets")
    installed = {file.name for file in (tmp_path / "built" / assets).iterdir()}
    assert installed == {file.name for file in (ROOT / "src" / assets).iterdir()}
    assert installed == set(load_page()), "and served"
