"""Every method of the client against a real manager, with the current names and those of version 0.2."""

from __future__ import annotations

import builtins
import json
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

import qcg.appscheduler.api.errors as old_errors
import qcg.pilotjob
from qcg.appscheduler.api import Manager as OldManager
from qcg.pilotjob.api import errors
from qcg.pilotjob.api.errors import (
    ConnectionError,
    QCGPJMAError,
    RequestRefusedError,
    TimeoutElapsed,
    WrongArgumentsError,
)
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import Manager
from tests.support.serving import Served, served
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("run"), "--nodes", "n1:2,n2:2") as service:
        yield service


@pytest.fixture(params=[Manager, OldManager], ids=["today", "version 0.2"])
def manager(service: Served, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    """A manager that finds the service as a job does."""
    monkeypatch.setenv("QCG_PM_ZMQ_ADDRESS", service.contact.address)
    monkeypatch.setenv("QCG_PM_CONTACT", str(service.run_dir / "contact.json"))
    with request.param() as manager:
        yield manager
        names = list(manager.list())
        manager.cancel(names)
        manager.wait4all(60)
        manager.remove(names)


def group(**programs: str) -> Jobs:
    jobs = Jobs()
    for name, line in programs.items():
        jobs.add(name=name, script=line)
    return jobs


def test_jobs_are_submitted_and_waited_for(manager: Manager):
    assert manager.submit(group(a="exit 0", b="exit 1")) == ["a", "b"]
    assert manager.wait4(["a", "b"], timeout=60) == {"a": "SUCCEED", "b": "FAILED"}
    manager.wait4all(60)


@pytest.mark.parametrize("names", ["a", ["a"], ("a",), {"a"}, iter(["a"])], ids=lambda names: type(names).__name__)
def test_names_are_a_string_or_any_collection(manager: Manager, names: Any):
    manager.submit(group(a="exit 0"))
    names = names if isinstance(names, str) else list(names) or ["a"]
    assert manager.wait4(names, 60) == {"a": "SUCCEED"}
    assert manager.status(tuple(names))["jobs"]["a"]["data"] == {"jobName": "a", "status": "SUCCEED"}
    assert manager.info(names)["jobs"]["a"]["data"]["runtime"]["exit_code"] == "0"
    assert list(manager.list(names)) == ["a"]
    assert manager.cancel(names)["errors"] == {"a": "job 'a' is already SUCCEED"}
    assert manager.remove(names) == {"removed": 1}


def test_warnings_about_jobs_go_to_the_log(manager: Manager, caplog: pytest.LogCaptureFixture):
    manager.submit(Jobs().add(name="slip", exec="echo", args=["${itt}"], iteration=2))
    assert "job 'slip': ${itt} is no variable and stays as it is; did you mean ${it}?" in caplog.messages


def test_jobs_that_can_never_run_go_to_the_log(manager: Manager, caplog: pytest.LogCaptureFixture):
    jobs = Jobs()
    for number in range(12):
        jobs.add(name=f"wide{number}", exec="true", numCores=99)
    assert len(manager.submit(jobs.add(name="fits", exec="false"))) == 13
    assert "job 'wide0' is FAILED and never runs: 99 cores requested, but only 4 exist" in caplog.messages
    assert "2 more jobs are FAILED and never run" in caplog.messages
    assert "fits" not in caplog.text


def test_several_arguments_in_one_string_go_to_the_log(caplog: pytest.LogCaptureFixture):
    Jobs().add(name="words", exec="echo", args="--T 3").add(name="word", exec="echo", args="3")
    assert caplog.messages == [
        "job 'words': args: \"--T 3\" is one argument with blanks in it; write a list for several"
    ]


def test_values_that_are_no_names_are_refused(manager: Manager):
    with pytest.raises(WrongArgumentsError, match="a string or a list of strings"):
        manager.status(7)  # type: ignore[arg-type]
    with pytest.raises(WrongArgumentsError, match="submit wants a Jobs object, not list"):
        manager.submit([])  # type: ignore[arg-type]


def test_list_returns_all_jobs_or_some(manager: Manager):
    manager.submit(group(a="exit 0", b="exit 0", c="exit 0"))
    manager.wait4all(60)
    assert manager.list() == {name: {"status": "SUCCEED"} for name in "abc"}
    assert list(manager.list(["c", "a", "nobody"])) == ["c", "a"]


def test_info_parsed_returns_objects(manager: Manager, service: Served):
    manager.submit(Jobs().add(name="a", script="exit $((${it} == 1))", iteration=2, wd="sub", numCores=2))
    manager.wait4("a", 60)
    info = manager.info_parsed(["a", "nobody"], withChilds=True)
    assert list(info) == ["a"]
    assert info["a"].status == "FAILED"
    assert [state for _, state in info["a"].history] == ["QUEUED", "EXECUTING", "FAILED"]
    first, second = info["a"].childs
    assert (first.name, first.status, first.exit_code, first.total_cores) == ("a:0", "SUCCEED", 0, 2)
    assert (second.name, second.status, second.exit_code, second.wdir) == ("a:1", "FAILED", 1, str(service.wd / "sub"))
    assert first.time is not None


def test_resources_are_counted(manager: Manager):
    resources = manager.resources()
    assert {key: resources[key] for key in ("total_nodes", "total_cores", "used_cores", "free_cores")} == {
        "total_nodes": 2,
        "total_cores": 4,
        "used_cores": 0,
        "free_cores": 4,
    }
    if isinstance(manager, OldManager):
        assert {key: resources[key] for key in ("totalNodes", "totalCores", "usedCores", "freeCores")} == {
            "totalNodes": 2,
            "totalCores": 4,
            "usedCores": 0,
            "freeCores": 4,
        }


def test_running_jobs_are_cancelled(manager: Manager):
    manager.submit(group(a="sleep 60", b="sleep 60"))
    assert manager.cancel("a") == {"canceled": 1}
    assert manager.wait4("a", 60) == {"a": "CANCELED"}
    assert manager.cancel(["a", "b"]) == {"canceled": 1, "errors": {"a": "job 'a' is already CANCELED"}}


def test_why_explains_the_state_of_a_job(manager: Manager):
    manager.submit(group(a="exit 3", b="sleep 60"))
    manager.wait4("a", 60)
    reasons = manager.why(["a", "nobody"])["jobs"]
    assert reasons["a"]["data"]["reason"] == "failed"
    assert "exit code 3" in reasons["a"]["data"]["sentence"]
    assert reasons["nobody"]["status"] != 0


def test_one_iteration_is_waited_for(manager: Manager):
    manager.submit(Jobs().add(name="a", script="[ ${it} != 1 ] || exec sleep 60", iteration=3))
    assert manager.wait4(["a:0", "a:2"], 60) == {"a:0": "SUCCEED", "a:2": "SUCCEED"}
    manager.cancel("a")
    assert manager.wait4(["a:1", "a"], 60) == {"a:1": "CANCELED", "a": "CANCELED"}


def test_iterations_that_never_started_are_waited_for(manager: Manager):
    manager.submit(group(wide="sleep 60"))
    manager.submit(Jobs().add(name="many", script="exit 0", iteration=1000, after="wide"))
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(manager.wait4, ["many:7", "many:999"], 60)
        manager.cancel("many")
        assert waiting.result(60) == {"many:7": "CANCELED", "many:999": "CANCELED"}


def test_a_wait_for_a_job_that_does_not_end_times_out(manager: Manager):
    manager.submit(group(a="sleep 60"))
    for wait in (
        lambda: manager.wait4("a", 0.2),
        lambda: manager.wait4all(0.2),
        lambda: manager.wait4_any_job_finish(0.2),
    ):
        began = time.monotonic()
        with pytest.raises(TimeoutElapsed):
            wait()
        assert 0.2 <= time.monotonic() - began < 30


def test_a_wait_with_a_timeout_of_zero_works_as_a_query(manager: Manager):
    manager.submit(group(a="exit 0", b="sleep 60"))
    manager.wait4("a", 60)
    assert manager.wait4("a", 0) == {"a": "SUCCEED"}
    with pytest.raises(TimeoutElapsed):
        manager.wait4("b", 0)
    with pytest.raises(TimeoutElapsed):
        manager.wait4all(0)


def test_the_error_of_a_timeout_names_the_pending_jobs(manager: Manager):
    manager.submit(group(**{f"j{number}": "sleep 60" for number in range(7)}))
    with pytest.raises(TimeoutElapsed, match="^after 0 s, 7 of 7 jobs have not ended: 'j0', .*'j4' and 2 more$"):
        manager.wait4([f"j{number}" for number in range(7)], 0)


def test_both_names_of_a_timeout_are_known(manager: Manager):
    manager.submit(group(a="sleep 60"))
    for call in (
        lambda: manager.wait4("a", timeout_secs=0),
        lambda: manager.wait4("a", timeout=0),
        lambda: manager.wait4all(timeout_secs=0),
        lambda: manager.wait4all(timeout=0),
        lambda: manager.wait4_any_job_finish(timeout_secs=0),
        lambda: manager.wait4_any_job_finish(timeout=0),
    ):
        with pytest.raises(TimeoutElapsed):
            call()


@pytest.mark.parametrize("timeout", ["5", "b", float("nan"), [1]])
def test_a_timeout_that_is_no_number_is_refused(manager: Manager, timeout: Any):
    with pytest.raises(WrongArgumentsError, match="a timeout is a number of seconds, not .* given as one list"):
        manager.wait4("a", timeout)
    with pytest.raises(WrongArgumentsError, match="not both"):
        manager.wait4("a", timeout=1, timeout_secs=1)


def test_cleanup_ends_subscriptions(service: Served):
    with Manager.of_run(service.run_dir) as manager:
        kept = manager.listen("JFI")
        with manager.listen("JFI") as events:
            assert events.wait(60)
    for closed in (kept, events):
        with pytest.raises(ConnectionError, match="closed|cleaned up"):
            closed.wait(60)
    with pytest.raises(ConnectionError, match="cleaned up"):
        manager.listen("JFI")


def test_cleanup_ends_the_subscription_of_another_thread(service: Served):
    with ThreadPoolExecutor(1) as other, Manager.of_run(service.run_dir) as manager:
        events = manager.listen("no such topic")
        waiting = other.submit(lambda: [events.take() for _ in iter(lambda: events.wait(60), None)])
        wait_for(waiting.running, what="the other thread")
        manager.cleanup()
        with pytest.raises(ConnectionError, match="closed|cleaned up"):
            waiting.result(60)


def test_system_status_describes_the_manager(manager: Manager):
    assert manager.system_status()["System"]["InstanceId"] == "x"
    assert manager.send_request({"request": "status", "options": {"allJobsFinished": True}}) == {
        "code": 0,
        "data": {"AllJobsFinished": True},
    }
    assert [Manager.is_status_finished(state) for state in ("SUCCEED", "OMITTED", "EXECUTING")] == [True, True, False]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda manager: manager.wait4("nobody"), "there is no job 'nobody'"),
        (lambda manager: manager.send_request({"request": "explode"}), "unknown request"),
        (lambda manager: manager.info("a", depth=3), "depth"),
        (lambda manager: manager.submit(Jobs().add(name="x", exec="true", after="nobody")), "nobody"),
    ],
    ids=range(4),
)
def test_a_refused_request_raises_an_error_with_the_reason(manager: Manager, call: Any, reason: str):
    with pytest.raises(ConnectionError, match=f"Request failed - .*{reason}") as caught:
        call(manager)
    assert isinstance(caught.value, RequestRefusedError)
    assert reason in caught.value.reason


def test_a_request_that_cannot_be_encoded_is_refused(manager: Manager):
    with pytest.raises(WrongArgumentsError, match="something that JSON cannot"):
        manager.send_request({"request": "submit", "jobs": [object()]})
    with pytest.raises(WrongArgumentsError, match="submit the jobs in several parts"):
        manager.send_request({"request": "submit", "jobs": ["x" * (65 << 20)]})


def test_errors_have_one_base_and_two_names():
    for name in ("InternalError", "InvalidJobDescriptionError", "JobNotDefinedError", "ConnectionError"):
        assert issubclass(getattr(errors, name), QCGPJMAError)
    for name in ("WrongArgumentsError", "FileError", "ServiceError"):
        assert issubclass(getattr(errors, name), QCGPJMAError)
    assert issubclass(ConnectionError, builtins.ConnectionError)
    assert not issubclass(TimeoutElapsed, QCGPJMAError)
    assert old_errors.InvalidJobDescription is errors.InvalidJobDescriptionError
    assert old_errors.JobNotDefined is errors.JobNotDefinedError
    assert old_errors.WrongArguments is errors.WrongArgumentsError
    assert old_errors.TimeoutElapsed is TimeoutElapsed


# -- finding the service ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["{}", "{host}:{port}", "localhost:{port}", "tcp://localhost:{port}"])
def test_an_address_is_enough_when_its_run_is_in_the_working_directory(
    service: Served, monkeypatch: pytest.MonkeyPatch, form: str
):
    monkeypatch.chdir(service.wd)
    host, _, port = service.contact.address.removeprefix("tcp://").rpartition(":")
    with Manager(form.format(service.contact.address, host=host, port=port)) as manager:
        assert manager.resources()["total_cores"] == 4


def test_the_newest_run_of_the_working_directory_is_found(service: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(service.wd)
    with Manager() as manager, Manager.of_run(str(service.run_dir)) as named, Manager.of_run(service.wd) as around:
        monkeypatch.chdir("/")
        assert manager.run_dir == named.run_dir == around.run_dir == service.run_dir


def test_an_address_without_a_manager_raises_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    began = time.monotonic()
    with pytest.raises(ConnectionError, match="there is no manager at tcp://127.0.0.1:9"):
        Manager("127.0.0.1:9")
    assert time.monotonic() - began < 20
    with pytest.raises(ConnectionError, match="No manager was found: there is no run"):
        Manager.of_run(tmp_path)
    with pytest.raises(WrongArgumentsError, match="is no address of a manager"):
        Manager("no-such-protocol://x:1")


def test_a_client_without_keys_raises_an_error(service: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConnectionError, match="does not let this client in"):
        Manager(service.contact.address)


# -- configuration ----------------------------------------------------------------------------------------------------


def test_unknown_configuration_keys_have_no_effect(service: Served, caplog: pytest.LogCaptureFixture):
    with Manager.of_run(service.run_dir, {"report_format": "json", "scheduler": 7, "pub_timeout": 300}):
        pass
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [
        "the configuration key 'report_format' is not known and has no effect",
        "the configuration key 'scheduler' is not known and has no effect",
    ]


def test_a_value_of_none_means_the_default(service: Served):
    with Manager.of_run(service.run_dir, {"poll_delay": None, "log_file": None}) as manager:
        assert manager.poll_delay == Manager.DEFAULT_POLL_DELAY == 5


@pytest.mark.parametrize(
    ("cfg", "reason"),
    [
        ({"poll_delay": float("nan")}, "'poll_delay' cannot be nan"),
        ({"poll_delay": "often"}, "'poll_delay' wants a number of seconds"),
        ({"request_timeout": -1}, "'request_timeout' cannot be negative"),
        ({"log_level": "loud"}, "the log level 'loud' is not known"),
    ],
)
def test_invalid_configuration_values_are_refused(service: Served, cfg: dict[str, Any], reason: str):
    with pytest.raises(WrongArgumentsError, match=reason):
        Manager.of_run(service.run_dir, cfg)


@pytest.mark.parametrize(
    ("cfg", "file"),
    [({"log_level": "DEBUG"}, ".qcgpjm-client/api.log"), ({"log_level": "debug", "log_file": "my.log"}, "my.log")],
)
def test_the_client_logs_every_request_on_demand(service: Served, tmp_path: Path, cfg: dict[str, Any], file: str):
    with Manager.of_run(service.run_dir, {**cfg, "wdir": tmp_path}) as manager:
        manager.resources()
    assert "request resourcesInfo" in (tmp_path / file).read_text()


@pytest.mark.parametrize(
    ("cfg", "file"),
    [
        ({}, ".qcgpjm-client/api.log"),
        ({"log_file": "my.log"}, "my.log"),
        ({"log_level": "info"}, ".qcgpjm-client/api.log"),
    ],
)
def test_the_client_logs_what_it_changes(service: Served, tmp_path: Path, cfg: dict[str, Any], file: str):
    for _ in range(2):  # the second client overwrites the file
        with Manager.of_run(service.run_dir, {**cfg, "wdir": tmp_path}) as manager:
            manager.wait4(manager.submit(group(logged="exit 0")), 60)
            with pytest.raises(RequestRefusedError) as refused:
                manager.submit(group(logged="exit 0"))
            manager.remove("logged")
    lines = [line.split(maxsplit=3)[2:] for line in (tmp_path / file).read_text().splitlines()]
    assert [" ".join(line) for line in lines] == [
        f"INFO connected to the manager at {service.contact.address}",
        "INFO request submit: 1 jobs",
        "INFO request submit: 1 jobs",
        f"INFO refused: {refused.value.reason}",
        "INFO request removeJob",
    ]
    assert (tmp_path / file).stat().st_mode & 0o777 == 0o600


def test_the_log_of_the_client_is_not_the_output_of_the_program(
    service: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    with Manager.of_run(service.run_dir, {"log_level": "debug", "wdir": tmp_path}) as manager:
        manager.resources()
    assert [record for record in caplog.records if record.levelno < logging.INFO] == []


def test_without_a_writable_directory_there_is_no_default_log(service: Served, tmp_path: Path):
    for cfg in ({"log_file": "", "wdir": tmp_path}, {"wdir": "/proc/nowhere"}):
        with Manager.of_run(service.run_dir, cfg) as manager:
            manager.resources()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("planted", ["link", "open directory"])
def test_the_default_log_is_not_written_to_a_directory_of_another_user(service: Served, tmp_path: Path, planted: str):
    directory, victim = tmp_path / ".qcgpjm-client", tmp_path / "victim"
    victim.write_text("precious")
    directory.mkdir(mode=0o700)
    if planted == "link":
        (directory / "api.log").symlink_to(victim)
    else:
        directory.chmod(0o777)
    with Manager.of_run(service.run_dir, {"wdir": tmp_path}) as manager:
        manager.resources()
    assert victim.read_text() == "precious"
    assert [path.name for path in directory.iterdir() if not path.is_symlink()] == []


# -- threads, latency -------------------------------------------------------------------------------------------------


def test_twenty_threads_share_one_manager(manager: Manager):
    def work(number: int) -> dict[str, str]:
        name = f"thread{number}"
        for _ in range(3):
            manager.submit(group(**{name: "exit 0"}))
            states = manager.wait4(name, 60)
            assert manager.info(name)["jobs"][name]["data"]["jobName"] == name
            assert manager.remove(name) == {"removed": 1}
        return states

    with ThreadPoolExecutor(20) as threads:
        results = list(threads.map(work, range(20)))
    assert results == [{f"thread{number}": "SUCCEED"} for number in range(20)]


def test_a_wait_in_another_thread_ends_when_the_manager_is_cleaned_up(service: Served):
    manager = Manager.of_run(service.run_dir)
    manager.submit(group(endless="sleep 60"))
    with ThreadPoolExecutor(3) as threads:
        waits: list[Future[Any]] = [threads.submit(manager.wait4, "endless"), threads.submit(manager.wait4all)]
        time.sleep(0.2)  # until the calls wait
        manager.cleanup()
        for wait in waits:
            with pytest.raises(ConnectionError, match="was cleaned up"):
                wait.result(60)
    with pytest.raises(ConnectionError, match="was cleaned up"):
        manager.list()
    manager.cleanup()
    service.data("cancelJob", jobNames=["endless"])
    service.wait("endless", "CANCELED")
    service.data("removeJob", jobNames=["endless"])


@pytest.mark.timed
def test_a_wait_ends_right_after_the_job(manager: Manager):
    """The job records its end. Measured in turns with a process that is waited for directly, because the machine may be
    busy."""
    delays, direct = [], []
    for number in range(10):
        ended = float(subprocess.run(["sh", "-c", "sleep 0.05; date +%s.%N"], capture_output=True, check=True).stdout)
        direct.append(time.time() - ended)
        manager.submit(Jobs().add(name=f"j{number}", script="sleep 0.05; date +%s.%N", stdout=f"end{number}"))
        manager.wait4(f"j{number}", 60)
        now = time.time()
        wd = manager.system_status()["System"]["Wd"]
        delays.append(now - float(Path(wd, f"end{number}").read_text()))
    median, bare = statistics.median(delays), statistics.median(direct)
    print(f"median {median * 1000:.1f} ms, of a program alone {bare * 1000:.1f} ms")
    assert median < max(0.02, 10 * bare)


def test_a_wait_without_events_queries_at_the_welcome_and_at_the_first_heartbeat_only(service: Served):
    with Manager.of_run(service.run_dir, {"poll_delay": 6}) as manager:  # three times the heartbeat interval
        manager.submit(group(idle="sleep 60"))
        asked = []
        ask = manager._pool.ask

        def note(body: bytes, timeout: float) -> dict[str, Any]:
            asked.append(json.loads(body)["request"])
            return ask(body, timeout)

        manager._pool.ask = note  # type: ignore[method-assign]
        with pytest.raises(TimeoutElapsed):
            manager.wait4("idle", 8)
        assert asked == ["jobStatus", "jobStatus"]
        manager.cancel("idle")
        manager.wait4all(60)
        manager.remove("idle")


def test_a_manager_without_events_is_polled(service: Served, monkeypatch: pytest.MonkeyPatch):
    with Manager.of_run(service.run_dir, {"poll_delay": 0.05}) as manager:
        silent = msgspec.structs.replace(manager._pool.target.contact, publisher="")
        manager._pool.target = msgspec.structs.replace(manager._pool.target, contact=silent)
        manager.submit(group(polled="sleep 0.2"))
        assert manager.wait4("polled", 60) == {"polled": "SUCCEED"}
        manager.wait4all(60)
        assert manager.wait4_any_job_finish(60) == ("polled", "SUCCEED")
        assert list(manager.as_completed("polled", 60)) == [("polled", "SUCCEED")]
        manager.remove("polled")


def test_importing_the_client_is_fast():
    """Measured in turns with the libraries that the client needs, because the machine may be busy: the limit is twice
    their time."""
    code = "import time; began = time.process_time(); import {}; print(time.process_time() - began)"
    took: dict[str, list[float]] = {"zmq, msgspec": [], "qcg.pilotjob.api.manager": []}
    for _ in range(5):
        for modules, seconds in took.items():
            line = [sys.executable, "-c", code.format(modules)]
            seconds.append(float(subprocess.run(line, capture_output=True, check=True, text=True).stdout))
    libraries, client = map(min, took.values())
    print(f"{client * 1000:.0f} ms, of the libraries {libraries * 1000:.0f} ms")
    assert client < 4 * libraries
    loaded = "import qcg.pilotjob.api.manager, sys; print('asyncio' in sys.modules or 'rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], capture_output=True, check=True).stdout == b"False\n"


@pytest.mark.timeout(600)
def test_programs_that_use_the_client_are_typed(tmp_path: Path):
    assert (Path(qcg.pilotjob.__file__).parent / "py.typed").exists()
    program = Path(__file__).parent / "programs/today.py"
    source = Path(qcg.pilotjob.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--config-file=", program],
        env={**os.environ, "MYPYPATH": str(source)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
