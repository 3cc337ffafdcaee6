"""The description of a batch system for its remote host."""

from __future__ import annotations

import json

import pytest

from qcg.pilotjob.cluster.remote_queue import RemoteQueue
from qcg.pilotjob.executors.ssh.batch import batch_record
from qcg.pilotjob.executors.ssh.config import HostConfig, HostsError
from qcg.pilotjob.host.remote.batch_queue import BatchQueue, BatchRefusal
from tests.support.memory_batch import register


def host(batch: str) -> HostConfig:
    return HostConfig("wizard", ("wizard",), "hosts.toml", batch=batch, submit_poll_interval=2.0, poll_interval=3.0)


def test_a_host_without_a_batch_system_gets_none():
    assert batch_record(host("background")) is None


def test_the_host_understands_the_record_with_its_own_intervals():
    record = batch_record(host("slurm"))
    queue = BatchQueue(json.loads(json.dumps(record)))
    assert (queue.label, queue.submit_poll_interval, queue.poll_interval) == ("Slurm", 2.0, 3.0)
    assert set(record or ()) == set(RemoteQueue.__struct_fields__)


def test_a_batch_system_that_remote_hosts_cannot_use_is_refused(monkeypatch: pytest.MonkeyPatch):
    register(monkeypatch)
    with pytest.raises(HostsError, match=r"hosts.toml: \[wizard\]: batch = 'memory' is not for remote hosts"):
        batch_record(host("memory"))


def directive_lines(own: dict[str, str]) -> list[str]:
    return BatchQueue(json.loads(json.dumps(batch_record(host("slurm"))))).directive_lines({}, own)


@pytest.mark.parametrize(
    ("name", "reserved"),
    [
        ("--array", "--array"),
        ("--array=1-3", "--array"),
        ("--arr", "--array"),
        ("--jo", "--job-name"),
        ("-a1-3", "-a"),
        ("-Jx", "-J"),
        ("-HJx", "-J"),
    ],
)
def test_every_spelling_of_a_reserved_option_is_refused(name: str, reserved: str):
    with pytest.raises(BatchRefusal, match=f"The directive {reserved} cannot be given, because the run depends on it"):
        directive_lines({name: ""})


@pytest.mark.parametrize("name", ["--hold --array=1-3", '"--array=1-3', "array", "-", "--", "#", "--\n--array"])
def test_a_directive_that_is_no_option_is_refused(name: str):
    with pytest.raises(BatchRefusal, match="is no option"):
        directive_lines({name: ""})


def test_other_options_are_written_as_they_are():
    own = {"--wait-all-nodes": "1", "--account": "abc", "-p": "a b", "-n4": "", "--mem=4G": "", "--hold": ""}
    lines = directive_lines(own)
    prefix = "#SBATCH "
    wanted = ["--wait-all-nodes=1", "--account=abc", '-p "a b"', "-n4", "--mem=4G", "--hold"]
    assert lines[-len(wanted) :] == [prefix + one for one in wanted]


def lines_of_template(template: str, **fields: str) -> list[str]:
    record = json.loads(json.dumps(batch_record(host("slurm"))))
    return BatchQueue({**record, "prefix": "#X ", "directives": [template]}).directive_lines(fields, {})


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"nodes": "2"}, "#X -l select=2"),
        ({"nodes": "2", "cores": "4"}, "#X -l select=2:ncpus=4"),
        ({"nodes": "2", "memory": "100"}, "#X -l select=2:mem=100mb"),
        ({"nodes": "2", "cores": "4", "memory": "100"}, "#X -l select=2:ncpus=4:mem=100mb"),
    ],
)
def test_parts_of_a_directive_are_left_out_by_themselves(fields: dict[str, str], line: str):
    assert lines_of_template("-l select={nodes}[:ncpus={cores}][:mem={memory}mb]", **fields) == [line]


def test_a_directive_is_left_out_as_a_whole_without_a_field_outside_of_brackets():
    assert lines_of_template("-l select={nodes}[:ncpus={cores}]", cores="4") == []


@pytest.mark.parametrize(
    ("template", "line"), [("-o {output}", '#X -o "/a b=c"'), ("--out={output}", '#X --out="/a b=c"')]
)
def test_the_values_of_short_and_long_options_are_quoted(template: str, line: str):
    assert lines_of_template(template, output="/a b=c") == [line]
