"""Jobs on remote hosts in both forms."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from qcg.pilotjob.api.errors import InvalidJobDescriptionError
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.description.model import JobDescription, Remote
from qcg.pilotjob.description.parse import simple_to_standard
from tests.description.helpers import parse, parse_one, problems_of, simple, standard

REMOTE: dict[str, Any] = {
    "host": "wizard",
    "owner": "hobo",
    "directives": {"--partition": "debug", "--nice": 5, "--exclusive": ""},
    "inputs": ["data/*.csv", "model/"],
    "outputs": ["result/"],
}


def remote(**keys: Any) -> dict[str, Any]:
    return {**standard(), "remote": keys}


def test_both_forms_name_the_host_and_the_files() -> None:
    one, other = parse_one(remote(**REMOTE)), parse_one(simple(**REMOTE))
    assert one == other
    assert one.request.host == "wizard"
    assert one.remote == Remote(
        "hobo",
        {"--partition": "debug", "--nice": "5", "--exclusive": ""},
        ("data/*.csv", "model/"),
        ("result/",),
    )


def test_a_job_without_a_host_is_not_remote() -> None:
    assert (parse_one(standard()).request.host, parse_one(standard()).remote) == ("", None)
    assert parse_one(simple(host=None, inputs=None)) == parse_one(simple())


def test_one_pattern_may_be_a_string() -> None:
    described = parse_one(simple(host="*", inputs="a.txt", outputs="b.txt"))
    assert described.request.host == "*"
    assert described.remote == Remote(inputs=("a.txt",), outputs=("b.txt",))
    assert simple_to_standard(simple(host="*", inputs="a.txt"))["remote"] == {"host": "*", "inputs": ["a.txt"]}


def test_the_registry_keeps_what_a_job_says_about_its_host() -> None:
    described = parse_one(remote(**REMOTE))
    stored = msgspec.msgpack.encode(described)
    assert msgspec.msgpack.decode(stored, type=JobDescription) == described


def test_variables_are_substituted_in_files_and_directives() -> None:
    described = parse_one(
        {
            **remote(host="${sname}", inputs=["${jname}/${it}"], directives={"--job-name": "${jname}-${rcnt}"}),
            "iteration": 3,
        }
    )
    assert described.request.host == "eagle"
    assert described.remote == Remote(directives={"--job-name": "a-7"}, inputs=("a/${it}",))


def test_jobs_expanded_from_one_description_may_name_different_hosts() -> None:
    described = parse({**remote(host="wizard${it}"), "name": "j${it}", "iteration": 2})
    assert [job.request.host for job in described] == ["wizard0", "wizard1"]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (
            {},
            'jobs[0].remote: the key "host" is missing; it names the host in hosts.toml, or "*" for any host with room',
        ),
        ({"host": ""}, 'jobs[0].remote.host: must be the name of a host or "*", without spaces'),
        ({"host": "a b"}, 'jobs[0].remote.host: must be the name of a host or "*", without spaces'),
        ({"host": 5}, "jobs[0].remote.host: must be a string, not a number"),
        ({"host": "*", "owner": "me"}, "jobs[0].remote.owner: the owner belongs to one host; name that host"),
        ({"host": "w", "inputs": ["../x"]}, 'jobs[0].remote.inputs[0]: "../x" must be a relative path without ..'),
        ({"host": "w", "outputs": "/x"}, 'jobs[0].remote.outputs: "/x" must be a relative path without ..'),
        ({"host": "w", "inputs": [""]}, "jobs[0].remote.inputs[0]: is empty"),
        ({"host": "w", "inputs": ["a\nb"]}, "jobs[0].remote.inputs[0]: holds a line break"),
        ({"host": "w", "directives": {"": "x"}}, "jobs[0].remote.directives: the name of an option must not be empty"),
        ({"host": "w", "input": ["a"]}, 'jobs[0].remote.input: unknown key; did you mean "inputs"?'),
        ({"host": "w", "user": "me"}, 'jobs[0].remote.user: unknown key; did you mean "owner"?'),
        ({"host": "w", "ouputs": ["a"]}, 'jobs[0].remote.ouputs: unknown key; did you mean "outputs"?'),
    ],
)
def test_problems_are_sentences_with_their_path(keys: dict[str, Any], problem: str) -> None:
    assert problems_of(remote(**keys)) == [problem]


def test_keys_in_the_wrong_place_get_a_hint() -> None:
    assert problems_of({**standard(), "host": "wizard"}) == ['jobs[0].host: unknown key; it belongs inside "remote"']
    assert problems_of(simple(remote={"host": "wizard"})) == [
        "jobs[0].remote: unknown key; in the simple form its keys, such as host and inputs, are top-level keys"
    ]
    assert problems_of(simple(inputs=["a"])) == ['jobs[0].inputs: is for jobs on a remote host; give the job a "host"']


def test_a_group_of_jobs_takes_remote_jobs_in_both_forms() -> None:
    jobs = Jobs().add(name="a", exec="date", host="wizard", inputs="data/")
    jobs.add_std(name="b", execution={"exec": "date"}, remote={"host": "*"})
    assert [job["remote"] for job in jobs.jobs()] == [{"host": "wizard", "inputs": ["data/"]}, {"host": "*"}]
    with pytest.raises(InvalidJobDescriptionError, match=r"job\.inputs\[0\]: \"\.\./a\" must be a relative path"):
        Jobs().add(name="a", exec="date", host="wizard", inputs=["../a"])


def test_files_are_not_copied_to_an_absolute_working_directory() -> None:
    (problem,) = problems_of(simple(host="wizard", wd="/scratch/me", outputs="result"))
    assert problem.endswith(
        'wd: must be a relative path in a job with "outputs": they are copied below the run directory'
    )
    assert parse_one(simple(host="wizard", wd="/scratch/me")).execution.wd == "/scratch/me"
