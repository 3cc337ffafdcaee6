"""`qcg-pm dashboard`: what it prints, and sentences for mistakes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.dashboard import Dashboard
from tests.support.pilot import run
from tests.support.second_user import NAME, give_away, needs_root
from tests.support.waiting import wait_for


def refused(*arguments: str | Path) -> str:
    done = run("qcg-pm", "dashboard", *arguments)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


def test_the_address_goes_to_stdout_and_hints_to_stderr(ended: Path):
    with Dashboard(ended) as dashboard:
        assert dashboard.address.startswith("http://127.0.0.1:")
        done = dashboard.end()
    assert done.stdout == ""
    assert "Ctrl-C ends it" in done.stderr
    assert "ssh -N -L" in done.stderr
    assert dashboard.token not in done.stderr


def test_the_run_can_be_given_as_a_directory_or_an_option(ended: Path):
    (run_dir,) = ended.glob(".qcgpjm-service-*")
    for arguments in ([run_dir], ["--path", ended]):
        with Dashboard(*arguments) as dashboard:
            assert dashboard.get("api/summary").json["directory"] == str(run_dir)


def test_a_directory_without_a_run_is_refused(tmp_path: Path):
    assert f"There is no run in {tmp_path}" in refused(tmp_path)
    assert "is not there" in refused(tmp_path / "none")


def test_a_port_in_use_is_refused(ended: Path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert f"port {port} cannot be used: Address already in use" in refused(ended, "--port", port)
    assert "--port" in refused(ended, "--port", "70000")


@pytest.fixture
def private(tmp_path: Path) -> Path:
    directory = tmp_path / "private"
    directory.mkdir(mode=0o700)
    return directory


def test_paths_that_cannot_be_sockets_are_refused(ended: Path, private: Path):
    assert "more than 107 bytes" in refused(ended, "--socket", private / ("x" * 120))
    taken = private / "taken"
    taken.touch()
    assert f"{taken} exists already" in refused(ended, "--socket", taken)
    assert taken.exists()
    assert "there is no directory" in refused(ended, "--socket", private / "none" / "s")
    private.chmod(0o755)
    assert "other users can enter" in refused(ended, "--socket", private / "s")
    private.chmod(0o777)
    assert "other users can write to it" in refused(ended, "--socket", private / "s")


def test_options_that_exclude_each_other_are_refused(ended: Path, private: Path):
    assert "--port or --socket" in refused(ended, "--port", "0", "--socket", private / "s")
    assert "--open or --socket" in refused(ended, "--open", "--socket", private / "s")
    for name in ("https://hub.example.org", "hub.example.org:80", "a b", ""):
        assert "no name of a host" in refused(ended, "--allow-host", name)


def test_a_proxy_can_be_allowed(ended: Path):
    with Dashboard(ended, "--allow-host", "hub.example.org") as dashboard:
        headers = {"Host": "hub.example.org", "Cookie": dashboard.cookie, "Origin": "https://hub.example.org"}
        assert dashboard.raw("GET", "/api/summary", headers).status == 200
        assert dashboard.raw("GET", "/api/summary", {**headers, "Host": "other.example.org"}).status == 403


@needs_root
def test_the_run_of_another_user_is_not_shown(tmp_path: Path, ended: Path):
    (run_dir,) = ended.glob(".qcgpjm-service-*")
    other = tmp_path / run_dir.name
    other.mkdir(mode=0o700)
    (other / "registry.sqlite").write_bytes((run_dir / "registry.sqlite").read_bytes())
    give_away(other)
    message = refused(other)
    assert f"it belongs to {NAME}" in message


def test_a_browser_is_started_without_the_token_in_its_arguments(ended: Path, tmp_path: Path, monkeypatch):
    log = tmp_path / "log"
    browser = tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\necho "$1" > {log}.new; stat -c %a "${{1#file://}}" >> {log}.new; mv {log}.new {log}\n'
    )
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    with Dashboard(ended, "--open") as dashboard:
        wait_for(log.exists, what="the browser")
        address, mode = log.read_text().splitlines()
        assert address.startswith("file://")
        assert dashboard.token not in address
        assert int(mode, 8) & 0o077 == 0
        assert dashboard.token in Path(address.removeprefix("file://")).read_text()
    assert not Path(address.removeprefix("file://")).exists()
