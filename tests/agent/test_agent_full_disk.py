"""An agent whose ledger cannot be written, or has lost lines, loses no record."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.host.ledger_format import starting_line
from tests.agent.manager import NAME, AgentProcess, Manager, launch
from tests.support.waiting import wait_for


def test_no_record_is_sent_before_it_is_in_the_ledger(first: Manager, agent: AgentProcess, run_dir: Path) -> None:
    """Otherwise the next agent would give the number to another record, and the manager would ignore that one as
    known."""
    first.meet()
    job = launch("a", "touch", "ran", wd=run_dir)
    ledger = run_dir / f"agent-{NAME}.ledger"
    room = len("\n" + starting_line("a", job.env["QCG_PM_STEP_ID"], job.grant))  # one line before the start
    _limit_files(agent.pid, ledger.stat().st_size + room)
    first.start(job)
    wait_for((run_dir / "ran").exists)
    first.send(protocol.Identify())
    report = first.meet()
    assert (report.records, [running.id for running in report.live]) == ([], ["a"])
    agent.kill()
    successor = AgentProcess(run_dir)
    first.meet()
    assert first.ended("a").reason == "lost"
    successor.close()


def test_records_are_sent_when_the_disk_has_space_again(first: Manager, agent: AgentProcess, run_dir: Path) -> None:
    _end_on_a_full_disk(first, agent, run_dir)
    _limit_files(agent.pid, resource.RLIM_INFINITY)
    assert first.ended("a").exit_code == 0
    assert sorted(first.records) == [1, 2]


def test_an_agent_that_lost_lines_of_its_ledger_numbers_above_what_the_manager_has_seen(
    first: Manager, agent: AgentProcess, run_dir: Path
) -> None:
    first.meet()
    first.start(launch("a", "sleep", "1000", wd=run_dir), launch("b", "true", wd=run_dir))
    first.ended("b")
    agent.kill()
    ledger = run_dir / f"agent-{NAME}.ledger"
    lines = [line for line in ledger.read_text().splitlines(keepends=True) if line != "\n"]
    ledger.write_text("".join(line for line in lines if line[2] in "hb"))
    seen = set(first.records)
    successor = AgentProcess(run_dir)
    wait_for(lambda: '["e",' in ledger.read_text())  # before the manager reports its last number
    first.meet()
    first.records = {number: body for number, body in first.records.items() if number not in seen}
    assert (first.ended("a").reason, first.ended("b").reason) == ("lost", "lost")
    assert min(first.records) > max(seen)
    successor.close()


def test_an_agent_does_not_exit_while_records_are_not_on_disk(
    first: Manager, agent: AgentProcess, run_dir: Path
) -> None:
    _end_on_a_full_disk(first, agent, run_dir)
    first.send(protocol.Exit(0.0))
    first.next(protocol.Beat)
    first.next(protocol.Beat)  # the agent stays alive for a while
    _limit_files(agent.pid, resource.RLIM_INFINITY)
    assert first.ended("a").exit_code == 0
    first.next(protocol.Bye)
    assert agent.wait() == 0


def test_an_agent_with_records_not_on_disk_exits_after_a_second_signal(
    first: Manager, agent: AgentProcess, run_dir: Path
) -> None:
    _end_on_a_full_disk(first, agent, run_dir)
    agent.signal(signal.SIGTERM)
    agent.signal(signal.SIGINT)
    assert agent.wait() == 0


def _end_on_a_full_disk(manager: Manager, agent: AgentProcess, run_dir: Path) -> None:
    manager.meet()
    manager.start(launch("a", "sh", "-c", "until test -e go; do sleep 0.01; done", wd=run_dir))
    manager.started("a")
    _limit_files(agent.pid, (run_dir / f"agent-{NAME}.ledger").stat().st_size)
    (run_dir / "go").touch()
    wait_for(lambda: "cannot be written" in agent.log)


def _limit_files(pid: int, size: int) -> None:
    """Simulate a full disk: files of this process cannot grow beyond this size."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
