"""The data of a dashboard about a run that has ended."""

from __future__ import annotations

import json

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.dashboard.conftest import HOSTILE
from tests.support.dashboard import Dashboard

pytestmark = pytest.mark.leaves_open("the dashboard of the module")


def test_the_summary_has_the_counts_of_the_run(dashboard: Dashboard):
    summary = dashboard.get("api/summary").json
    assert summary["jobs"] == {"SUCCEED": 2, "FAILED": 2, "OMITTED": 1}
    assert summary["iterations"] == {"SUCCEED": 5, "FAILED": 1}
    assert not summary["alive"]
    assert summary["control"] is False
    assert any("no luck" in line for group in summary["failed"] for line in group["last_lines"])


def test_jobs_are_listed_in_the_order_of_submission(dashboard: Dashboard):
    page = dashboard.get("api/jobs").json
    assert [line["name"] for line in page["lines"]] == ["prep", "sweep", "bad", "after", HOSTILE]
    assert page["total"] == 5
    second = dashboard.get("api/jobs", first=1, limit=2).json
    assert [line["name"] for line in second["lines"]] == ["sweep", "bad"]
    assert second["total"] == 5


def test_jobs_are_searched_filtered_and_sorted(dashboard: Dashboard):
    def names(**query: object) -> list[str]:
        return [line["name"] for line in dashboard.get("api/jobs", **query).json["lines"]]

    assert names(search="SWEEP") == ["sweep"]
    assert names(search="*e*") == ["prep", "sweep", "after", HOSTILE]
    assert names(state=["FAILED", "OMITTED"]) == ["sweep", "bad", "after"]
    assert names(sort="name", descending="true") == ["sweep", "prep", "bad", "after", HOSTILE]
    assert names(search="%") == []
    assert names(job="sweep", state="FAILED") == ["sweep:3"]
    assert names(job="sweep", first=4) == ["sweep:4", "sweep:5"]


def test_a_job_has_its_attempts_streams_and_dependencies(dashboard: Dashboard):
    job = dashboard.get("api/job", name="prep").json
    (attempt,) = job["attempts"]
    assert attempt["exit_code"] == 0
    assert attempt["started"] <= attempt["ended"]
    assert set(job["streams"]) == {"stdout", "stderr"}
    assert job["dependencies"] == [{"job": "sweep", "on": "prep", "kind": "after"}]
    assert json.loads(job["description"])["execution"]["exec"] == "sh"
    assert job["why"] == "it has succeeded"
    assert dashboard.get("api/job", name="sweep:3").json["why"] == "it failed: exit code 1"
    assert (
        "5 SUCCEED, 1 FAILED; the first that is FAILED, sweep:3" in dashboard.get("api/job", name="sweep").json["why"]
    )
    assert "waits for 'sweep'" in dashboard.get("api/job", name="after").json["why"]


@pytest.mark.parametrize(
    "name", ["none", "sweep:6", "sweep:x", "prep:0", "sweep:99999999999999999999", "\x00", "a" * 5000]
)
def test_a_job_that_does_not_exist_is_reported_in_one_sentence(dashboard: Dashboard, name: str):
    for path in ("api/job", "api/output", "api/graph"):
        reply = dashboard.get(path, name=name)
        assert reply.status in (400, 404) or (path == "api/graph" and ":" in name)
        if reply.status != 200:
            assert reply.error.endswith(".")
            assert "\x00" not in reply.error


def test_output_is_read_in_parts(dashboard: Dashboard):
    whole = dashboard.get("api/output", name="prep").json
    assert (whole["text"], whole["next"], whole["size"]) == ("prepared\n", 9, 9)
    assert dashboard.get("api/output", name="prep", offset=4).json["text"] == "ared\n"
    assert dashboard.get("api/output", name="prep", offset=-3).json["text"] == "ed\n"
    assert dashboard.get("api/output", name="prep", offset=100).json["text"] == ""
    assert dashboard.get("api/output", name="prep", stream="stderr").json["text"] == "careful\n"
    assert dashboard.get("api/output", name="bad", stream="stderr").json["text"] == "no luck\n"
    assert dashboard.get("api/output", name="sweep:1").status == 404


def test_hostile_names_are_only_text(dashboard: Dashboard):
    job = dashboard.get("api/job", name=HOSTILE)
    assert job.json["line"]["name"] == HOSTILE
    assert job.headers["content-type"] == "application/json"


def test_the_graph_has_what_is_around_a_job(dashboard: Dashboard):
    graph = dashboard.get("api/graph", name="sweep").json
    assert {node["name"]: node["state"] for node in graph["nodes"]} == {
        "sweep": "FAILED",
        "prep": "SUCCEED",
        "after": "OMITTED",
    }
    assert {(edge["job"], edge["on"]) for edge in graph["edges"]} == {("sweep", "prep"), ("after", "sweep")}
    assert not graph["cut"]
    assert [node["name"] for node in dashboard.get("api/graph", name="prep", depth=1).json["nodes"]] == [
        "prep",
        "sweep",
    ]


def test_the_timeline_shows_what_the_registry_has(dashboard: Dashboard):
    timeline = dashboard.get("api/timeline", width=2000).json
    bars = [bar for row in timeline["rows"] for bar in row.get("attempts") or []]
    assert sorted(bar["name"] for bar in bars) == sorted([HOSTILE, "bad", "prep", *(f"sweep:{n}" for n in range(6))])
    usage = dashboard.get("api/usage", bins=10).json
    assert sum(usage["starts"]) == sum(usage["ends"]) == len(bars)
    assert sum(usage["failures"]) == 2
    nodes = dashboard.get("api/timeline", level="node").json
    assert nodes["lanes_total"] == 1


def test_the_analysis_has_gaps_and_launches(dashboard: Dashboard):
    analysis = dashboard.get("api/analysis").json
    assert analysis["attempts"] == 9
    assert analysis["launches"]["most"] >= analysis["launches"]["median"] >= 0
    assert [node["attempts"] for node in analysis["nodes"]] == [9]
    assert len(analysis["cores"]) == 4


def test_metrics_are_openmetrics(dashboard: Dashboard):
    reply = dashboard.raw("GET", "/metrics", {"Authorization": f"Bearer {dashboard.token}"})
    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    assert list(text_string_to_metric_families(reply.body.decode()))


def test_a_run_outside_of_a_batch_system_has_no_allocations(dashboard: Dashboard):
    assert dashboard.get("api/allocations").json == {"allocations": []}


def test_a_long_poll_answers_at_once_when_the_summary_is_another(dashboard: Dashboard):
    at = dashboard.get("api/poll", after=1).json["at"]
    assert dashboard.get("api/summary").json["at"] == at


def test_pages_behind_a_proxy_have_the_same_addresses(dashboard: Dashboard):
    """Some proxies leave their own path in front of that of the page."""
    for prefix in ("", "/node/n1/8080", "/user/me/proxy/absolute/1"):
        assert dashboard.raw("GET", f"{prefix}/api/summary", {"Cookie": dashboard.cookie}).status == 200
        assert (
            dashboard.raw("GET", f"{prefix}/", {"Cookie": dashboard.cookie})
            .headers["content-type"]
            .startswith("text/html")
        )
        exchanged = dashboard.raw("GET", f"{prefix}/?token={dashboard.token}")
        assert exchanged.headers["location"] == "./"
        assert "Path=" not in exchanged.headers["set-cookie"]


def test_files_of_the_page_are_not_sent_again_when_unchanged(dashboard: Dashboard):
    first = dashboard.raw("GET", "/", {"Cookie": dashboard.cookie})
    again = dashboard.raw("GET", "/", {"Cookie": dashboard.cookie, "If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
