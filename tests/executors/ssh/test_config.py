"""Hosts of hosts.toml: values, defaults, and sentences for what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob.executors.ssh.config import HostConfig, HostsError, find_host, load_hosts, parse_hosts
from qcg.pilotjob.executors.ssh.host_files import user_file


def only(text: str) -> HostConfig:
    (config,) = parse_hosts(text, "hosts.toml").values()
    return config


def problem(text: str) -> str:
    with pytest.raises(HostsError) as refused:
        parse_hosts(text, "hosts.toml")
    return str(refused.value)


def test_a_host_without_keys_is_reached_by_its_name_and_has_one_core():
    config = only("[wizard]")
    assert (config.addresses, config.owner, config.cores, config.channel) == (("wizard",), "", 1, "serve")


def test_every_key_has_its_field():
    config = only(
        """
        [wizard]
        address = ["login1.example.org", "login2.example.org"]
        owner = "hobo"
        cores = 8
        gpus = 2
        memory = 16000
        channel = "one-shot"
        tracking = "ssh"
        submit_poll_interval = 2
        poll_interval = "1m30s"
        login_shell = true
        python = "/opt/python/bin/python3"
        directory = "~/scratch/runs/"
        install = ["bin/", "model.nc"]
        retrieve = "on-failure"
        retrieve_max_size = "10M"
        ssh = "ssh -F 'my config'"
        rsync = ["/opt/bin/rsync"]
        environment = { OMP_NUM_THREADS = 2, LANG = "C" }
        second_factor = "reuse"
        """
    )
    assert config == HostConfig(
        "wizard",
        ("login1.example.org", "login2.example.org"),
        source="hosts.toml",
        owner="hobo",
        cores=8,
        gpus=2,
        memory=16000,
        channel="one-shot",
        tracking="ssh",
        submit_poll_interval=2.0,
        poll_interval=90.0,
        login_shell=True,
        python="/opt/python/bin/python3",
        directory="scratch/runs",
        install=("bin/", "model.nc"),
        retrieve="on-failure",
        retrieve_max_size="10M",
        ssh=("ssh", "-F", "my config"),
        rsync=("/opt/bin/rsync",),
        environment={"OMP_NUM_THREADS": "2", "LANG": "C"},
        second_factor="reuse",
    )


def test_a_host_with_a_batch_system_has_a_limit_of_jobs_and_directives():
    config = only('[hpc]\nbatch = "slurm"\njobs = 30\ndirectives = { "--partition" = "debug" }')
    assert (config.is_batch, config.jobs, config.directives) == (True, 30, {"--partition": "debug"})


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("[wizard]\nadress = 'a'", ["hosts.toml, [wizard]: there is no key 'adress'; did you mean 'address'?"]),
        ("[wizard]\nxyzzy = 1", ["no key 'xyzzy'", "known are address"]),
        (
            "[wizard]\nchannel = 'server'",
            ["channel must be 'serve' or 'one-shot', not 'server'", "did you mean 'serve'"],
        ),
        ("[wizard]\ncores = 0", ["cores must be a whole number from 1"]),
        ("[wizard]\ncores = true", ["cores must be a whole number"]),
        ("[wizard]\nlogin_shell = 'yes'", ["login_shell must be true or false, without quotes"]),
        ("[wizard]\naddress = 'hobo@wizard'", ["the user there is the value of `owner`"]),
        ("[wizard]\naddress = '-oProxyCommand=x'", ["address must be a host as ssh takes it"]),
        ("[wizard]\naddress = ['a', 'a']", ["address names a host twice"]),
        ("[wizard]\nowner = '-l'", ["owner must be the name of a user"]),
        (
            "[wizard]\ndirectory = '$SCRATCH/runs'",
            ["directory must be a path on the host, absolute or relative to the home directory"],
        ),
        ("[wizard]\ninstall = ['../x']", ["install must list relative paths inside the working directory"]),
        ("[wizard]\npoll_interval = -1", ["poll_interval must be a number of seconds above zero"]),
        ("[wizard]\nretrieve_max_size = 'big'", ["retrieve_max_size must be a number of bytes"]),
        ("[wizard]\nenvironment = { 'A B' = 1 }", ["'A B', which no environment variable can have"]),
        ("[wizard]\nbatch = 'slurm'\ncores = 4", ["cores is for hosts without a batch system"]),
        ("[wizard]\njobs = 4", ["jobs is for hosts with a batch system"]),
        ("[wizard]\ncommand = '/opt/x'\npython = 'python3'", ["leave out python"]),
        ('[wizard]\nssh = "ssh \'x"', ["ssh cannot be split into words"]),
        ("cores = 4", ["the key 'cores' belongs to no host"]),
        ("[wizard.example]\ncores = 4", ['write ["wizard.example"]']),
        ("['-x']", ["the name of a host consists of letters"]),
        ("['*']", ["the name of a host consists of letters"]),
        ("[wizard", ["hosts.toml is not valid TOML"]),
    ],
)
def test_errors_name_file_and_key_and_give_advice(text, sentences):
    message = problem(text)
    for sentence in sentences:
        assert sentence in message


def test_later_files_replace_hosts_of_the_same_name(tmp_path: Path):
    site, given = tmp_path / "site.toml", tmp_path / "given.toml"
    environ = {"HOME": str(tmp_path)}
    site.write_text("[wizard]\ncores = 2\n[citadel]\ncores = 3\n")
    user_file(environ).parent.mkdir(parents=True)
    user_file(environ).write_text("[wizard]\nowner = 'hobo'\n")
    given.write_text("[tower]\n")
    hosts = load_hosts(str(given), environ, site)
    assert {name: (host.cores, host.owner, host.source) for name, host in hosts.items()} == {
        "wizard": (1, "hobo", str(user_file(environ))),
        "citadel": (3, "", str(site)),
        "tower": (1, "", str(given)),
    }


def test_a_missing_file_matters_only_when_it_was_given(tmp_path: Path):
    assert load_hosts(None, {"HOME": str(tmp_path)}, tmp_path / "none.toml") == {}
    with pytest.raises(HostsError, match="there is no such file"):
        load_hosts(str(tmp_path / "none.toml"), {"HOME": str(tmp_path)}, tmp_path / "none.toml")


def test_an_unknown_host_is_refused_with_the_most_similar_name():
    hosts = parse_hosts("[wizard]\n[citadel]", "hosts.toml")
    with pytest.raises(HostsError, match="no host 'wizzard'; did you mean 'wizard'\\?$"):
        find_host(hosts, "wizzard")
    with pytest.raises(HostsError, match="no remote host is configured"):
        find_host({}, "wizard")


@pytest.mark.parametrize(("key", "ours"), [("user", "owner"), ("hostname", "address"), ("Host", "address")])
def test_keys_of_other_programs_get_a_hint(key: str, ours: str) -> None:
    with pytest.raises(HostsError, match=f"there is no key '{key}'; did you mean '{ours}'?"):
        parse_hosts(f'[wizard]\n{key} = "x"\n', "hosts.toml")


def test_a_host_has_resources_of_its_own() -> None:
    config = only("[wizard]\nresources = { scratch = 3, fpga = 2 }")
    assert config.counters == (("fpga", 2), ("scratch", 3))
    assert only('[wizard]\nbatch = "slurm"\nresources = { license = 1 }').counters == (("license", 1),)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("4", "resources must be a table, such as { fpga = 2 }, not 4"),
        ("{ fpga = 0.5 }", "resources has fpga = 0.5, where a whole number is needed"),
        ("{ gpu = 1 }", 'resources is wrong: "gpu" is no name for a resource of your own; choose another name'),
    ],
)
def test_other_resources_of_a_host_are_refused(value: str, sentence: str) -> None:
    assert sentence in problem(f"[wizard]\nresources = {value}")
