"""The end of the work on remote hosts after a second signal."""

from __future__ import annotations

import asyncio

from qcg.pilotjob.executors.ssh.shutdown import HostShutdown
from tests.support.ssh_executor import a_launch, send


def test_a_second_signal_does_not_wait_for_an_unreachable_host_and_its_jobs_continue(lab):
    async def scenario() -> None:
        first = lab.start()
        send(first, a_launch(1, "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"))
        await first.until(lambda: "1.1" in first.started)
        lab.far.go_down()
        lab.far.cut()
        first.executor.poll_soon("wizard")
        await first.until(lambda: bool(first.away))
        stopping = asyncio.ensure_future(first.executor.shut_down(600, "closed"))
        await asyncio.sleep(0)
        first.executor.hurry()
        await asyncio.wait_for(stopping, 3)
        assert any("the results of 1 job are not known" in notice for notice in first.notices)
        lab.far.come_up()
        lab.leave(first)
        second = lab.start()
        await second.until(lambda: bool(second.ready))
        assert [running.id for running in second.ready[-1]] == ["1.1"]
        (lab.run / "work/1/job1/go").touch()
        await second.until(lambda: "1.1" in second.ended)
        assert second.ended["1.1"].reason == "exit"
        await second.executor.shut_down(1, "cancel")

    asyncio.run(scenario())


def test_a_second_signal_before_the_records_arrive_waits_for_them_shortly(lab, monkeypatch):
    monkeypatch.setattr(HostShutdown, "_kill", lambda self, grace: None)  # as if the order took long

    async def scenario() -> None:
        observer = lab.start()
        send(observer, a_launch(1, "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"))
        await observer.until(lambda: "1.1" in observer.started)
        stopping = asyncio.ensure_future(observer.executor.shut_down(600, "closed"))
        await asyncio.sleep(0)
        observer.executor.hurry()
        await asyncio.wait_for(stopping, 5)
        assert any("the results of 1 job are not known" in notice for notice in observer.notices)
        (lab.run / "work/1/job1/go").touch()

    asyncio.run(scenario())
