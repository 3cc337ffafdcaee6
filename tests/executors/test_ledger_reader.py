"""Records that agents could not report are read from their ledgers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.effects import Effect, Transition
from qcg.pilotjob.core.records import Grant, NodePart
from qcg.pilotjob.core.restore import LedgerRecords, OpenAttempt, SavedRun, UnfinishedJob, restore
from qcg.pilotjob.core.sanity import check
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.executors.ledger_reader import UNSURE, read_unreported
from qcg.pilotjob.host.ledger import Ledger, OpenStart
from qcg.pilotjob.host.records import Ended, NodeGrant
from tests.core.core_driver import effect_text, job, machine

GRANT: list[NodeGrant] = [("old", (0,), ())]
GONE = "j3 FAILED: the node it ran on is not part of this run any more"


def ledger(run_dir: Path, agent: str) -> None:
    """A ledger of five records: 1.1 has succeeded, 2.1 was closed, 3.1 has started."""
    made = Ledger(str(run_dir / f"agent-{agent}.ledger"))
    for id in ("1.1", "2.1", "3.1"):
        made.starting(id, "mark", [])
        made.started(id, OpenStart("mark", 7, 5.0, GRANT, 0, 0))
    made.ended(Ended("1.1", 6.0, 0, "exit", "", 7, 5.0))
    made.ended(Ended("2.1", 6.0, -15, "closed", "", 7, 5.0))
    made.close()


def test_acknowledged_records_and_records_of_present_agents_are_left_out(tmp_path: Path) -> None:
    ledger(tmp_path, "old")
    ledger(tmp_path, "here")
    unreported = read_unreported(tmp_path, ["here"], {"old": 3})
    assert [(type(record), record.id) for record in unreported.records] == [(Ended, "1.1"), (Ended, "2.1")]
    assert (unreported.agents, unreported.is_complete) == ({"old"}, True)
    assert read_unreported(tmp_path, ["here", "old"], {}).records == []


def test_an_unreadable_ledger_does_not_stop_a_resume(tmp_path: Path) -> None:
    (tmp_path / "agent-old.ledger").mkdir()
    ledger(tmp_path, "other")
    unreported = read_unreported(tmp_path, [], {})
    assert len(unreported.records) == 5
    assert not unreported.is_complete, "nobody knows what else its agent had begun"


def saved(jobs: Iterable[JobDescription], *attempts: OpenAttempt) -> SavedRun:
    """A registry with these unfinished jobs, numbered from 1."""
    unfinished = [
        UnfinishedJob(seq, one.name, 1.0, msgspec.msgpack.encode(one), one) for seq, one in enumerate(jobs, 1)
    ]
    return SavedRun(len(unfinished), unfinished=unfinished, open_attempts=attempts)


def started(seq: int, *nodes: str, stopped: bool = False) -> OpenAttempt:
    grant = Grant(tuple(NodePart(node, (0,)) for node in nodes))
    return OpenAttempt(seq, -1, 1, grant, 4.0, started=5.0, pid=7, stop_requested=stopped)


def restore_with_ledgers(core: Core, run: SavedRun, run_dir: Path) -> list[Effect]:
    unreported = read_unreported(run_dir, [], {})
    ledgers = LedgerRecords(unreported.records, unreported.agents, complete=unreported.is_complete)
    return restore(core.state, run, ledgers, now=9.0)


def restored(tmp_path: Path, *known: int, fallback_node: str = "") -> list[str]:
    """`known`: the jobs whose attempts are in the registry."""
    ledger(tmp_path, "old")
    core = Core(machine(4), fallback_node=fallback_node)
    run = saved([job("j1"), job("j2"), job("j3")], *(started(seq, "old") for seq in known))
    effects = [effect_text(effect) for effect in restore_with_ledgers(core, run, tmp_path)]
    check(core.state)
    return effects


def test_succeeded_attempts_are_not_run_again_and_closed_ones_are(tmp_path: Path) -> None:
    assert restored(tmp_path, 1, 2, 3) == ["j1 SUCCEED", "requeued j2", "j2 QUEUED", GONE]


def test_a_record_in_another_ledger_settles_an_attempt(
    tmp_path: Path,
) -> None:
    assert restored(tmp_path, 1, 2, 3, fallback_node="n1") == ["j1 SUCCEED", "requeued j2", "j2 QUEUED", GONE]


def scheduled_elsewhere(tmp_path: Path) -> list[str]:
    """The registry knows only that the job was sent to a node, and that node has left the run."""
    core = Core(machine(4))
    attempt = OpenAttempt(1, -1, 1, Grant((NodePart("old", (0,)),)), 4.0)
    effects = restore_with_ledgers(core, saved([job("j1")], attempt), tmp_path)
    check(core.state)
    return [effect_text(effect) for effect in effects]


def test_attempts_never_started_on_a_missing_node_are_queued_again(tmp_path: Path) -> None:
    Ledger(str(tmp_path / "agent-old.ledger")).close()
    assert scheduled_elsewhere(tmp_path) == ["requeued j1", "j1 QUEUED"]


def test_attempts_that_may_have_started_on_a_missing_node_are_lost(tmp_path: Path) -> None:
    made = Ledger(str(tmp_path / "agent-old.ledger"))
    made.starting("1.1", "mark", [])
    made.close()
    assert scheduled_elsewhere(tmp_path) == [f"j1 FAILED: {UNSURE}", "all done"]


def test_unreported_attempts_started_on_a_missing_node_are_lost(tmp_path: Path) -> None:
    made = Ledger(str(tmp_path / "agent-old.ledger"))
    made.starting("1.1", "mark", [])
    made.started("1.1", OpenStart("mark", 7, 5.0, GRANT, 0, 0))
    made.close()
    assert scheduled_elsewhere(tmp_path) == ["j1 EXECUTING", GONE.replace("j3", "j1"), "all done"]


def test_with_an_unreadable_ledger_attempts_may_have_started(tmp_path: Path) -> None:
    (tmp_path / "agent-old.ledger").mkdir()
    assert scheduled_elsewhere(tmp_path) == [GONE.replace("j3", "j1"), "all done"]


def test_the_end_time_is_the_one_in_the_ledger(tmp_path: Path) -> None:
    ledger(tmp_path, "old")
    core = Core(machine(4))
    effects = restore_with_ledgers(core, saved([job("j1")], started(1, "old")), tmp_path)
    ends = [effect for effect in effects if isinstance(effect, Transition)]
    assert [(end.at, end.attempt and str(end.attempt.grant)) for end in ends] == [(6.0, "old[0]")]
    assert core.state.now == 9.0


def test_an_attempt_known_only_from_the_ledger_has_run(tmp_path: Path) -> None:
    unreported = restored(tmp_path)
    assert "j1 SUCCEED" in unreported
    assert GONE in unreported
    assert "j2 QUEUED" in unreported
    assert "j2 FAILED" not in " ".join(unreported)


def test_the_end_of_a_multi_node_attempt_does_not_count_if_only_one_node_reported(tmp_path: Path) -> None:
    ledger(tmp_path, "old")
    core = Core(machine(4))
    run = saved([job("j1", nodes=1)], started(1, "old", "older", stopped=True))
    assert [effect_text(effect) for effect in restore_with_ledgers(core, run, tmp_path)] == ["requeued j1", "j1 QUEUED"]
    check(core.state)
