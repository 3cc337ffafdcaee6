"""Messages of ssh, converted to sentences with advice."""

from __future__ import annotations

import pytest

from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.executors.ssh.errors import (
    ConnectionProblem,
    SubCommandRefused,
    failure,
    no_shared_connection,
    rsync_failed,
)

HOST = HostConfig("wizard", ("wizard.example.org",), owner="hobo")


def problem(exit_code: int | None, stderr: str, noise: str = "") -> ConnectionProblem:
    return failure(HOST, "wizard.example.org", exit_code, stderr, noise)


@pytest.mark.parametrize(
    ("code", "stderr", "sentence", "by_network"),
    [
        (255, "Host key verification failed.", "the host key of hobo@wizard.example.org is not known", False),
        (255, "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", "changed", False),
        (255, "hobo@wizard: Permission denied (publickey).", "refuses the login (hobo@wizard: Permission", False),
        (255, "ssh: Could not resolve hostname wizard: Name or service not known", "is not known on this", False),
        (255, "ssh: connect to host wizard port 22: No route to host", "there is no route to", True),
        (255, "ssh: connect to host wizard port 22: Connection refused", "refuses connections", True),
        (255, "ssh: connect to host wizard port 22: Connection timed out", "does not answer", True),
        (255, "Timeout, server wizard not responding.", "does not answer", True),
        (255, "client_loop: send disconnect: Broken pipe", "was closed", True),
        (255, "kex_exchange_identification: Connection closed by remote host", "MaxStartups", False),
        (255, "mux_client_request_session: session request failed: Session open refused by peer", "MaxSess", False),
        (127, "bash: line 1: python3: command not found", "has no Python 'python3' (key `python`)", False),
        (1, "SyntaxError: invalid syntax", "is older than Python 3.6", False),
        (3, "something else\n", "ended with exit code 3, without an answer: something else", False),
        (-9, "", "was killed by signal 9", False),
        (None, "", "was lost", True),
    ],
)
def test_each_failure_is_reported_with_advice(code, stderr, sentence, by_network):
    found = problem(code, stderr)
    assert sentence in str(found)
    assert "`qcg-pm hosts check wizard`" in str(found)
    assert found.by_network == by_network


def test_a_refusal_of_the_gate_is_distinguished_from_a_missing_permission():
    assert isinstance(problem(126, "qcg-pm gate: refused: remote-serve is not admitted"), SubCommandRefused)
    assert not isinstance(problem(126, "bash: /opt/far: Permission denied"), SubCommandRefused)


def test_sentences_of_the_far_side_itself_are_shown():
    found = problem(1, "noise\nqcg-pm: the program cannot be kept in /home/user/.qcg-pm: Disk quota exceeded\n")
    assert str(found) == (
        "hobo@wizard.example.org: the program cannot be kept in /home/user/.qcg-pm: Disk quota exceeded"
    )


def test_unexpected_output_of_a_host_is_shown_without_control_characters():
    assert str(problem(1, "", "\x1b[31mThis account is locked\n")).count("\\x1b[31mThis account is locked") == 1


def test_a_host_that_needs_a_person_names_the_command_to_type():
    reuse = HostConfig("wizard", ("wizard",), second_factor="reuse")
    own = HostConfig("wizard", ("wizard",), second_factor="own")
    assert "ssh -fNM wizard" in str(no_shared_connection(reuse, "wizard"))
    assert "qcg-pm hosts connect wizard" in str(no_shared_connection(own, "wizard"))


CLOSED = "kex_exchange_identification: Connection closed by remote host\nConnection closed by UNKNOWN port 65535\n"
CLOSED_BEFORE_SSH_WROTE = "banner exchange: Connection to UNKNOWN port 65535: Broken pipe\n"


@pytest.mark.parametrize("stderr", [CLOSED, CLOSED_BEFORE_SSH_WROTE])
def test_a_command_that_must_not_log_in_says_that_no_connection_is_open(stderr):
    own = HostConfig("wizard", ("wizard",), second_factor="own")
    found = failure(own, "wizard", 255, stderr)
    assert str(found) == str(no_shared_connection(own, "wizard"))
    assert found.by_network, "the next attempt costs no login"
    refused = "mux_client_request_session: session request failed: Session open refused by peer\n" + stderr
    assert "MaxSessions" in str(failure(own, "wizard", 255, refused))


def test_a_failed_rsync_is_one_line():
    stderr = 'rsync: link_stat "/wd/x" failed: No such file\nrsync error: some files could not be transferred\n'
    assert rsync_failed(HOST, "it failed", 23, stderr) == 'it failed: rsync: link_stat "/wd/x" failed: No such file'
    assert "installed on both sides" in rsync_failed(HOST, "it failed", 127, "bash: rsync: command not found")
