"""The hosts of the laboratory behave as the other tests expect."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.ssh_host import Host
from tests.support.ssh_lab import ROOT, Lab, running_lab
from tests.support.waiting import wait_for

SSH = ("ssh", "-oBatchMode=yes", "-oConnectTimeout=1")


def reaches(host: Host, other: Host) -> bool:
    return host.run(*SSH, other.name, "true", check=False).returncode == 0


def test_hosts_reach_each_other_with_keys(lab: Lab):
    for there in (lab.wizard, lab.wizard2, lab.tower, lab.keep):
        assert lab.citadel.run(*SSH, there.name, "hostname; id -un").stdout.split() == [there.name, there.user]
        assert there.run(*SSH, "citadel", "hostname; id -un").stdout.split() == ["citadel", "boss"]


def test_login_hosts_of_one_file_system_share_their_home(lab: Lab):
    lab.wizard.run("touch", "here")
    assert lab.wizard2.run("ls").stdout == "here\n"
    assert lab.tower.run("ls").stdout == ""
    lab.citadel.run("touch", "there")
    assert lab.keep.run("ls").stdout == "there\n"


def test_only_citadel_shows_the_project(lab: Lab):
    assert lab.citadel.run("qcg-pm", "--version").stdout.startswith("qcg-pm, version")
    for other in (lab.wizard, lab.tower, lab.keep):
        assert other.run("ls", ROOT, check=False).stdout == ""
        assert other.run("test", "-x", sys.executable, check=False).returncode == 1
        assert "No module named 'qcg'" in other.run("/usr/bin/python3", "-c", "import qcg", check=False).stderr


def test_processes_of_a_host_are_its_own(lab: Lab):
    sleeper = lab.wizard.start("sleep", "600")
    found = wait_for(lambda: [one for one in lab.wizard.processes() if str(one).endswith("sleep 600")])
    assert lab.wizard2.processes() == []
    inner = lab.wizard.inner_pid(found[0])
    assert lab.wizard.run("ps", "-o", "args=", "-p", str(inner)).stdout == "sleep 600\n"
    processes.end(set(found))
    sleeper.wait(10)
    assert lab.wizard.inner_pid(found[0]) is None


def test_a_host_that_is_cut_off_comes_back_when_it_is_healed(lab: Lab):
    for trouble in (lab.wizard.cut, lab.wizard.drop, lab.wizard.refuse):
        trouble()
        assert not reaches(lab.citadel, lab.wizard)
        assert reaches(lab.citadel, lab.wizard2)
        lab.wizard.heal()
        assert reaches(lab.citadel, lab.wizard)


def test_an_open_connection_survives_a_short_cut_and_notices_dropped_packets(lab: Lab):
    keep_alive = ("-oServerAliveInterval=1", "-oServerAliveCountMax=3")
    client = lab.citadel.start(*SSH, *keep_alive, "wizard", "cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdin
    assert client.stdout
    client.stdin.write("one\n")
    client.stdin.flush()
    assert client.stdout.readline() == "one\n"
    lab.wizard.cut()
    client.stdin.write("two\n")
    client.stdin.flush()
    lab.wizard.heal()
    assert client.stdout.readline() == "two\n"
    lab.wizard.drop()
    assert client.wait(10) == 255
    client.stdin.close()
    client.stdout.close()


def test_a_crashed_host_boots_with_its_home_and_another_boot_id(lab: Lab):
    boot_id = ("cat", "/proc/sys/kernel/random/boot_id")
    before = lab.wizard.run(*boot_id).stdout
    lab.wizard.run("touch", "kept")
    sleeper = lab.wizard.start("sleep", "600")
    wait_for(lab.wizard.processes)
    lab.wizard.crash()
    assert sleeper.wait(10) != 0
    assert lab.wizard.processes() == []
    assert not reaches(lab.citadel, lab.wizard)
    lab.wizard.boot()
    assert reaches(lab.citadel, lab.wizard)
    assert lab.wizard.run("ls").stdout == "kept\n"
    assert lab.wizard.run(*boot_id).stdout not in (before, lab.wizard2.run(*boot_id).stdout)


def test_a_slow_link_adds_to_the_round_trip(lab: Lab):
    connect = ("python3", "-c", "import socket, time; t = time.time(); socket.create_connection(('wizard', 22)); "
               "print(time.time() - t)")  # fmt: skip
    lab.wizard.slow_down(1)
    lab.citadel.run(*connect)  # asks for the address of the network card
    assert 1 <= min(float(lab.citadel.run(*connect).stdout) for _ in range(2)) < 2
    lab.wizard.slow_down(0.05)
    sent = lab.citadel.write("data", "0123456789" * 100_000)
    lab.citadel.run("rsync", "data", "wizard:")
    assert (lab.wizard.home / "data").read_text() == sent.read_text()
    lab.wizard.slow_down(0)
    lab.citadel.run(*connect)
    assert min(float(lab.citadel.run(*connect).stdout) for _ in range(5)) < 1


def test_one_session_per_connection_can_be_enforced(lab: Lab):
    lab.wizard.configure_sshd(MaxSessions=1)
    share = ("-oControlPath=~/master",)
    master = lab.citadel.start(*SSH, *share, "-oControlMaster=yes", "wizard", "cat", stdin=subprocess.PIPE)
    wait_for((lab.citadel.home / "master").exists)
    refused = lab.citadel.run(*SSH, *share, "-oControlMaster=no", "-oProxyCommand=false", "wizard", "true", check=False)
    assert refused.returncode == 255
    assert "refused by peer" in refused.stderr
    lab.wizard.configure_sshd()
    master.communicate()
    assert master.returncode == 0


def test_connections_are_killed_and_the_server_stays(lab: Lab):
    client = lab.citadel.start(*SSH, "wizard", "cat", stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    wait_for(lambda: any(str(one) == f"{one.pid} cat" for one in lab.wizard.processes()))
    lab.wizard.kill_sshd()
    assert client.wait(10) == 255
    assert client.stdin
    client.stdin.close()
    assert reaches(lab.citadel, lab.wizard)
    assert lab.wizard.logins() == 2


def test_a_loud_profile_and_a_forced_command(lab: Lab):
    lab.wizard.make_profile_loud()
    assert lab.citadel.run(*SSH, "wizard", "echo answer").stdout.endswith("no newline at the endanswer\n")
    lab.tower.force_command("echo only this")
    assert lab.citadel.run(*SSH, "tower", "id").stdout == "only this\n"


def test_the_next_pid_of_a_host_can_be_chosen(lab: Lab):
    lab.wizard.set_next_pid(20_000)
    assert 20_000 <= int(lab.wizard.run("bash", "-c", "echo $$").stdout) < 20_010


def test_calls_of_ssh_and_rsync_are_recorded(lab: Lab):
    lab.record_commands()
    before = time.time()
    lab.citadel.write("one two", "text")
    lab.citadel.run("rsync", "-a", "-e", "ssh -oBatchMode=yes", "one two", "wizard:there")
    push, inner = lab.recorded()
    assert push.argv == ("rsync", "-a", "-e", "ssh -oBatchMode=yes", "one two", "wizard:there")
    assert inner.argv[:3] == ("ssh", "-oBatchMode=yes", "wizard")
    assert "--server" in inner.argv
    assert before < push.time < inner.time < time.time()
    assert lab.recorded("ssh") == [inner]


def test_a_laboratory_ends_with_the_process_that_started_it():
    code = """if True:
        import os
        from tests.support.ssh_lab import running_lab
        with running_lab() as lab:
            print(lab.directory, flush=True)
            os.kill(os.getpid(), 9)
    """
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    directory = Path(done.stdout.strip())
    pid = int((directory / "lab.pid").read_text())
    wait_for(lambda: not processes.is_alive(pid), what="the end of the laboratory")
    with running_lab():
        assert not directory.exists()


def test_a_process_that_a_test_leaves_on_a_host_is_named(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tests.support.ssh_host.POLLS", 3)
    lab.wizard.run("bash", "-c", "setsid sleep 600 >/dev/null 2>&1 &")
    (left,) = lab.clean_up()
    assert left.startswith("<hobo@wizard>")
    assert left.endswith("sleep 600")
    assert lab.wizard.processes() == []
