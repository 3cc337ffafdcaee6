"""Each request has a handler with its name, which takes what the dispatcher gives."""

from __future__ import annotations

import inspect

import msgspec
import pytest

from qcg.pilotjob.description.requests import REQUESTS
from qcg.pilotjob.interfaces.dispatch import CHANGING, handler_of


@pytest.mark.parametrize("request_type", REQUESTS.values())
def test_a_request_is_handled_by_the_function_with_its_name(request_type: type[msgspec.Struct]):
    handler = handler_of(request_type)
    assert inspect.iscoroutinefunction(handler)
    parameters = list(inspect.signature(handler).parameters.values())
    assert parameters[1].annotation == request_type.__name__
    assert [parameter.name for parameter in parameters[2:]] == (["counted"] if request_type in CHANGING else [])
