"""LocalManager: starts quickly, does not fork the program, and ends with it."""

from __future__ import annotations

import gc
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.api import local_process
from qcg.pilotjob.api.errors import ConnectionError, ServiceError
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager
from tests.support.processes import descendants, is_alive
from tests.support.waiting import wait_for


def local(wd: Path, *options: str, **cfg: Any) -> LocalManager:
    return LocalManager(["--wd", wd, "--nodes", 2, *options], cfg)


def test_options_in_one_string_are_refused():
    with pytest.raises(ServiceError, match=r"the options of a manager are a list, like .* and not '--nodes 2'"):
        LocalManager("--nodes 2")


def test_a_local_manager_starts_works_and_finishes_quickly(tmp_path: Path):
    """Measured in turns with a bare interpreter, because the machine may be busy: the limit is a multiple of its
    time."""
    bare, starts, finishes = [], [], []
    for number in range(5):
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", "import asyncio, click, msgspec, sqlite3, zmq"], check=True)
        bare.append(time.monotonic() - began)
        began = time.monotonic()
        manager = local(tmp_path / str(number))
        starts.append(time.monotonic() - began)
        assert manager.wait4(manager.submit(Jobs().add(name="a", exec="true")), 60) == {"a": "SUCCEED"}
        began = time.monotonic()
        manager.finish()
        finishes.append(time.monotonic() - began)
    print(f"start {statistics.median(starts):.2f} s, finish {statistics.median(finishes):.2f} s")
    assert statistics.median(starts) < 10 * statistics.median(bare)
    assert statistics.median(finishes) < 10 * statistics.median(bare)


def test_a_local_manager_and_its_jobs_end_with_the_block(tmp_path: Path):
    with local(tmp_path) as manager:
        manager.submit(Jobs().add(name="a", exec="sleep", args=["60"]).add(name="b", exec="sleep", args=["60"]))
        wait_for(lambda: {entry["status"] for entry in manager.list().values()} == {"EXECUTING"}, what="the jobs")
    assert (tmp_path / "jobs.report").read_text().count("exit_code: -15\n") == 2, "at once, by a signal"
    assert manager.qcgpm_process.returncode is not None
    assert descendants() == set()


def test_a_local_manager_ends_after_an_error_in_the_block(tmp_path: Path):
    with pytest.raises(ZeroDivisionError), local(tmp_path) as manager:
        raise ZeroDivisionError
    assert manager.qcgpm_process.returncode is not None


def test_finish_and_cleanup_may_be_called_again(tmp_path: Path):
    manager = local(tmp_path)
    manager.finish()
    manager.finish()
    manager.cleanup()
    with pytest.raises(ConnectionError):
        manager.list()


def test_a_local_manager_can_be_ended_without_a_request(tmp_path: Path):
    manager = local(tmp_path)
    manager.kill_manager_process()
    assert manager.qcgpm_process.returncode == 0
    manager.cleanup()


def test_the_death_of_a_local_manager_is_noticed_and_finish_still_works(tmp_path: Path):
    manager = local(tmp_path, "--agent-linger", "0")
    manager.qcgpm_process.kill()
    with pytest.raises(ConnectionError):
        manager.wait4all()
    manager.finish()
    wait_for(lambda: not descendants(), what="the end of the agent")


def test_a_local_manager_knows_its_address_and_run_directory(tmp_path: Path):
    with local(tmp_path, "--id", "mine") as manager:
        assert manager.qcgpm_conf["run_dir"] == str(tmp_path / ".qcgpjm-service-mine")
        assert manager.qcgpm_conf["address"] == manager.system_status()["System"]["Zmqaddress"]
        assert not LocalManager.is_notebook()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--no-such-option"], "No such option"),
        (["--nodes", "none"], "none"),
        (["--wd", "/proc/nowhere"], "/proc/nowhere"),
        (["--resume", "nowhere"], "nowhere"),
    ],
    ids=range(4),
)
def test_invalid_options_raise_the_error_message_of_the_manager(run_dir: Path, options: list[str], sentence: str):
    with pytest.raises(ServiceError, match=r"the manager ended instead of starting \(exit code 2\)") as caught:
        LocalManager(options)
    assert sentence in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_manager_that_does_not_become_ready_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local_process, "_SERVICE", f"import time; time.sleep(600)\n{local_process._SERVICE}")
    with pytest.raises(ServiceError, match=r"was not ready within 0\.01 s"):
        local(tmp_path, init_timeout=0.01)


def test_a_local_manager_works_in_a_thread(tmp_path: Path):
    results = []

    def work() -> None:
        with local(tmp_path) as manager:
            results.append(manager.wait4(manager.submit(Jobs().add(name="a", exec="true")), 60))

    threads = [threading.Thread(target=work)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [{"a": "SUCCEED"}]


def test_several_local_managers_work_side_by_side(tmp_path: Path):
    with local(tmp_path / "one") as one, local(tmp_path / "two") as two:
        one.submit(Jobs().add(name="a", exec="true"))
        two.wait4all(60)
        assert two.list() == {}
        assert one.wait4("a", 60) == {"a": "SUCCEED"}


def test_the_program_is_not_forked_and_keeps_its_signals(tmp_path: Path):
    """Programs with threads must not be forked, and an interrupt of the program must not reach its jobs."""
    forks: list[None] = []
    os.register_at_fork(before=lambda: forks.append(None))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)}
    with local(tmp_path) as manager:
        assert os.getsid(manager.qcgpm_process.pid) != os.getsid(0)
        assert {number: signal.getsignal(number) for number in before} == before
    assert forks == []


def test_an_event_loop_of_the_program_is_not_disturbed(tmp_path: Path):
    """As in a notebook, whose cells run inside a loop."""
    import asyncio

    async def cell() -> dict[str, str]:
        with local(tmp_path) as manager:
            return manager.wait4(manager.submit(Jobs().add(name="a", exec="true")), 60)

    assert asyncio.run(cell()) == {"a": "SUCCEED"}


def test_a_program_without_standard_streams_works_too(tmp_path: Path):
    """As in a kernel of a notebook, whose streams are objects without descriptors."""
    program = (
        "import io, os, sys\n"
        "for number in (0, 1, 2): os.close(number)\n"
        "sys.stdin, sys.stdout, sys.stderr = io.StringIO(), io.StringIO(), io.StringIO()\n"
        "from qcg.pilotjob.api.manager import LocalManager\n"
        "from qcg.pilotjob.api.job import Jobs\n"
        "with LocalManager(['--nodes', '1']) as manager:\n"
        "    states = manager.wait4(manager.submit(Jobs().add(name='a', exec='true')), 60)\n"
        "open('states', 'w').write(str(states))\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "states").read_text() == "{'a': 'SUCCEED'}"


def test_files_of_the_program_do_not_shadow_modules_of_the_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("msgspec", "zmq", "click", "asyncio", "qcg"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)
    with local(tmp_path) as manager:
        assert manager.wait4(manager.submit(Jobs().add(name="a", exec="true")), 60) == {"a": "SUCCEED"}


def test_no_process_is_left_when_the_program_is_killed(tmp_path: Path):
    program = (
        "import time\n"
        "from qcg.pilotjob.api.manager import LocalManager\n"
        "from qcg.pilotjob.api.job import Jobs\n"
        "manager = LocalManager(['--nodes', '1'])\n"
        "manager.submit(Jobs().add(name='a', exec='sleep', args=['600']))\n"
        "while not manager.resources()['used_cores']: time.sleep(0.01)\n"
        "print(manager.qcgpm_process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    caller = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE)
    assert caller.stdout is not None
    service = int(caller.stdout.readline())
    assert is_alive(service)
    caller.kill()
    caller.communicate()
    wait_for(lambda: not descendants(), what="the end of service, agent and job")
    assert (
        "1 job is left, because the program that started the manager has ended"
        in (tmp_path / "service.log").read_text()
    )


def test_no_process_is_left_when_the_program_ends_without_finish(tmp_path: Path):
    program = "from qcg.pilotjob.api.manager import LocalManager\nmanager = LocalManager(['--nodes', '1'])\n"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, timeout=60, check=True)
    assert done.stderr == b""
    wait_for(lambda: not descendants(), what="the end of the service")


def test_a_dropped_object_ends_its_manager(tmp_path: Path):
    manager = LocalManager(["--nodes", "1", "--wd", tmp_path])
    process = manager.qcgpm_process
    del manager
    gc.collect()
    assert process.wait(60) == 0
