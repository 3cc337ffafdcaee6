"""`qcg-pm hosts check` and `connect` with real SSH servers."""

from __future__ import annotations

import re

import pytest

from tests.support.ssh_lab import Lab


def configure(lab: Lab, *keys: str) -> None:
    lines = ["[wizard]", 'owner = "hobo"', "cores = 2", *keys]
    lab.citadel.write(".config/qcg-pm/hosts.toml", "\n".join(lines) + "\n")


def check(lab: Lab, code: int = 0) -> str:
    done = lab.citadel.run("qcg-pm", "hosts", "check", "wizard", check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("channel", ["serve", "one-shot"])
def test_a_host_is_checked_with_two_logins_and_left_as_it_was(lab: Lab, channel: str):
    configure(lab, f'channel = "{channel}"')
    shown = check(lab)
    assert re.search(r"^ok +authentication +\d+ ms  with publickey$", shown, re.MULTILINE)
    assert re.search(r"^ok +sessions +\d+ ms  several on one connection$", shown, re.MULTILINE)
    assert lab.wizard.logins() == 2
    assert list((lab.wizard.home / "qcg-run").iterdir()) == []


def test_a_host_with_one_session_for_each_connection_can_be_used(lab: Lab):
    lab.wizard.configure_sshd(MaxSessions=1)
    configure(lab)
    assert re.search(r"^note +sessions .*MaxSessions 1", check(lab), re.MULTILINE)


def test_login_hosts_of_one_file_system_are_all_checked(lab: Lab):
    configure(lab, 'address = ["wizard", "wizard2"]')
    assert check(lab).count("authentication") == 2
    configure(lab, 'address = ["wizard", "tower"]')
    assert "tower does not see the files of hobo@wizard" in check(lab, 1)


def test_a_loud_profile_is_noted(lab: Lab):
    lab.wizard.make_profile_loud()
    configure(lab)
    shown = check(lab, 1)
    assert re.search(r"^note +login noise .*Welcome to the machine!", shown, re.MULTILINE)
    assert re.search(r"^failed +rsync there .*login scripts must write nothing", shown, re.MULTILINE)


def test_an_unknown_host_key_is_distinguished_from_a_refused_login(lab: Lab):
    configure(lab)
    known = lab.citadel.read(".ssh/known_hosts")
    lab.citadel.write(".ssh/known_hosts", "")
    assert re.search(r"^failed +host key .*is not known", check(lab, 1), re.MULTILINE)
    lab.citadel.write(".ssh/known_hosts", known)
    lab.wizard.write(".ssh/authorized_keys", "")
    assert re.search(r"^failed +authentication .*refuses the login", check(lab, 1), re.MULTILINE)


def test_a_host_that_refuses_connections_fails_at_the_first_step(lab: Lab):
    configure(lab)
    lab.wizard.refuse()
    assert re.search(r"^failed +connection .*refuses connections", check(lab, 1), re.MULTILINE)


def test_a_connection_of_a_person_is_opened_once_and_used_by_all(lab: Lab):
    configure(lab, 'second_factor = "own"')
    assert "qcg-pm hosts connect wizard" in check(lab, 1)
    opened = lab.citadel.run("qcg-pm", "hosts", "connect", "wizard")
    assert opened.stdout == "A connection to hobo@wizard is open now.\n"
    try:
        again = lab.citadel.run("qcg-pm", "hosts", "connect", "wizard")
        assert again.stdout == "A connection to hobo@wizard is open already.\n"
        assert check(lab).endswith("wizard can be used.\n")
        assert lab.wizard.logins() == 1
    finally:
        lab.citadel.run("ssh", "-oControlPath=/tmp/qcg-pm-ssh-2001/own-%C", "-O", "exit", "hobo@wizard")
