"""Jobs from templates: submission, results and shutdown."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from qcg.pilotjob.api.errors import (
    ConnectionError,
    InvalidJobDescriptionError,
    JobNotDefinedError,
    WrongArgumentsError,
)
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.executor_api.errors import ExecutorError
from qcg.pilotjob.executor_api.qcgpj_executor import QCGPJExecutor, fill
from qcg.pilotjob.executor_api.qcgpj_future import QCGPJFuture
from qcg.pilotjob.executor_api.templates.basic_template import BasicTemplate
from tests.support.waiting import wait_for

PATIENCE = 60.0


@pytest.fixture
def executor(run_dir: Path) -> Iterator[QCGPJExecutor]:
    with QCGPJExecutor(resources="2") as executor:
        yield executor


def sleeping(name: str = "'sleeper'") -> str:
    return f"{{'name': {name}, 'execution': {{'exec': 'sleep', 'args': ['600']}}}}"


def waiting(name: str, gate: Path) -> str:
    """Shell text that waits until this file exists."""
    script = f"until test -e {gate}; do sleep 0.01; done"
    return str({"name": name, "execution": {"exec": "sh", "args": ["-c", script]}})


# -- templates ------------------------------------------------------------------------------------------------------


def test_a_template_is_filled_with_defaults_then_dictionaries_then_named_values():
    template = ("{'name': '${a}${b}${c}', 'execution': {'exec': 'x'}}", {"a": 1, "b": 1, "c": 1})
    assert fill(template, {"b": 2, "c": 2}, None, {"c": 3})["name"] == "123"


def test_lists_are_substituted_as_they_are_written():
    filled = fill(BasicTemplate.template(), {"name": "a", "exec": "echo", "args": ["it's", 1]})
    assert filled["execution"]["args"] == ["it's", 1]


def test_a_placeholder_without_a_value_is_a_key_error():
    with pytest.raises(KeyError, match="exec"):
        fill(BasicTemplate.template(), {"name": "a"})


def test_the_environment_of_a_job_has_its_name():
    filled = fill("""
        {
            'name': 'a',
            'execution': {'exec': 'x', 'env': {'MINE': 'yes'}}
        }
    """)
    assert filled["execution"]["env"] == {"MINE": "yes", "QCG_PM_EXEC_API_JOB_ID": "${jname}"}


@pytest.mark.parametrize("text", ["{'name': ", "['a list']", "{'name': f()}"])
def test_a_template_that_is_no_dictionary_is_refused_with_its_text(text: str):
    with pytest.raises(InvalidJobDescriptionError) as refused:
        fill(text)
    assert text.strip() in str(refused.value)


# -- futures --------------------------------------------------------------------------------------------------------


def test_the_result_has_the_final_state_of_the_job(executor: QCGPJExecutor):
    good = executor.submit(BasicTemplate.template, None, name=7, exec="true")
    bad = executor.submit(BasicTemplate.template, {"exec": "false"}, name="bad")
    assert good.result(PATIENCE) == {"7": "SUCCEED"}
    assert bad.result(PATIENCE) == {"bad": "FAILED"}
    assert good.done()
    assert not good.running()
    assert not good.cancelled()


def test_a_future_runs_until_its_job_has_ended(executor: QCGPJExecutor, run_dir: Path):
    """Also while the job is queued, so that `while future.running()` waits for it."""
    gate = run_dir / "gate"
    first = executor.submit(lambda: waiting("first", gate))
    queued = executor.submit(
        lambda: "{'name': 'queued', 'execution': {'exec': 'true'}, 'dependencies': {'after': ['first']}}"
    )
    assert (queued.running(), queued.done(), queued.has_started) == (True, False, False)
    gate.touch()
    while queued.running():
        time.sleep(0.01)
    assert queued.result(0) == {"queued": "SUCCEED"}
    assert first.result(0) == {"first": "SUCCEED"}


def test_the_job_knows_its_name(executor: QCGPJExecutor, run_dir: Path):
    script = "echo -n $QCG_PM_EXEC_API_JOB_ID"
    executor.submit(BasicTemplate.template, name="named", exec="bash", args=["-c", script], stdout="name.out").result(
        PATIENCE
    )
    assert (run_dir / "name.out").read_text() == "named"


def test_futures_work_with_the_standard_library(executor: QCGPJExecutor):
    submitted = {executor.submit(BasicTemplate.template, name=f"job{n}", exec="true") for n in range(20)}
    done, pending = futures.wait(submitted, PATIENCE)
    assert (done, pending) == (submitted, set())
    assert set(futures.as_completed(submitted, PATIENCE)) == submitted


def test_map_takes_a_dictionary_for_each_job(executor: QCGPJExecutor):
    values = [{"name": f"job{n}", "exec": "true"} for n in range(3)]
    results: list[object] = list(executor.map(BasicTemplate.template, values))
    assert results == [{f"job{n}": "SUCCEED"} for n in range(3)]


def test_a_callback_may_submit_the_next_job(executor: QCGPJExecutor):
    called = threading.Event()
    following = []

    def follow(future: object) -> None:
        following.append(executor.submit(BasicTemplate.template, name="second", exec="true"))
        called.set()

    executor.submit(BasicTemplate.template, name="first", exec="true").add_done_callback(follow)
    assert called.wait(PATIENCE)
    assert following[0].result(PATIENCE) == {"second": "SUCCEED"}


def test_one_template_may_give_many_jobs_with_one_future(executor: QCGPJExecutor):
    text = "{'name': 'part_$${it}', 'iterate': [1, 4], 'execution': {'exec': 'true'}}"
    assert executor.submit(lambda: text).result(PATIENCE) == {f"part_{n}": "SUCCEED" for n in (1, 2, 3)}


def test_a_running_job_can_be_cancelled(executor: QCGPJExecutor):
    future = executor.submit(sleeping)
    wait_for(lambda: future.has_started, what="the start of the job")
    assert future.cancel()
    assert future.cancelled()
    assert futures.wait([future], PATIENCE).done == {future}
    with pytest.raises(CancelledError):
        future.result()
    assert executor.qcgpj_manager.wait4("sleeper", PATIENCE) == {"sleeper": "CANCELED"}


def test_a_job_cancelled_by_another_client_gives_a_cancelled_future(executor: QCGPJExecutor):
    future = executor.submit(sleeping)
    executor.qcgpj_manager.cancel("sleeper")
    assert futures.wait([future], PATIENCE).done == {future}
    assert future.cancelled()


def test_a_job_that_has_ended_cannot_be_cancelled(executor: QCGPJExecutor):
    future = executor.submit(BasicTemplate.template, name="a", exec="true")
    future.result(PATIENCE)
    assert not future.cancel()
    assert not future.cancelled()


def test_waiting_for_a_result_ends_at_its_timeout(executor: QCGPJExecutor):
    future = executor.submit(sleeping)
    with pytest.raises(futures.TimeoutError):
        future.result(0.01)
    future.cancel()


def test_an_invalid_description_is_refused_at_once(executor: QCGPJExecutor):
    with pytest.raises(InvalidJobDescriptionError, match="exec"):
        executor.submit(lambda: "{'name': 'a', 'execution': {}}")


def test_a_name_that_is_taken_is_refused_at_once(executor: QCGPJExecutor):
    executor.submit(BasicTemplate.template, name="a", exec="true")
    with pytest.raises(ConnectionError, match="'a'"):
        executor.submit(BasicTemplate.template, name="a", exec="true")


# -- the end --------------------------------------------------------------------------------------------------------


def test_shutdown_waits_for_the_jobs(run_dir: Path):
    executor = QCGPJExecutor(resources="1")
    future = executor.submit(BasicTemplate.template, name="a", exec="sleep", args=["0.2"])
    executor.shutdown()
    assert executor.finished
    assert future.done()
    assert future.result() == {"a": "SUCCEED"}
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(BasicTemplate.template, name="b", exec="true")
    executor.shutdown()


def test_shutdown_without_waiting_lets_the_jobs_end(run_dir: Path):
    executor = QCGPJExecutor(resources="1")
    gate = run_dir / "gate"
    future = executor.submit(lambda: waiting("a", gate))
    executor.shutdown(wait=False)
    assert not future.done()
    gate.touch()
    assert future.result(PATIENCE) == {"a": "SUCCEED"}
    executor.shutdown()


def test_shutdown_can_cancel_jobs_that_have_not_started(run_dir: Path):
    executor = QCGPJExecutor(resources="1")
    gate = run_dir / "gate"
    first = executor.submit(lambda: waiting("a", gate))
    wait_for(lambda: first.has_started, what="the start of the job")
    second = executor.submit(BasicTemplate.template, name="b", exec="true")
    second.add_done_callback(lambda done: gate.touch())
    executor.shutdown(cancel_futures=True)
    assert first.result() == {"a": "SUCCEED"}
    assert second.cancelled()


def test_shutdown_in_a_callback_does_not_wait_and_lets_the_others_end(run_dir: Path):
    executor = QCGPJExecutor(resources="2")
    returned = threading.Event()

    def shut(done: futures.Future[dict[str, str]]) -> None:
        executor.shutdown()
        returned.set()

    other = executor.submit(BasicTemplate.template, name="other", exec="sleep", args=["1"])
    first = executor.submit(BasicTemplate.template, name="first", exec="true")
    first.add_done_callback(shut)
    assert returned.wait(PATIENCE)
    assert other.result(PATIENCE) == {"other": "SUCCEED"}
    executor.shutdown()


def test_a_future_follows_jobs_that_were_submitted_before(executor: QCGPJExecutor, run_dir: Path):
    manager = executor.qcgpj_manager
    waits = ["-c", "until test -e gate; do sleep 0.01; done"]
    names = manager.submit(Jobs().add(name="a", exec="true").add(name="b", exec="sh", args=waits))
    manager.wait4("a")
    future = QCGPJFuture(names, manager)
    assert not future.done()
    (run_dir / "gate").touch()
    assert future.result(PATIENCE) == {"a": "SUCCEED", "b": "SUCCEED"}
    assert QCGPJFuture("a", manager).result(PATIENCE) == {"a": "SUCCEED"}
    assert QCGPJFuture([], manager).result(0) == {}
    with pytest.raises(JobNotDefinedError, match="nobody"):
        QCGPJFuture("nobody", manager).result(PATIENCE)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_all_futures_end_when_the_executor_fails(executor: QCGPJExecutor, monkeypatch: pytest.MonkeyPatch):
    future = executor.submit(sleeping)
    wait_for(lambda: future.has_started, what="the start of the job")

    def fail(changes: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(executor._watch, "_changed", fail)
    with pytest.raises(ExecutorError, match="unforeseen"):
        future.result(PATIENCE)


def test_futures_get_a_connection_error_when_the_manager_is_gone(run_dir: Path):
    executor = QCGPJExecutor(resources="1")
    future = executor.submit(sleeping)
    wait_for(lambda: future.has_started, what="the start of the job")
    job = executor.qcgpj_manager.info_parsed("sleeper")["sleeper"].pid
    assert job is not None
    executor.qcgpj_manager.qcgpm_process.send_signal(signal.SIGKILL)
    with pytest.raises(ConnectionError):
        future.result(PATIENCE)
    executor.shutdown()
    agent = json.loads(next(run_dir.glob(".qcgpjm-service-*/agent-local.json")).read_bytes())["pid"]
    for pid in (agent, job):
        os.kill(pid, signal.SIGKILL)


def test_options_reach_the_manager(run_dir: Path, tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    with QCGPJExecutor(
        "--report-format",
        "json",
        wd=elsewhere,
        resources="3",
        reserve_core=True,
        enable_rt_stats=True,
        wrapper_rt_stats="/nowhere",
        log_level="DEBUG",
    ) as executor:
        assert executor.qcgpj_manager.resources()["free_cores"] == 2
        executor.submit(BasicTemplate.template, name="a", exec="true").result(PATIENCE)
    assert (elsewhere / "jobs.report").read_text().startswith("{")
    assert (elsewhere / "stdout").exists()


def test_an_unknown_log_level_is_refused():
    with pytest.raises(WrongArgumentsError, match="'loud'"):
        QCGPJExecutor(log_level="loud")
