"""Dashboards of runs with a manager: events, actions, and managers that come and go."""

from __future__ import annotations

import ctypes
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dashboard import Dashboard, Events, copies_in
from tests.support.pilot import job, run_requests
from tests.support.serving import Served
from tests.support.waiting import wait_for


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    tmp_path.chmod(0o700)
    served = Served(tmp_path, "--nodes", "2")
    try:
        yield served
    finally:
        served.end()


def until(events: Events, **counts: int) -> dict[str, object]:
    """The first summary with these numbers of jobs."""
    while True:
        summary = events.next()
        if summary["jobs"] == counts:
            return summary


def test_counts_are_updated_without_a_request(served: Served):
    with Dashboard(served.wd) as dashboard, Events(dashboard) as events:
        assert events.next()["jobs"] == {}
        served.submit(job("one", "true"), job("two", "false"))
        summary = until(events, SUCCEED=1, FAILED=1)
        assert summary["alive"]


def test_several_browsers_get_the_same_events(served: Served):
    with Dashboard(served.wd) as dashboard:
        streams = [Events(dashboard) for _ in range(10)]
        try:
            served.submit(job("one", "true"))
            for events in streams:
                until(events, SUCCEED=1)
        finally:
            for events in streams:
                events.close()


def test_a_browser_that_does_not_read_delays_no_other(served: Served):
    with Dashboard(served.wd) as dashboard, Events(dashboard), Events(dashboard) as reading:
        for number in range(5):
            served.submit(job(f"job{number}", "true"))
            until(reading, SUCCEED=number + 1)


def test_reasons_come_from_the_manager(served: Served):
    with Dashboard(served.wd) as dashboard:
        served.submit(job("long", "sleep", "100", numCores=2), job("next", "true", numCores=2))
        served.wait("long", "EXECUTING")
        wait_for(lambda: dashboard.get("api/job", name="next").status == 200, what="the job in the copy")
        assert "it needs 2 cores" in dashboard.get("api/job", name="next").json["why"]


def test_output_grows_while_a_job_runs(served: Served):
    with Dashboard(served.wd) as dashboard:
        served.submit(
            job("talks", "sh", "-c", "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two", stdout="o")
        )
        wait_for(lambda: dashboard.get("api/output", name="talks").status == 200, what="output")
        first = wait_for(lambda: (found := dashboard.get("api/output", name="talks").json)["size"] and found)
        assert first["text"] == "one\n"
        (served.wd / "go").touch()
        more = wait_for(lambda: dashboard.get("api/output", name="talks", offset=first["next"]).json["text"])
        assert more == "two\n"


def test_collected_output_is_shown(tmp_path: Path):
    tmp_path.chmod(0o700)
    served = Served(tmp_path, "--nodes", "2", "--stream-output")
    try:
        served.submit(job("talks", "sh", "-c", "echo streamed; echo aside >&2"))
        served.wait("talks", "SUCCEED")
        with Dashboard(served.wd) as dashboard:
            wait_for(lambda: dashboard.get("api/output", name="talks").status == 200, what="output")
            found = wait_for(lambda: (one := dashboard.get("api/output", name="talks").json)["size"] and one)
            assert found["text"] == "streamed\n"
            assert dashboard.get("api/output", name="talks", offset=-4).json["text"] == "med\n"
            assert dashboard.get("api/output", name="talks", stream="stderr").json["text"] == "aside\n"
    finally:
        served.end()


def test_actions_are_refused_without_control(served: Served):
    served.submit(job("long", "sleep", "100"))
    served.wait("long", "EXECUTING")
    with Dashboard(served.wd) as dashboard:
        reply = dashboard.act("cancel", "long")
        assert reply.status == 403
        assert "--control" in reply.error
        served.wait("long", "EXECUTING")


def test_jobs_are_cancelled_held_released_and_run_again(served: Served):
    served.submit(job("long", "sleep", "100", numCores=2), job("next", "true", numCores=2))
    served.wait("long", "EXECUTING")
    with Dashboard(served.wd, "--control") as dashboard:
        assert dashboard.get("api/summary").json["control"] is True
        assert dashboard.act("hold", "next").json == {"message": "1 job or iteration was held."}
        assert dashboard.act("cancel", "long").json == {"message": "1 job or iteration was canceled."}
        served.wait("long", "CANCELED")
        served.wait("next", "QUEUED")
        assert dashboard.act("release", "next").json == {"message": "1 job or iteration was released."}
        served.wait("next", "SUCCEED")
        assert dashboard.act("rerun", "long").status == 200
        served.wait("long", "EXECUTING")
        refused = dashboard.act("cancel", "next", "none")
        assert refused.status == 409
        assert "there is no job 'none'" in refused.error
        partly = dashboard.act("cancel", "long", "none").json["message"]
        assert partly.startswith("1 job or iteration was canceled; not so: ")


def test_only_the_page_itself_acts(served: Served):
    served.submit(job("long", "sleep", "100"))
    served.wait("long", "EXECUTING")
    with Dashboard(served.wd, "--control") as dashboard:
        for headers in (
            {"Cookie": ""},
            {"Origin": ""},
            {"Origin": "http://evil.example"},
            {"Origin": "http://127.0.0.1:1"},
            {"X_QCG_PM": ""},
            {"Sec_Fetch_Site": "same-site"},
            {"Content_Type": "text/plain"},
            {"Host": "evil.example"},
        ):
            assert dashboard.act("cancel", "long", **headers).status in (401, 403, 415), headers
        served.wait("long", "EXECUTING")


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"action":"finish","names":["long"]}', b'{"action":"cancel","names":[]}', b"\xff"]
)
def test_actions_that_do_not_exist_are_refused(served: Served, body: bytes):
    with Dashboard(served.wd, "--control") as dashboard:
        headers = {
            "Cookie": dashboard.cookie,
            "Origin": f"http://{dashboard.host}",
            "X-QCG-PM": "1",
            "Content-Type": "application/json",
        }
        reply = dashboard.raw("POST", "/api/act", headers, body)
        assert reply.status == 400
        assert reply.error.endswith(".")


def test_the_dashboard_continues_when_the_manager_ends_and_when_it_is_resumed(served: Served):
    served.submit(job("one", "true"), job("long", "sleep", "100"))
    served.wait("long", "EXECUTING")
    with Dashboard(served.wd, "--control") as dashboard, Events(dashboard) as events:
        assert events.next()["alive"]
        served.kill()
        while events.next()["alive"]:
            pass
        assert dashboard.get("api/summary").json["alive"] is False
        assert [line["name"] for line in dashboard.get("api/jobs").json["lines"]] == ["one", "long"]
        assert "No manager is running" in dashboard.act("cancel", "long").error
        served.resume()
        while not events.next()["alive"]:
            pass
        served.submit(job("later", "true"))
        until(events, EXECUTING=1, SUCCEED=2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_dashboard_leaves_nothing_behind(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
):
    temporary = tmp_path / "tmp"
    temporary.mkdir(mode=0o700)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    path = temporary / "d.sock"
    with Dashboard(served.wd, "--socket", path) as dashboard:
        served.submit(job("one", "true"))
        with Events(dashboard) as events:
            until(events, SUCCEED=1)
            assert dashboard.get("api/jobs").json["total"] == 1
            assert copies_in(temporary)
            done = dashboard.end(number)
        assert done.returncode == 0, done
        assert "Traceback" not in done.stderr
    assert not path.exists()
    assert copies_in(temporary) == []


def test_a_signal_that_reaches_another_thread_than_the_main_one_ends_it(tmp_path: Path):
    """The system chooses the thread that gets a signal."""
    run_requests(tmp_path, [job("one", "true")])
    with Dashboard(tmp_path) as dashboard:
        pid = dashboard.process.pid
        others = [int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir() if thread.name != str(pid)]
        assert ctypes.CDLL(None).tgkill(pid, others[0], signal.SIGTERM) == 0
        assert dashboard.process.wait(30) == 0
        dashboard.process.communicate()
