"""Arguments of the clients, and repetition of requests."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest

from qcg.pilotjob.api.client_helpers import may_repeat, name_list, time_limit
from qcg.pilotjob.api.errors import ConnectionError, NoManager, WrongArgumentsError
from qcg.pilotjob.description.requests import Request


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (7, "names of jobs are a string or a list of strings, not of type int"),
        (10**5000, "names of jobs are a string or a list of strings, not of type int"),
        (["a", 10**5000], "a name holds a number with too many digits; write it as a string"),
    ],
    ids=range(3),
)
def test_invalid_names_are_refused(names: Any, sentence: str):
    with pytest.raises(WrongArgumentsError) as caught:
        name_list(names)
    assert str(caught.value) == sentence


def test_a_timeout_may_be_arbitrarily_large():
    assert time_limit(10**5000, None).seconds == math.inf
    for negative in (-1, -0.5, -math.inf, -(10**5000)):
        with pytest.raises(WrongArgumentsError, match="a timeout must be at least 0 seconds"):
            time_limit(None, negative)
    assert time_limit(math.inf, None).seconds == math.inf
    assert time_limit(None, 2).seconds == 2
    for wrong in ("2", math.nan, [1]):
        with pytest.raises(WrongArgumentsError, match="a timeout is a number of seconds"):
            time_limit(wrong, None)


@pytest.mark.parametrize("request_type", get_args(Request), ids=lambda request_type: request_type.__name__)
def test_a_request_is_repeated_after_a_reconnect_if_it_changes_nothing(request_type: type[Request]):
    changing = {"submit", "control", "cancelJob", "removeJob", "rerunJob", "connectHost", "forgetHost", "finish"}
    changing |= {"holdJob", "releaseJob", "setJob"}
    changing |= {"drainNodes", "resumeNodes"}
    name = request_type.__struct_config__.tag
    perhaps_sent = ConnectionError("the connection was lost")
    assert may_repeat({"request": name}, perhaps_sent) is (name not in changing)


@pytest.mark.parametrize("name", ["submit", "finish"])
def test_a_request_that_was_not_sent_is_always_repeated(name: str):
    assert may_repeat({"request": name}, NoManager("there is no manager"))
