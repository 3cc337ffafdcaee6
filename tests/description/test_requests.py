from __future__ import annotations

import json
from typing import Any

import pytest

from qcg.pilotjob.description import requests as r
from qcg.pilotjob.description.errors import DescriptionError, RequestError
from qcg.pilotjob.description.parse import parse_jobs
from tests.description.helpers import CONTEXT
from tests.description.samples import BAC16, EVERYTHING, SLEEP

FORGOTTEN = 'the key "request" is missing; to submit jobs, write {"request": "submit", "jobs": [ {...} ]}'


def request_error(request: Any) -> str:
    with pytest.raises(RequestError) as error:
        r.decode_request(request)
    return str(error.value)


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        ({"request": "listJobs"}, r.ListJobs),
        ({"request": "resourcesInfo"}, r.ResourcesInfo),
        ({"request": "hosts"}, r.Hosts),
        ({"request": "connectHost", "host": "wizard"}, r.ConnectHost),
        ({"request": "forgetHost", "host": "wizard"}, r.ForgetHost),
        ({"request": "drainNodes", "nodes": ["n1"], "reason": "hot"}, r.DrainNodes),
        ({"request": "resumeNodes", "nodes": "n1"}, r.ResumeNodes),
        ({"request": "pollJobs"}, r.PollJobs),
        ({"request": "pollJobs", "jobNames": "a"}, r.PollJobs),
        ({"request": "endedJobs"}, r.EndedJobs),
        ({"request": "endedJobs", "after": 3}, r.EndedJobs),
        ({"request": "finish"}, r.Finish),
        ({"request": "status"}, r.Status),
        ({"request": "control", "command": "finishAfterAllTasksDone"}, r.Control),
        ({"request": "submit", "jobs": [{}]}, r.Submit),
        ({"request": "jobStatus", "jobNames": []}, r.JobStatus),
    ],
)
def test_every_request_is_decoded_from_bytes_and_from_a_dictionary(request_: dict[str, Any], kind: type) -> None:
    assert type(r.decode_request(request_)) is kind
    assert type(r.decode_request(json.dumps(request_).encode())) is kind


@pytest.mark.parametrize("name", ["jobStatus", "jobInfo", "cancelJob", "removeJob"])
@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ({"jobNames": ["a", "b:1", "a"]}, ["a", "b:1"]),
        ({"jobNames": "a"}, ["a"]),
        ({"jobName": "a"}, ["a"]),
        ({"jobNames": ["a"], "jobName": "b"}, ["a", "b"]),
        ({"jobNames": []}, []),
    ],
)
def test_jobs_are_named_in_every_documented_way(name: str, keys: dict[str, Any], names: list[str]) -> None:
    request = r.decode_request({"request": name, **keys})
    assert isinstance(request, (r.JobStatus, r.JobInfo, r.CancelJob, r.RemoveJob))
    assert request.names == names


def test_options_are_off_unless_switched_on() -> None:
    for params, childs in [(None, False), ({}, False), ({"withChilds": True}, True)]:
        info = r.decode_request({"request": "jobInfo", "jobNames": [], "params": params})
        assert isinstance(info, r.JobInfo)
        assert info.with_childs is childs
    for options, only in [(None, False), ({}, False), ({"allJobsFinished": True}, True)]:
        status = r.decode_request({"request": "status", "options": options})
        assert isinstance(status, r.Status)
        assert status.all_jobs_finished is only


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"request": "sumbit"}, 'unknown request "sumbit"; did you mean "submit"?'),
        ({"request": "list_jobs"}, 'unknown request "list_jobs"; did you mean "listJobs"?'),
        ({"request": "zzz"}, 'unknown request "zzz"; known here: submit, control, listJobs'),
        ({}, 'the key "request" must hold the name of a request, one of: submit, control'),
        ({"jobs": [{}]}, FORGOTTEN),
        ({"exec": "true"}, FORGOTTEN),
        ({"request": 1}, 'the key "request" must hold the name of a request'),
        ([], 'a request must be an object with the key "request"'),
        (b"7", 'a request must be an object with the key "request"'),
        (b"", "the request is not valid JSON"),
        (b"{'request': 'finish'}", "the request is not valid JSON"),
        (b"\xff\xfe", "the request is not valid JSON"),
        (b'{"request": "\xff"}', "the request is not valid UTF-8 text"),
        (b'{"request": "submit", "jobs": [' + b"[" * 100_000, "the request nests too many levels deep"),
        ({"request": "submit"}, 'the key "jobs" is missing'),
        ({"request": "submit", "jobs": []}, "jobs: must not be empty"),
        ({"request": "submit", "jobs": {}}, "jobs: must be an array, not an object"),
        ({"request": "submit", "job": [{}], "jobs": [{}]}, 'job: unknown key; did you mean "jobs"?'),
        ({"request": "control"}, 'the key "command" is missing'),
        (
            {"request": "control", "command": "finishAfterAllTaskDone"},
            'command: unknown value "finishAfterAllTaskDone"; did you mean "finishAfterAllTasksDone"?',
        ),
        ({"request": "control", "command": 1}, "command: must be a string, not a number"),
        ({"request": "cancelJob"}, 'the key "jobNames" is missing'),
        ({"request": "jobInfo", "jobNames": None}, 'the key "jobNames" is missing'),
        ({"request": "endedJobs", "after": "3"}, "after: must be a whole number, not a string"),
        ({"request": "jobStatus", "jobNames": 5}, "jobNames: must be a string or an array, not a number"),
        ({"request": "jobStatus", "jobNames": ["a", 5]}, "jobNames[1]: must be a string, not a number"),
        ({"request": "jobInfo", "jobNames": "a", "params": {"withChild": True}}, "params.withChild: unknown key"),
        ({"request": "status", "options": {"allJobsFinished": 1}}, "options.allJobsFinished: must be true or false"),
        ({"request": "finish", "now": True}, "now: unknown key"),
    ],
)
def test_an_invalid_request_is_rejected_with_a_message(request_: Any, sentence: str) -> None:
    assert request_error(request_).startswith(sentence)


def test_a_rejected_request_has_its_path_in_the_file() -> None:
    with pytest.raises(DescriptionError) as error:
        r.decode_request({"request": "finish", "now": True}, "[3]")
    assert str(error.value) == "[3].now: unknown key; known here: cancel"


@pytest.mark.parametrize(("file", "jobs"), [(SLEEP, 1), (BAC16, 32), (EVERYTHING, 13)])
def test_a_request_file_is_read_to_the_last_job(file: list[Any], jobs: int) -> None:
    requests = [r.decode_request(raw) for raw in r.decode_request_file(json.dumps(file).encode())]
    submit = requests[0]
    assert isinstance(submit, r.Submit)
    assert len(parse_jobs(submit.jobs, CONTEXT)) == jobs
    assert len(requests) == len(file)


def test_each_index_of_the_second_stage_waits_for_the_same_index_of_the_first() -> None:
    jobs = parse_jobs(BAC16[0]["jobs"], CONTEXT)
    assert [job.after for job in jobs[16:]] == [(job.name,) for job in jobs[:16]]
    assert jobs[31].name == "amber_bac16_16"
    assert jobs[31].execution.args == ("${root_wd}/bac-amber.sh", "16")
    assert jobs[31].execution.stdout == "logs/amber_bac16_16.stdout"


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf", b"\n  "])
@pytest.mark.parametrize(
    ("content", "alone"),
    [
        ({"request": "submit", "jobs": [{"name": "a", "exec": "date"}]}, None),
        ({"request": "finish"}, None),
        ({}, None),
        ({"jobs": [{"name": "a", "exec": "date"}]}, None),
        ({"name": "a", "exec": "date"}, {"request": "submit", "jobs": [{"name": "a", "exec": "date"}]}),
    ],
)
def test_a_file_with_one_object_is_a_file_with_one_request(mark: bytes, content: Any, alone: Any) -> None:
    (found,) = r.decode_request_file(mark + json.dumps(content).encode())
    assert json.loads(bytes(found)) == (alone or content)


DIGITS = "9" * 5000


@pytest.mark.parametrize("number", [DIGITS, f"-{DIGITS}", f"{DIGITS}.5", "1e5000"])
@pytest.mark.parametrize(
    "place",
    [
        '"numCores": NUMBER',
        '"iteration": [NUMBER]',
        '"iterate": [0, NUMBER]',
        '"wt": NUMBER',
        '"args": [NUMBER]',
        '"other": NUMBER',
    ],
)
def test_a_number_with_thousands_of_digits_is_rejected_with_a_message(place: str, number: str) -> None:
    text = f'{{"name": "a", "exec": "date", {place.replace("NUMBER", number)}}}'
    sentence = "holds a number with too many digits; write it as a string"
    with pytest.raises(DescriptionError) as error:
        parse_jobs([text.encode()], CONTEXT)
    assert str(error.value) == f"jobs[0]: the job {sentence}"
    assert request_error(f'{{"request": "jobStatus", "jobNames": {number}}}'.encode()) == f"the request {sentence}"


def test_a_python_number_with_thousands_of_digits_is_rejected_with_a_message() -> None:
    assert request_error({"request": "jobStatus", "jobNames": 10**5000}) == (
        "the request holds a number with too many digits; write it as a string"
    )


def test_a_byte_order_mark_is_ignored() -> None:
    assert r.decode_request_file(b"\xef\xbb\xbf[]") == []


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"7", "a request file must hold one request, or an array of requests"),
        (b'"{}"', "a request file must hold one request, or an array of requests"),
        (b'{"request": "fin', "the request file is not valid JSON: Input data was truncated"),
        (b'{"request": "finish"} {}', "the request file is not valid JSON"),
        (
            b'\n{"request":\n finish}',
            "the request file is not valid JSON: invalid character (byte 15), line 3",
        ),
        (b"", "the request file is not valid JSON"),
        (b"[{", "the request file is not valid JSON: Input data was truncated"),
        (b'[{"request": "finish"}] x', "the request file is not valid JSON"),
        (b"hello", "the request file is not valid JSON"),
        (b"\x00\x01", "the request file is not valid JSON"),
        (b"[" * 100_000, "the request file nests too many levels deep"),
    ],
)
def test_a_file_that_is_not_a_list_of_requests_is_rejected(raw: bytes, sentence: str) -> None:
    with pytest.raises(RequestError) as error:
        r.decode_request_file(raw)
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize(("raw", "is_explained"), [(b"#!/bin/sh", True), (b"", True), (b"[{", False), (b"{", False)])
def test_the_error_for_a_file_that_is_no_json_explains_request_files(raw: bytes, is_explained: bool) -> None:
    with pytest.raises(RequestError) as error:
        r.decode_request_file(raw)
    explained = "; a request file is a JSON array of jobs or requests, see: qcg-pm schema"
    assert str(error.value).endswith(explained) is is_explained
