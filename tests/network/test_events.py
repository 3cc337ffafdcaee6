"""Published events: every change of a job and of its iterations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from qcg.pilotjob.core import finalize
from tests.support.pilot import job
from tests.support.serving import Bare, Served, served


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("run"), "--nodes", "2") as service:
        yield service


def next_event(subscriber: Bare) -> tuple[str, dict[str, Any]]:
    message = subscriber.receive()
    assert message is not None, "there was no event"
    assert len(message) == 1
    topic, _, body = message[0].partition(b" ")
    return topic.decode(), json.loads(body)


def events_until(subscriber: Bare, last: str) -> list[tuple[str, dict[str, Any]]]:
    """All events up to the first of the topic `last`."""
    events = [next_event(subscriber)]
    while events[-1][0] != last:
        events.append(next_event(subscriber))
    return events


def test_a_job_is_followed_from_state_to_state(service: Served):
    with service.subscriber("JST", "JFI", "NOJ") as subscriber:
        service.submit(job("one", "true"))
        events = events_until(subscriber, "NOJ")
    assert [(topic, event.get("job"), event.get("state")) for topic, event in events] == [
        ("JST", "one", "SCHEDULED"),
        ("JST", "one", "EXECUTING"),
        ("JST", "one", "SUCCEED"),
        ("JFI", "one", "SUCCEED"),
        ("NOJ", None, None),
    ]
    assert {event["manager"] for _, event in events} == {"x"}
    assert all("it" not in event for _, event in events)


def test_iterations_are_followed_and_their_job_ends_with_its_own_state(service: Served):
    script = "exit $((${it} == 6))"
    with service.subscriber("") as subscriber:
        service.submit(job("many", "sh", "-c", script, iteration={"start": 5, "stop": 8}))
        events = events_until(subscriber, "NOJ")
    ended = {event["it"]: event["state"] for topic, event in events if topic == "IFI"}
    assert ended == {5: "SUCCEED", 6: "FAILED", 7: "SUCCEED"}
    for index in (5, 6, 7):
        states = [event["state"] for topic, event in events if topic == "IST" and event["it"] == index]
        assert states == ["SCHEDULED", "EXECUTING", ended[index]]
    assert [event["state"] for topic, event in events if topic == "JST"] == ["EXECUTING", "FAILED"]
    (of_job,) = [event for topic, event in events if topic == "JFI"]
    assert (of_job["job"], of_job["state"]) == ("many", "FAILED")


def test_jobs_that_never_start_have_end_events(service: Served):
    with service.subscriber("JFI") as subscriber:
        service.submit(
            job("bad", "false"),
            job("omitted", "true", after=["bad"]),
            job("giant", "true", numCores={"exact": 100}),
            job("unstartable", "/no/such/program"),
        )
        ended = {event["job"]: event["state"] for _, event in (next_event(subscriber) for _ in range(4))}
    assert ended == {"bad": "FAILED", "omitted": "OMITTED", "giant": "FAILED", "unstartable": "FAILED"}


def test_cancelled_jobs_have_end_events(service: Served):
    service.submit(job("long", "sleep", "60", numCores={"exact": 2}), job("waiting", "true"))
    service.wait("long", "EXECUTING")
    with service.subscriber("JFI", "NOJ") as subscriber:
        service.data("cancelJob", jobNames=["waiting", "long"])
        events = events_until(subscriber, "NOJ")
    assert [(event["job"], event["state"]) for topic, event in events if topic == "JFI"] == [
        ("waiting", "CANCELED"),
        ("long", "CANCELED"),
    ]


def test_a_heartbeat_announces_iterations_that_end_together_while_others_continue(service: Served):
    many = {"stop": finalize.MAX_SINGLE_TRANSITIONS + 100}
    service.submit(
        job("first", "sh", "-c", "[ ${it} = 0 ] || sleep 60", iteration=many),
        job("second", "sleep", "60", iteration=many, after=["first:${it}"]),
    )
    service.wait("first:0", "SUCCEED")
    with service.subscriber("IFI", "BEAT") as subscriber:
        before = events_until(subscriber, "BEAT")[-1][1]["numbers"]["IFI"]
        service.data("cancelJob", jobNames=["first"])
        events = events_until(subscriber, "BEAT")
        while events[-1][1]["numbers"]["IFI"] == before:  # one that was due
            events += events_until(subscriber, "BEAT")
        assert service.data("jobStatus", jobNames=["second"])["jobs"]["second"]["data"]["status"] != "OMITTED"
        ended = [event for topic, event in events if topic == "IFI"]
        assert events[-1][1]["numbers"]["IFI"] > before + len(ended)
    service.data("cancelJob", jobNames=["second"])
    for name in ("first", "second"):
        service.wait(name, "CANCELED")


def test_subscribers_receive_only_their_topics(service: Served):
    with service.subscriber("IFI") as iterations, service.subscriber("JFI") as jobs:
        service.submit(job("pair", "true", iteration=2))
        assert {next_event(iterations)[0], next_event(iterations)[0]} == {"IFI"}
        assert next_event(jobs)[1]["job"] == "pair"
        assert iterations.receive(0.1) is None
        assert jobs.receive(0.1) is None


def test_events_of_a_topic_are_numbered_without_gaps_and_a_heartbeat_has_the_last_number(service: Served):
    with service.subscriber("JFI", "BEAT") as subscriber, service.subscriber("JFI") as other:
        service.submit(*[job(f"numbered{number}", "true") for number in range(5)])
        numbers = [next_event(other)[1]["number"] for _ in range(5)]
        assert numbers == list(range(numbers[0], numbers[0] + 5))
        events = events_until(subscriber, "BEAT")
        while sum(topic == "JFI" for topic, _ in events) < 5:  # jobs may take longer than from one beat to the next
            events += events_until(subscriber, "BEAT")
        assert events[-1][1]["numbers"]["JFI"] == numbers[-1]


def test_a_later_subscriber_is_welcomed_and_misses_no_event_after_that(service: Served):
    service.submit(job("early", "true"))
    service.wait("early", "SUCCEED")
    with service.subscriber("JFI") as subscriber:
        service.submit(job("later", "true"))
        assert next_event(subscriber)[1]["job"] == "later"


@pytest.mark.timeout(300)
def test_a_subscriber_that_never_reads_costs_little_and_loses_only_its_own_events(service: Served):
    """A few small buffers, so that what it does not read stays with the manager."""
    jobs = [job(f"many{number}", "true", after=["blocked"]) for number in range(20_000)]
    names = [one["name"] for one in jobs]
    service.submit(job("blocker", "sleep", "600", numCores={"exact": 2}), job("blocked", "true", after=["blocker"]))

    def round_trip() -> None:
        """Forty thousand events."""
        service.submit(*jobs)
        service.data("cancelJob", jobNames=names)
        service.data("removeJob", jobNames=names)

    round_trip()
    round_trip()
    before = service.memory()
    context = zmq.Context()
    lazy = context.socket(zmq.SUB)
    lazy.linger, lazy.rcvhwm, lazy.rcvbuf = 0, 10, 4096
    lazy.curve_serverkey = service.contact.server_key.encode()
    lazy.curve_publickey = service.contact.client_public.encode()
    lazy.curve_secretkey = service.contact.client_secret.encode()
    lazy.subscribe("J")
    lazy.connect(service.contact.publisher)
    with service.subscriber("NOJ") as other:
        service.subscriber("X").close()  # welcomed after the lazy one
        for _ in range(4):
            round_trip()
        grown = service.memory() - before
        service.data("cancelJob", jobNames=["blocker"])
        assert next_event(other)[0] == "NOJ"
    context.destroy(linger=0)
    assert grown < 40
