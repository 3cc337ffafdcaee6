"""The examples of the documents that need remote hosts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.docs.output import DIRECTORY
from tests.docs.pages import HOST_PAGES, ROOT, blocks_of
from tests.docs.running import TIMEOUT, PageDirectory
from tests.support.ssh_lab import Lab

HOME, NAME = DIRECTORY.rsplit("/", 1)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", HOST_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_host_pages_produce_the_documented_output(lab: Lab, page: Path):
    lab.citadel.run("mkdir", NAME)
    directory = PageDirectory(Path(DIRECTORY), lambda command, _: run_on_citadel(lab, command), write_on_citadel(lab))
    for block in blocks_of(page):
        for host, action in block.trouble:
            getattr(getattr(lab, host), action)()
        directory.execute(block)
    assert not directory.unused, f"no command uses {', '.join(directory.unused)} of {page.name}"


def run_on_citadel(lab: Lab, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command with both streams in one. All users have the home directory that pages show; commands name that of
    wizard so."""
    command = [word.replace(HOME, lab.wizard.home_there) for word in command]
    done = lab.citadel.run("bash", "-c", 'exec 2>&1; exec "$@"', "-", *command, cwd=NAME, timeout=TIMEOUT, check=False)
    for host in (lab.citadel, lab.wizard):
        done.stdout = done.stdout.replace(host.home_there, HOME)
    return done


def write_on_citadel(lab: Lab):
    def write(name: str, text: str) -> None:
        text = text.replace(HOME, lab.wizard.home_there)
        lab.citadel.write(name[2:] if name.startswith("~/") else f"{NAME}/{name}", text)

    return write
