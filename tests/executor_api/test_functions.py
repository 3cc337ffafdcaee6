"""Functions on persistent workers: results, errors, resources, and files that are left."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import pytest

from qcg.pilotjob.api.errors import ConnectionError, FileError, QCGPJMAError, WrongArgumentsError
from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.executor_api.errors import CallError, RemoteTraceback, WorkerLostError
from qcg.pilotjob.executor_api.functions import PilotExecutor
from tests.support.processes import is_alive
from tests.support.waiting import wait_for

PATIENCE = 60.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PilotExecutor]:
    """For tests that leave its workers as they were."""
    wd = tmp_path_factory.mktemp("shared")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(wd)  # the log of its client is there
        executor = PilotExecutor(wd=wd, server_args=["--nodes", "2"], idle_time=3600)
    with executor:
        # Both workers are there before the first test, and until the last.
        place = tmp_path_factory.mktemp("meeting")
        assert len(set(executor.map(meet, [place] * 2, [2] * 2))) == 2
        yield executor


@pytest.fixture
def executor(run_dir: Path) -> Iterator[PilotExecutor]:
    with PilotExecutor(server_args=["--nodes", "2"]) as executor:
        yield executor


def meet(place: Path, number: int) -> int:
    """Wait until this number of processes have started; the pid of this one."""
    (place / str(os.getpid())).touch()
    while len(list(place.iterdir())) < number:
        time.sleep(0.005)
    return os.getpid()


def until_file(path: Path) -> str:
    while not path.exists():
        time.sleep(0.005)
    return path.name


class Unpicklable(Exception):
    """An object that can be pickled and not unpickled."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


# -- results and errors ---------------------------------------------------------------------------------------------


def test_a_function_is_called_with_its_arguments(shared: PilotExecutor):
    assert shared.submit(divmod, 7, 2).result(PATIENCE) == (3, 1)
    assert shared.submit(lambda *args, fn, self: (args, fn, self), 1, fn=2, self=3).result(PATIENCE) == ((1,), 2, 3)


def test_functions_of_this_module_and_closures_can_be_called(shared: PilotExecutor):
    factor = 3

    def times(number: int) -> int:
        return factor * number

    assert shared.submit(times, 2).result(PATIENCE) == 6


def test_calls_run_in_few_persistent_processes(shared: PilotExecutor):
    pids = set(shared.map(lambda _: os.getpid(), range(50)))
    assert 1 <= len(pids) <= 2
    assert os.getpid() not in pids


def test_map_keeps_the_order(shared: PilotExecutor):
    assert list(shared.map(pow, range(200), [2] * 200)) == [n * n for n in range(200)]


def test_an_exception_is_returned_with_its_traceback(shared: PilotExecutor):
    def broken() -> None:
        raise KeyError("nothing here")

    with pytest.raises(KeyError, match="nothing here") as raised:
        shared.submit(broken).result(PATIENCE)
    assert isinstance(raised.value.__cause__, RemoteTraceback)
    assert "in broken" in str(raised.value.__cause__)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: sys.exit(3), r"SystemExit\(3\)"),
        (lambda: exec("raise KeyboardInterrupt"), "KeyboardInterrupt"),
        (lambda: threading.Lock(), "the result of .* cannot be brought back: .*pickle"),
        (lambda: (lambda error: exec("raise error", {"error": error}))(Unpicklable(1, 2)), "Unpicklable.*: 1 and 2"),
    ],
)
def test_results_that_cannot_be_pickled_raise_an_error(shared: PilotExecutor, function, message: str):
    with pytest.raises(CallError, match=message):
        shared.submit(function).result(PATIENCE)
    assert shared.submit(int, "1").result(PATIENCE) == 1


def test_arguments_that_cannot_be_pickled_are_refused_at_once(shared: PilotExecutor):
    lock = threading.Lock()
    with pytest.raises(CallError, match="the function .*<lambda> cannot be sent"):
        shared.submit(lambda: lock)
    with pytest.raises(CallError, match="the arguments for print cannot be sent"):
        shared.submit(print, lock)


def test_large_arguments_and_results_are_transferred(shared: PilotExecutor):
    text = os.urandom(1_000_000) * 50
    assert shared.submit(bytes.swapcase, text).result(PATIENCE) == text.swapcase()


def test_many_threads_may_call_at_once(shared: PilotExecutor):
    with futures.ThreadPoolExecutor(8) as threads:
        results = threads.map(lambda n: shared.submit(abs, -n).result(PATIENCE), range(200))
    assert list(results) == list(range(200))


def test_a_callback_may_make_the_next_call(shared: PilotExecutor):
    following: futures.Future[int] = futures.Future()
    first = shared.submit(int, "1")
    first.add_done_callback(
        lambda done: shared.submit(int, "2").add_done_callback(lambda next_: following.set_result(next_.result()))
    )
    assert following.result(PATIENCE) == 2


def test_functions_find_the_modules_of_the_caller(shared: PilotExecutor):
    assert shared.submit(is_alive, 1).result(PATIENCE)
    assert set(sys.path) - {""} <= set(shared.submit(lambda: sys.path).result(PATIENCE))


def test_functions_run_in_the_working_directory_and_environment(run_dir: Path):
    with PilotExecutor(env={"MINE": "yes"}, server_args=["--nodes", "1"]) as executor:
        assert executor.submit(os.getcwd).result(PATIENCE) == str(run_dir)
        assert executor.submit(os.getenv, "MINE").result(PATIENCE) == "yes"


# -- resources ------------------------------------------------------------------------------------------------------


def test_a_call_has_the_requested_cores(executor: PilotExecutor):
    assert executor.submit(os.getenv, "QCG_PM_NPROCS").result(PATIENCE) == "1"
    wide = executor.with_resources(cores=2)
    assert list(wide.map(os.getenv, ["QCG_PM_NPROCS", "OMP_NUM_THREADS"])) == ["2", "2"]
    assert executor.submit(os.getenv, "QCG_PM_NPROCS").result(PATIENCE) == "1"


def test_continuous_calls_make_room_for_calls_with_other_resources(executor: PilotExecutor):
    stop = threading.Event()

    def again(done: futures.Future[None]) -> None:
        if not stop.is_set():
            executor.submit(time.sleep, 0.05).add_done_callback(again)

    for _ in range(4):
        executor.submit(time.sleep, 0.05).add_done_callback(again)
    assert executor.with_resources(cores=2).submit(int, "7").result(PATIENCE) == 7
    stop.set()


def test_more_cores_than_exist_are_refused_at_once(executor: PilotExecutor):
    with pytest.raises(WrongArgumentsError, match="3 cores; the manager has 2"):
        executor.with_resources(cores=3)
    with pytest.raises(WrongArgumentsError, match="at least one core"):
        executor.with_resources(cores=0)
    with pytest.raises(WrongArgumentsError, match="cores and gpus must be whole numbers, not 'two' and 0"):
        executor.with_resources(cores="two")  # type: ignore[arg-type]


def test_calls_with_resources_that_no_node_has_fail(executor: PilotExecutor):
    with pytest.raises(WorkerLostError, match="1 core and 3 GPUs could not be started: 3 GPUs on a node"):
        executor.with_resources(gpus=3).submit(int).result(PATIENCE)
    assert executor.submit(int).result(PATIENCE) == 0


def test_idle_workers_are_dismissed_after_a_while(run_dir: Path):
    with PilotExecutor(idle_time=0.05, server_args=["--nodes", "1"]) as executor:
        first = executor.submit(os.getpid).result(PATIENCE)
        wait_for(lambda: executor.manager.resources()["used_cores"] == 0, what="the end of the worker")
        assert executor.submit(os.getpid).result(PATIENCE) != first


# -- cancelled, killed, gone ----------------------------------------------------------------------------------------


def test_calls_that_have_not_started_can_be_cancelled(executor: PilotExecutor, run_dir: Path):
    gate = run_dir / "gate"
    running = [executor.submit(until_file, gate) for _ in range(2)]
    waiting = executor.submit(int)
    wait_for(lambda: all(one.running() for one in running), what="both calls")
    assert not running[0].cancel()
    assert waiting.cancel()
    assert futures.wait([waiting], PATIENCE).done == {waiting}
    gate.touch()
    assert [one.result(PATIENCE) for one in running] == ["gate", "gate"]


def test_a_killed_worker_fails_only_its_own_call(executor: PilotExecutor, run_dir: Path):
    gate = run_dir / "gate"
    other = executor.submit(until_file, gate)
    killed = executor.submit(lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(WorkerLostError, match="ended before the call did: ended by signal 9"):
        killed.result(PATIENCE)
    gate.touch()
    assert other.result(PATIENCE) == "gate"
    assert executor.submit(int, "5").result(PATIENCE) == 5


def test_the_error_of_a_worker_that_cannot_start_has_the_reason(run_dir: Path):
    with (
        PilotExecutor(env={"PYTHONHOME": "/nowhere"}, server_args=["--nodes", "1"]) as executor,
        pytest.raises(WorkerLostError, match="(?s)could not be started.*Python"),
    ):
        executor.submit(int).result(PATIENCE)


def test_calls_fail_when_the_manager_is_gone(run_dir: Path):
    executor = PilotExecutor(server_args=["--nodes", "1"])
    call = executor.submit(until_file, run_dir / "never")
    wait_for(call.running, what="the call")
    manager = executor.manager
    assert isinstance(manager, LocalManager)
    manager.finish()
    with pytest.raises((ConnectionError, WorkerLostError)):
        call.result(PATIENCE)
    executor.shutdown()


# -- the end --------------------------------------------------------------------------------------------------------


def test_shutdown_waits_for_the_calls_and_refuses_more(run_dir: Path):
    executor = PilotExecutor(server_args=["--nodes", "1"])
    call = executor.submit(time.sleep, 0.1)
    executor.shutdown()
    assert call.done()
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(int)
    executor.shutdown()


def test_shutdown_without_waiting_lets_the_calls_end(run_dir: Path):
    executor = PilotExecutor(server_args=["--nodes", "1"])
    gate = run_dir / "gate"
    call = executor.submit(until_file, gate)
    executor.shutdown(wait=False)
    assert not call.done()
    gate.touch()
    assert call.result(PATIENCE) == "gate"
    executor.shutdown()


def test_shutdown_can_cancel_calls_that_have_not_started(run_dir: Path):
    executor = PilotExecutor(server_args=["--nodes", "1"])
    gate = run_dir / "gate"
    first, second = executor.submit(until_file, gate), executor.submit(int)
    wait_for(first.running, what="the first call")
    executor.shutdown(wait=False, cancel_futures=True)
    wait_for(second.cancelled, what="the second call")
    gate.touch()
    executor.shutdown()
    assert first.result() == "gate"


def test_only_the_owner_can_read_the_keys_and_they_are_removed_at_the_end(run_dir: Path):
    with PilotExecutor(server_args=["--nodes", "1"]) as executor:
        pid = executor.submit(os.getpid).result(PATIENCE)
        [contact] = run_dir.glob(".qcgpjm-service-*/executor-*/contact.json")
        assert stat.S_IMODE(contact.stat().st_mode) == 0o600
        assert stat.S_IMODE(contact.parent.stat().st_mode) == 0o700
        command_line = Path(f"/proc/{pid}/cmdline").read_text()
        assert "contact" not in command_line
    assert not contact.parent.exists()


def test_the_output_of_functions_stays_in_the_run_directory(run_dir: Path):
    with PilotExecutor(server_args=["--nodes", "1"]) as executor:
        executor.submit(print, "said by a function").result(PATIENCE)
    [output] = run_dir.glob(".qcgpjm-service-*/executor-*/*")
    assert output.read_text() == "said by a function\n"


def test_an_executor_may_share_a_manager(run_dir: Path):
    with LocalManager(["--nodes", "2"]) as manager:
        with PilotExecutor(manager) as one, PilotExecutor(manager, max_workers=1) as two:
            assert one.submit(int, "1").result(PATIENCE) == 1
            assert two.submit(int, "2").result(PATIENCE) == 2
        manager.wait4all(PATIENCE)
        states = {job["status"] for job in manager.list().values()}
        assert states == {"SUCCEED"}


def test_a_program_may_end_without_shutdown(run_dir: Path):
    program = """
        from qcg.pilotjob.executor_api.functions import PilotExecutor

        class Point:
            def __init__(self, x):
                self.x = x

        executor = PilotExecutor(server_args=["--nodes", "1"])
        print(executor.submit(lambda p: Point(p.x + 1), Point(1)).result().x)
    """
    Path("program.py").write_text("if True:\n" + program)
    done = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")


def test_a_limit_of_no_workers_is_refused():
    with pytest.raises(WrongArgumentsError, match="max_workers"):
        PilotExecutor(max_workers=0)


# -- what users do ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env", [{"A": ["x"]}, {"A=B": "1"}, {"A": None, "B": {}}])
def test_an_invalid_environment_is_refused_at_once(env: dict[str, object], run_dir: Path):
    with pytest.raises(WrongArgumentsError, match="no worker can be started like this: .*env"):
        PilotExecutor(server_args=["--nodes", "1"], env=env)  # type: ignore[arg-type]
    assert list(run_dir.iterdir()) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("problem", [RuntimeError("unforeseen"), OSError("no space"), FileError("no file")])
def test_all_calls_end_when_the_executor_fails(problem: Exception, run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    with PilotExecutor(server_args=["--nodes", "1"]) as executor:

        def fail(workers: object) -> None:
            raise problem

        monkeypatch.setattr(executor._dispatcher, "_start", fail)
        call = executor.submit(abs, -1)
        with pytest.raises(QCGPJMAError, match=str(problem)):
            call.result(PATIENCE)
        with pytest.raises(QCGPJMAError, match=str(problem)):
            executor.submit(abs, -1).result(PATIENCE)


def test_a_function_that_ends_its_worker_fails_alone(run_dir: Path):
    def note(number: int) -> int:
        with Path(f"ran{number}").open("a") as file:
            file.write("x")
        if number == 50:
            os.kill(os.getpid(), signal.SIGSEGV)
        return number

    with PilotExecutor(1, server_args=["--nodes", "1"]) as executor:
        list(executor.map(note, range(100, 105)))  # the manager must know that it is short
        calls = [executor.submit(note, number) for number in range(100)]
        failed = [number for number, call in enumerate(calls) if call.exception(PATIENCE)]
    # Results before it may be lost with the worker; no call runs twice, and no later call is lost.
    assert 50 in failed
    assert set(failed) <= set(range(47, 51))
    assert {path.read_text() for path in run_dir.glob("ran*")} == {"x"}
    assert len(list(run_dir.glob("ran*"))) == 105


def test_the_error_of_a_lost_worker_has_its_signal_and_its_output(executor: PilotExecutor):
    def crash() -> None:
        print("so far so good")
        os.kill(os.getpid(), signal.SIGSEGV)

    with pytest.raises(WorkerLostError, match="SIGSEGV") as caught:
        executor.submit(crash).result(PATIENCE)
    output = str(caught.value).rpartition(" is in ")[2]
    assert Path(output).read_text() == "so far so good\n"


def test_an_object_that_is_not_callable_is_refused_at_once(shared: PilotExecutor):
    with pytest.raises(TypeError, match=r"3\.14 is none"):
        shared.submit(3.14)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"3\.14 is none"):
        shared.map(3.14, [1])  # type: ignore[arg-type]


def test_a_number_as_first_argument_is_the_limit_of_workers(run_dir: Path):
    with PilotExecutor(1, server_args=["--nodes", "2"]) as executor:
        assert len(set(executor.map(lambda _: os.getpid(), range(4)))) == 1
    with pytest.raises(WrongArgumentsError, match="once"):
        PilotExecutor(1, 2)
    with pytest.raises(WrongArgumentsError, match="is a Manager object, not 'four'"):
        PilotExecutor("four")  # type: ignore[arg-type]


def test_the_error_for_an_exception_that_cannot_be_pickled_has_the_reason(shared: PilotExecutor):
    def fail() -> None:
        raise Unpicklable(1, 2)

    with pytest.raises(CallError, match=r"raised Unpicklable: 1 and 2\..*missing 1 required .*super\(\).__init__"):
        shared.submit(fail).result(PATIENCE)


def test_both_executors_can_be_imported_from_the_package():
    import qcg.pilotjob.executor_api as package

    assert package.PilotExecutor is PilotExecutor
    assert package.QCGPJExecutor.__name__ == "QCGPJExecutor"
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = package.Nothing


def test_shutdown_in_a_callback_does_not_wait_and_lets_the_others_end(run_dir: Path):
    executor = PilotExecutor(server_args=["--nodes", "2"])
    returned = threading.Event()

    def shut(done: futures.Future[str]) -> None:
        executor.shutdown()
        returned.set()

    other = executor.submit(until_file, run_dir / "other")
    first = executor.submit(until_file, run_dir / "first")
    first.add_done_callback(shut)
    (run_dir / "first").touch()
    assert returned.wait(PATIENCE)
    (run_dir / "other").touch()
    assert other.result(PATIENCE) == "other"
    executor.shutdown()


def test_a_program_that_ends_waits_for_its_calls(run_dir: Path):
    program = """
import time
from qcg.pilotjob.executor_api import PilotExecutor

def work(seconds):
    time.sleep(seconds)
    open("done", "w").close()

PilotExecutor(server_args=["--nodes", "1"]).submit(work, 0.5)
"""
    (run_dir / "program.py").write_text(program)
    subprocess.run([sys.executable, "program.py"], check=True, timeout=60)
    assert (run_dir / "done").exists()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_must_make_its_own_executor(shared: PilotExecutor):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with pytest.raises(RuntimeError, match="make one here"):
                shared.submit(abs, -1)
            shared.shutdown()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert shared.submit(abs, -1).result(PATIENCE) == 1
