"""The executor for remote hosts, with the real far side and a stub of ssh."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

import pytest

from qcg.pilotjob.executors.ssh.log_viewer import LogViewer
from qcg.pilotjob.executors.ssh.marker import read_states
from qcg.pilotjob.host.process_tree import boot_id
from tests.support.disks import fill, mounting
from tests.support.ssh_executor import ANY_CHANNEL, INSTANCE, SlowOutputs, a_launch, send
from tests.support.stub_queue import StubQueue
from tests.support.waiting import wait_for


def test_nothing_is_connected_before_the_first_launch(lab):
    async def scenario() -> None:
        observer = lab.start()
        assert observer.ready == [[]]
        await observer.executor.shut_down(1, "cancel")
        assert lab.far.commands() == []
        assert read_states(lab.run_dir) == {}

    asyncio.run(scenario())


def test_jobs_start_end_and_leave_the_documented_tree(lab):
    async def scenario() -> None:
        observer = lab.start()
        send(observer, a_launch(1, "sh", "-c", "echo hello; echo oops >&2; pwd"), a_launch(2, "sh", "-c", "exit 3"))
        await observer.until(lambda: len(observer.ended) == 2)
        assert {id: ended.exit_code for id, ended in observer.ended.items()} == {"1.1": 0, "2.1": 3}
        assert observer.ended["1.1"].reason == "exit"
        logs = lab.run / "log/job/1/job1"
        assert (logs / "NN/job.out").read_text() == f"hello\n{lab.run}/work/1/job1\n"
        assert (logs / "01/job.err").read_text() == "oops\n"
        assert os.readlink(logs / "NN") == "01"
        await observer.executor.shut_down(1, "cancel")
        assert read_states(lab.run_dir)["wizard"].state == "closed"
        assert lab.far.called().count("remote-tidy") == (1 if lab.channel == "one-shot" else 0)

    asyncio.run(scenario())


def test_jobs_of_one_turn_travel_in_one_call_of_at_most_a_hundred(lab):
    async def scenario() -> None:
        observer = lab.start()
        send(observer, *(a_launch(seq) for seq in range(1, 202)))
        await observer.until(lambda: len(observer.ended) == 201, 60)
        assert lab.far.called().count("jobs-submit") == (3 if lab.channel == "one-shot" else 0)
        assert lab.far.called().count("remote-serve") == (0 if lab.channel == "one-shot" else 1)
        await observer.executor.shut_down(1, "cancel")

    asyncio.run(scenario())


def test_a_job_is_cancelled_with_its_reason(lab):
    async def scenario() -> None:
        observer = lab.start()
        send(observer, a_launch(1, "sleep", "100"))
        await observer.until(lambda: "1.1" in observer.started)
        observer.executor.kill("wizard", "1.1", "cancel", "nobody wants it")
        observer.executor.flush()
        await observer.until(lambda: "1.1" in observer.ended)
        assert (observer.ended["1.1"].reason, observer.ended["1.1"].message) == ("cancel", "nobody wants it")
        await observer.executor.shut_down(1, "cancel")

    asyncio.run(scenario())


def test_a_shutdown_ends_jobs_and_waits_for_their_records(lab):
    async def scenario() -> None:
        observer = lab.start()
        send(observer, a_launch(1, "sleep", "100"), a_launch(2, "sh", "-c", "trap '' TERM; sleep 100 & wait; wait"))
        await observer.until(lambda: len(observer.started) == 2)
        await observer.executor.shut_down(0.5, "closed")
        assert {id: ended.reason for id, ended in observer.ended.items()} == {"1.1": "closed", "2.1": "closed"}

    asyncio.run(scenario())


def test_a_cancelled_launch_that_was_never_sent_never_starts(lab):
    lab.far.go_down()

    async def scenario() -> None:
        observer = lab.start()
        send(observer, a_launch(1, "touch", "started"))
        observer.executor.kill("wizard", "1.1")
        observer.executor.flush()
        await observer.until(lambda: "1.1" in observer.ended)
        assert observer.ended["1.1"].pid == 0
        observer.executor.close()
        assert not lab.run.exists()

    asyncio.run(scenario())


def test_an_unreachable_host_gives_its_launches_back_and_is_tried_again(lab):
    lab.far.go_down()

    async def scenario() -> None:
        observer = lab.start()
        send(observer, a_launch(1))
        await observer.until(lambda: bool(observer.away))
        assert observer.ready == [[], []]
        assert "refuses connections" in observer.away[0]
        state = observer.executor.host_states()["wizard"]
        assert (state.state, "refuses connections" in state.error) == ("unreachable", True)
        lab.far.come_up()
        await observer.until(lambda: len(observer.ready) == 3)
        assert observer.executor.host_states()["wizard"].state == "connected"
        send(observer, a_launch(1, number=2))
        await observer.until(lambda: "1.2" in observer.ended)
        await observer.executor.shut_down(1, "cancel")

    asyncio.run(scenario())


def test_the_next_manager_finds_running_jobs_and_unreported_ends(lab):
    async def scenario() -> None:
        first = lab.start()
        send(first, a_launch(1, "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; echo done"), a_launch(2))
        await first.until(lambda: "1.1" in first.started and "2.1" in first.ended)
        lab.leave(first)
        second = lab.start()
        assert second.ready == []
        await second.until(lambda: bool(second.ready))
        assert [running.id for running in second.ready[0]] == ["1.1"]
        assert second.ready[0][0].pid == first.started["1.1"].pid
        lab.leave(second)
        (lab.run / "work/1/job1/go").touch()
        third = lab.start()
        await third.until(lambda: "1.1" in third.ended)
        assert third.ended["1.1"].exit_code == 0
        assert "2.1" not in third.ended
        await third.executor.shut_down(1, "cancel")

    asyncio.run(scenario())


@ANY_CHANNEL
def test_a_job_whose_outputs_are_being_copied_is_not_lost_to_the_next_manager(lab):
    async def scenario() -> None:
        first = lab.start()
        first.acknowledges = False
        send(first, a_launch(1))
        await first.until(lambda: "1.1" in first.ended)
        first.numbers.clear()
        lab.leave(first)
        files = SlowOutputs()
        second = lab.start(files=files)
        await second.until(lambda: bool(second.ready))
        assert [running.id for running in second.ready[0]] == ["1.1"]
        assert second.ended == {}
        files.arrived.set()
        await second.until(lambda: "1.1" in second.ended)
        await second.executor.shut_down(1, "cancel")

    asyncio.run(scenario())


def test_a_launch_without_an_answer_is_sent_again_and_runs_once(lab):
    async def scenario() -> None:
        observer = lab.start()
        send(observer, a_launch(1))
        await observer.until(lambda: "1.1" in observer.ended)
        script = "echo x >> ../../../share/count; while [ ! -e go ]; do sleep 0.05; done"
        send(observer, *(a_launch(seq, "sh", "-c", script) for seq in range(2, 22)))
        await asyncio.sleep(0.05)  # at a random moment of the submission
        lab.far.cut()
        await observer.until(lambda: all(f"{seq}.1" in observer.started for seq in range(2, 22)), 40)
        for seq in range(2, 22):
            (lab.run / f"work/1/job{seq}/go").touch()
        await observer.until(lambda: len(observer.ended) == 21, 40)
        assert (lab.run / "share/count").read_text() == "x\n" * 20
        await observer.executor.shut_down(1, "cancel")

    asyncio.run(scenario())


@ANY_CHANNEL
def test_a_second_address_takes_over_and_finds_the_jobs(lab):
    async def scenario() -> None:
        addresses = ("login1", "login2")
        observer = lab.start(addresses=addresses)
        send(observer, a_launch(1, "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"))
        await observer.until(lambda: "1.1" in observer.started)
        lab.far.go_down("login1")
        lab.far.cut()
        if lab.channel == "serve":
            await observer.until(lambda: len(observer.ready) >= 3, 40)
        else:
            await observer.until(lambda: observer.executor.host_states()["wizard"].address == "login2", 40)
        assert [running.id for running in observer.ready[-1]] == ["1.1"]
        (lab.run / "work/1/job1/go").touch()
        await observer.until(lambda: "1.1" in observer.ended)
        await observer.executor.shut_down(1, "cancel")

    asyncio.run(scenario())


@ANY_CHANNEL
def test_an_address_without_the_records_of_the_run_is_refused(lab):
    lab.far.own_home("login2")

    async def scenario() -> None:
        observer = lab.start(addresses=("login1", "login2"))
        send(observer, a_launch(1, "true"))
        await observer.until(lambda: "1.1" in observer.ended)
        await asyncio.sleep(0)
        lab.far.go_down("login1")
        lab.far.cut()
        send(observer, a_launch(2))
        await observer.until(lambda: any("does not share the file system" in reason for reason in observer.away), 40)
        assert "2.1" not in observer.started
        lab.far.come_up("login1")
        observer.executor.reconnect("wizard")
        await observer.until(lambda: observer.executor.host_states()["wizard"].state == "connected", 40)
        observer.executor.close()

    asyncio.run(scenario())


@ANY_CHANNEL
@pytest.mark.parametrize("booted", [False, True])
def test_an_old_copy_of_the_run_directory_is_refused_unless_the_host_has_crashed(lab, booted):
    async def run_a_job(seq: int) -> None:
        observer = lab.start()
        send(observer, a_launch(seq))
        await observer.until(lambda: f"{seq}.1" in observer.ended)
        await observer.executor.shut_down(1, "cancel")
        lab.leave(observer)

    async def scenario(copy: bytes) -> None:
        await run_a_job(2)
        lab.far.wait_until_quiet()
        (ledger,) = (lab.run / ".service").glob("*.ledger")
        ledger.write_bytes(copy.replace(boot_id().encode(), b"another-boot") if booted else copy)
        observer = lab.start()
        send(observer, a_launch(3))
        if booted:
            await observer.until(lambda: "3.1" in observer.ended)
        else:
            await observer.until(lambda: bool(observer.away))
            assert "an old copy of the directory was restored" in observer.away[0]
            assert observer.started == {}
        observer.executor.close()

    asyncio.run(run_a_job(1))
    lab.far.wait_until_quiet()
    (ledger,) = (lab.run / ".service").glob("*.ledger")
    asyncio.run(scenario(ledger.read_bytes()))


@ANY_CHANNEL
def test_files_are_installed_once_before_the_first_job(lab):
    (lab.wd / "bin").mkdir()
    (lab.wd / "bin/tool").write_text("#!/bin/sh\necho tool\n")
    (lab.wd / "bin/tool").chmod(0o755)

    async def scenario() -> None:
        observer = lab.start(install=("bin/",))
        send(observer, a_launch(1, "../../../bin/tool"))
        await observer.until(lambda: "1.1" in observer.ended)
        assert observer.ended["1.1"].exit_code == 0
        assert sum("rsync --server" in line for line in lab.far.commands()) == 1
        await observer.executor.shut_down(1, "cancel")

    asyncio.run(scenario())


@ANY_CHANNEL
def test_files_that_have_changed_are_installed_by_the_next_manager(lab):
    (lab.wd / "data").mkdir()

    async def look(seq: int) -> None:
        number = lab.wd / "data" / "number"
        number.write_text(str(seq))
        os.utime(number, (seq, seq))  # rsync compares sizes and whole seconds
        observer = lab.start(install=("data/",))
        send(observer, a_launch(seq, "grep", str(seq), "../../../data/number"))
        await observer.until(lambda: f"{seq}.1" in observer.ended)
        assert observer.ended[f"{seq}.1"].exit_code == 0
        lab.leave(observer)

    for seq in (1, 2):
        asyncio.run(look(seq))


def test_a_poll_asks_for_all_jobs_of_a_host_with_one_command(lab):
    async def scenario() -> None:
        observer = lab.start(poll_interval=600.0, submit_poll_interval=600.0)
        send(observer, *(a_launch(seq, "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done") for seq in range(1, 31)))
        await observer.until(lambda: len(observer.started) == 30)
        polls = lab.far.called().count("jobs-poll")
        assert polls == 0 if lab.channel == "serve" else polls < 10, "not one for each job"
        for seq in range(1, 31):
            (lab.run / f"work/1/job{seq}/go").touch()
        logs = [lab.run / f"log/job/1/job{seq}/NN/job.status" for seq in range(1, 31)]
        await asyncio.to_thread(wait_for, lambda: all("ENDED=" in path.read_text() for path in logs))
        before = lab.far.called().count("jobs-poll")
        await observer.executor.poll(["wizard"])
        assert len(observer.ended) == 30
        assert lab.far.called().count("jobs-poll") <= before + (2 if lab.channel == "one-shot" else 0)
        await observer.executor.shut_down(1, "cancel")

    asyncio.run(scenario())


@ANY_CHANNEL
def test_logs_are_viewed_through_another_address_when_the_last_one_is_down(lab):
    async def scenario() -> None:
        config = lab.config(addresses=("login1", "login2"))
        observer = lab.start(addresses=config.addresses)
        send(observer, a_launch(1, "echo", "hello"))
        await observer.until(lambda: "1.1" in observer.ended)
        await observer.executor.shut_down(1, "cancel")
        assert read_states(lab.run_dir)["wizard"].address == "login1"
        lab.far.go_down("login1")
        shown: list[bytes] = []
        viewer = LogViewer(config, lab.run_dir, "r1", INSTANCE[:8])
        assert "job.out" in await viewer.view("job/1/job1/NN", "list", "", shown.append)
        await viewer.view("job/1/job1/NN", "cat", "job.out", shown.append)
        assert b"".join(shown) == b"hello\n"

    asyncio.run(scenario())


@ANY_CHANNEL
def test_files_that_cannot_be_installed_are_reported_in_one_sentence(lab):
    async def scenario() -> None:
        observer = lab.start(install=("missing/",))
        send(observer, a_launch(1))
        await observer.until(lambda: bool(observer.away))
        assert "the files of `install` could not be copied to wizard" in observer.away[0]
        observer.executor.close()

    asyncio.run(scenario())


@ANY_CHANNEL
def test_a_shared_file_system_gets_no_installation(lab, monkeypatch):
    monkeypatch.setenv("HOME", str(lab.far.home))

    async def scenario() -> None:
        observer = lab.start(install=("missing/",))
        send(observer, a_launch(1))
        await observer.until(lambda: "1.1" in observer.ended)
        await observer.executor.shut_down(1, "cancel")

    asyncio.run(scenario())


def test_a_gate_without_remote_serve_leads_to_one_shot_commands(lab):
    lab.far.refuse("remote-serve")

    async def scenario() -> None:
        observer = lab.start()
        send(observer, a_launch(1))
        await observer.until(lambda: "1.1" in observer.ended)
        assert observer.executor.host_states()["wizard"].channel == "one-shot"
        assert any("does not admit remote-serve" in notice for notice in observer.notices) == (lab.channel == "serve")
        await observer.executor.shut_down(1, "cancel")

    asyncio.run(scenario())


@pytest.mark.parametrize("lab", ["one-shot"], indirect=True)
def test_a_gate_without_jobs_kill_keeps_its_connection_and_is_reported_once(lab):
    async def scenario() -> None:
        observer = lab.start(channel="one-shot")
        send(observer, a_launch(1, "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"))
        await observer.until(lambda: "1.1" in observer.started)
        lab.far.refuse("jobs-kill")
        for _ in range(2):
            observer.executor.kill("wizard", "1.1")
            observer.executor.flush()
            await observer.executor.poll(["wizard"])
        (lab.run / "work/1/job1/go").touch()
        await observer.until(lambda: "1.1" in observer.ended)
        assert observer.away == []
        assert (
            sum("does not admit jobs-kill, so that jobs there cannot be ended" in notice for notice in observer.notices)
            == 1
        )
        lab.far.refuse("remote-tidy")
        await observer.executor.shut_down(1, "cancel")
        assert read_states(lab.run_dir)["wizard"].state == "closed"
        assert any("does not admit remote-tidy" in notice for notice in observer.notices)

    asyncio.run(scenario())


def test_a_host_that_needs_a_person_is_used_only_over_an_open_connection(lab):
    async def scenario() -> None:
        observer = lab.start(second_factor="reuse")
        send(observer, a_launch(1))
        await observer.until(lambda: bool(observer.away))
        assert "needs a person to log in" in observer.away[0]
        assert lab.far.commands() == ["wizard check"]
        lab.far.open_connection()
        observer.executor.reconnect("wizard")
        await observer.until(lambda: len(observer.ready) == 3)
        observer.executor.close()

    asyncio.run(scenario())


def test_noise_of_login_scripts_does_no_harm(lab):
    lab.far.set_banner("Welcome to the wizard\n\x1b[0m$ ")

    async def scenario() -> None:
        observer = lab.start()
        send(observer, a_launch(1))
        await observer.until(lambda: "1.1" in observer.ended)
        await observer.executor.shut_down(1, "cancel")

    asyncio.run(scenario())


@pytest.fixture
def mount(tmp_path):
    yield from mounting(tmp_path)


def test_a_launch_that_the_host_cannot_read_ends_once(lab):
    async def scenario() -> None:
        observer = lab.start()
        send(observer, a_launch(1)._replace(memory=-1), a_launch(2))
        await observer.until(lambda: len(observer.ended) == 2)
        ended = observer.ended["1.1"]
        assert (ended.reason, ended.pid) == ("unstartable", 0)
        assert "memory is no number" in ended.message
        await observer.executor.poll(["wizard"])
        await observer.executor.shut_down(1, "cancel")

    asyncio.run(scenario())


def test_a_batch_job_that_a_full_disk_refuses_ends_while_the_disk_is_full(lab, tmp_path, mount):
    stub = StubQueue(tmp_path / "queue")
    disk = mount("disk", "size=16m,mode=700")
    (disk / "home").mkdir()
    lab.far.home.rmdir()
    lab.far.home.symlink_to(disk / "home")

    async def scenario() -> None:
        observer = lab.start(batch=stub.described(submit_poll_interval=0.2))
        send(observer, a_launch(1))
        await asyncio.to_thread(wait_for, lambda: stub.jobs(), 20, "the first job")
        fill(disk / "big")
        with (lab.run / ".service/batch.ledger").open("ab", buffering=0) as ledger, suppress(OSError):
            while True:
                ledger.write(b"\n")  # its last page has space
        send(observer, a_launch(2), a_launch(3))
        await observer.until(lambda: len(observer.ended) == 2)
        assert {id: (ended.reason, ended.pid) for id, ended in observer.ended.items()} == {
            "2.1": ("unstartable", 0),
            "3.1": ("unstartable", 0),
        }
        assert all("No space left on device" in ended.message for ended in observer.ended.values())
        (disk / "big").unlink()
        send(observer, a_launch(2, number=2))
        await asyncio.to_thread(wait_for, lambda: len(stub.jobs()) == 2, 20, "the second job")
        await observer.executor.shut_down(1, "cancel")
        assert len(stub.jobs()) == 2

    asyncio.run(scenario())
