"""Effects of keys and new data on the model."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from qcg.pilotjob.report.run_summary import Group
from qcg.pilotjob.top.model import (
    MOST_LINES,
    NOTICE_SECONDS,
    SETTLING_SECONDS,
    Act,
    FetchOutput,
    FetchRows,
    Quit,
    Redraw,
    Resized,
    RowsArrived,
    Size,
    SourceFailed,
    SummaryArrived,
    Suspend,
    Tick,
)
from qcg.pilotjob.watch.source import JobLine
from tests.support.memory_run import NOW, MemoryRun, summary_of
from tests.top.driving import Driver

STATES = ["QUEUED", "EXECUTING", "SUCCEED", "FAILED"]


def many(count: int) -> MemoryRun:
    return MemoryRun([JobLine(f"job_{n:06d}", STATES[n % 4], NOW + n, NOW + n, NOW + n) for n in range(count)])


def names(driver: Driver) -> list[str]:
    rows = driver.model.jobs.rows
    assert rows is not None
    return [line.name for line in rows.lines]


def read(driver: Driver) -> list[str]:
    """The lines of output that were read."""
    assert driver.model.output is not None
    return list(driver.model.output.all_lines)


def test_running_jobs_come_first_then_failed_ones():
    driver = Driver(many(40)).press("2")
    rows = driver.model.jobs.rows
    assert rows is not None
    assert rows.total == 40
    assert [line.state for line in rows.lines] == ["EXECUTING"] * 10 + ["FAILED"] * 10 + ["QUEUED", "SUCCEED"] * 10


@pytest.mark.parametrize("first", [0, 5, 9, 10, 15, 25, 39, 40])
def test_parts_of_the_list_add_up_to_the_whole(first: int):
    from qcg.pilotjob.top.paging import fetch_rows

    driver = Driver(many(40)).press("2")
    everything = names(driver)
    request = next(effect.request for effect in driver.effects if isinstance(effect, FetchRows))
    for limit in (1, 7, 40):
        part = fetch_rows(driver.run, replace(request, first=first, limit=limit))
        assert [line.name for line in part.lines] == everything[first : first + limit]
        assert part.total == 40


def test_only_parts_of_a_long_list_are_read():
    driver = Driver(many(5000)).press("2", "end", "home", "pagedown", "pagedown", "down")
    assert max(query.limit for query in driver.run.queries) <= 3 * 19
    assert driver.model.jobs.cursor == 39
    assert driver.model.jobs.selected is not None


def test_moving_stays_inside_the_list():
    driver = Driver(many(3)).press("2", "up")
    assert driver.model.jobs.cursor == 0
    driver.press("end", "down", "pagedown")
    assert driver.model.jobs.cursor == 2
    driver.press("pageup")
    assert driver.model.jobs.cursor == 0


def test_rows_of_another_list_are_dropped():
    driver = Driver(many(8)).press("2")
    old = driver.model.jobs.rows
    assert old is not None
    driver.press("s")
    assert driver.model.jobs.filter == "running"
    driver.send(RowsArrived(old))
    assert driver.model.jobs.rows is not old


def test_the_selection_follows_its_job():
    driver = Driver(many(8)).press("2", "down", "down")
    selected = driver.model.jobs.selected
    assert selected is not None
    assert selected.state == "FAILED"
    driver.run.lines.append(JobLine("new", "EXECUTING", NOW + 99, NOW + 99))
    driver.send(SummaryArrived(summary_of(driver.run.lines, at=NOW + 1)))
    assert driver.model.jobs.selected == selected
    assert driver.model.jobs.cursor == 3


def test_the_selection_stays_in_a_list_that_shrinks():
    driver = Driver(many(40)).press("2", "end")
    del driver.run.lines[3:]
    driver.send(SummaryArrived(summary_of(driver.run.lines, at=NOW + 1)))
    assert driver.model.jobs.cursor == 2
    assert driver.model.jobs.selected is not None


def test_the_list_follows_the_filter_as_it_is_typed():
    driver = Driver(many(40)).press("2", "/", "0", "3", "9")
    assert names(driver) == ["job_000039"]
    driver.press("backspace")
    assert len(names(driver)) == 11
    driver.press("enter")
    assert driver.model.jobs.search == "03"
    assert driver.model.jobs.typed is None
    driver.press("/", "x", "escape")
    assert driver.model.jobs.search == "03"
    assert len(names(driver)) == 11
    driver.press("escape")
    assert len(names(driver)) == 40


def test_keys_are_text_while_a_filter_is_typed():
    driver = Driver(many(4)).press("2", "/", "q", "?", "1", "c", " ")
    assert driver.model.jobs.typed == "q?1c "
    assert not any(isinstance(effect, Quit) for effect in driver.effects)
    driver.press("ctrl-u")
    assert driver.model.jobs.typed == ""


def test_states_and_orders_are_cycled():
    driver = Driver(many(8)).press("2", "s", "s")
    assert driver.model.jobs.filter == "failed"
    assert {line.state for line in driver.model.jobs.rows.lines} == {"FAILED"}  # type: ignore[union-attr]
    driver.press("S", "S", "o")
    assert (driver.model.jobs.filter, driver.model.jobs.order) == ("all", "name")
    assert names(driver) == sorted(names(driver))
    driver.press("v")
    assert names(driver) == sorted(names(driver), reverse=True)
    driver.press("O")
    assert driver.model.jobs.order == "attention"


def test_an_action_is_carried_out_after_a_confirmation():
    driver = Driver(many(8)).press("2", "c")
    assert driver.model.question is not None
    assert driver.run.acts == []
    driver.press("x", "down")  # neither yes nor no
    assert driver.model.question is not None
    driver.press("y")
    assert driver.run.acts == [("cancel", ["job_000005"])]
    assert driver.model.notice is not None
    assert driver.model.notice.text == "cancel: 1 jobs."


@pytest.mark.parametrize("key", ["n", "escape", "q"])
def test_an_action_that_is_not_confirmed_is_not_carried_out(key: str):
    driver = Driver(many(8)).press("2", "c", key)
    assert driver.model.question is None
    assert not any(isinstance(effect, (Act, Quit)) for effect in driver.effects)


@pytest.mark.parametrize(("key", "action"), [("c", "cancel"), ("r", "rerun"), ("h", "hold"), ("u", "release")])
def test_actions_are_for_the_marked_jobs(key: str, action: str):
    driver = Driver(many(8)).press("2", " ", " ", " ", "up", " ", key, "y")
    assert driver.run.acts == [(action, ["job_000001", "job_000005"])]
    assert driver.model.marked == frozenset()


def test_actions_are_for_the_job_that_is_shown():
    driver = Driver(many(8)).press("2", "enter", "h", "y")
    assert driver.run.acts == [("hold", ["job_000005"])]


def test_a_refused_action_shows_the_reason():
    driver = Driver(MemoryRun([JobLine("precious", "SUCCEED", NOW)])).press("2", "c", "y")
    assert driver.model.notice is not None
    assert driver.model.notice.bad
    assert driver.model.notice.text == "precious has ended: there is nothing to cancel."


@pytest.mark.parametrize("key", ["c", "r", "h", "u"])
def test_actions_need_a_manager(key: str):
    run = MemoryRun([JobLine("a", "QUEUED", NOW)])
    run.change(alive=False, directory="/home/me/my runs/x")
    driver = Driver(run).press("2", key)
    assert driver.model.question is None
    assert driver.model.notice is not None
    assert "has no manager" in driver.model.notice.text
    assert driver.model.notice.text.endswith("qcg-pm run --resume '/home/me/my runs/x'")


def test_the_end_and_the_return_of_a_manager_are_shown():
    run = many(4)
    driver = Driver(run)
    run.change(alive=False)
    driver.send(SummaryArrived(run.current))
    assert "manager has ended" in driver.text
    run.change(alive=True)
    driver.send(SummaryArrived(run.current))
    assert "manager runs again" in driver.text


def test_a_notice_goes_away_with_time_and_with_a_key():
    run = many(4)
    driver = Driver(run)
    run.change(alive=False)
    driver.send(SummaryArrived(run.current))
    driver.send(Tick(driver.model.now + NOTICE_SECONDS - 1))
    assert driver.model.notice is not None
    driver.send(Tick(driver.model.now + 2))
    assert driver.model.notice is None


@pytest.mark.parametrize("keys", [["2"], ["2", "enter"]], ids=["list", "job"])
def test_jobs_are_read_again_after_a_change_because_their_copy_lags_behind(keys: list[str]):
    driver = Driver(many(4)).press(*keys)
    driver.run.lines = [replace(line, state="OMITTED") for line in driver.run.lines]
    driver.send(Tick(NOW + 1))
    assert "OMITTED" in driver.text
    count = len(driver.effects)
    driver.send(Tick(NOW + SETTLING_SECONDS + 1))
    assert len(driver.effects) == count


def test_errors_are_shown_until_the_next_answer():
    driver = Driver(many(4))
    driver.send(SourceFailed("The run cannot be read at the moment: gone"))
    assert "cannot be read at the moment" in driver.text
    driver.press("2")
    assert "cannot be read at the moment" not in driver.text


def test_groups_of_the_overview_lead_to_their_examples():
    lines = [JobLine("a", "FAILED", NOW), JobLine("b", "QUEUED", NOW)]
    failed, waiting = Group(1, "exit", "exit code 1", "a"), Group(1, "resources", "it waits for cores", "b")
    run = MemoryRun(lines, summary_of(lines, failed=(failed,), waiting=(waiting,)))
    driver = Driver(run).press("enter")
    assert driver.model.job is not None
    assert driver.model.job.name == "a"
    driver.press("escape", "down", "down", "enter")
    assert driver.model.job.name == "b"
    driver.run.current = summary_of(lines, failed=(failed,), at=NOW + 1)
    driver.send(SummaryArrived(driver.run.current))
    driver.press("escape", "l")
    assert driver.model.output is not None
    assert driver.model.output.name == "a"


def test_keys_do_no_harm_in_a_run_without_jobs():
    driver = Driver(MemoryRun())
    for view in ("1", "2"):
        driver.press(view, "up", "down", "enter", "l", "i", " ", "c", "end", "home", "pagedown", "left", "escape")
    assert driver.run.acts == []


def test_output_is_followed():
    run = many(2)
    run.outputs["job_000001", "stdout"] = b"one\ntw"
    driver = Driver(run).press("2", "l")
    assert driver.model.output is not None
    assert read(driver) == ["one", "tw"]
    run.outputs["job_000001", "stdout"] += b"o\nthree\n"
    driver.send(Tick(NOW + 1))
    assert read(driver) == ["one", "two", "three"]
    driver.press("f")
    run.outputs["job_000001", "stdout"] += b"four\n"
    driver.send(Tick(NOW + 2))
    assert read(driver)[-1] == "three"
    driver.press("end")
    assert read(driver)[-1] == "four"


def test_output_that_was_overwritten_is_read_again():
    run = many(2)
    run.outputs["job_000001", "stdout"] = b"first attempt\n"
    driver = Driver(run).press("2", "l")
    run.outputs["job_000001", "stdout"] = b"second\n"
    driver.send(Tick(NOW + 1))
    assert driver.model.output is not None
    assert read(driver) == ["second"]


def test_a_long_output_begins_near_its_end_at_the_start_of_a_line():
    run = many(2)
    run.outputs["job_000001", "stdout"] = b"".join(b"line %d\n" % n for n in range(1_000_000))
    driver = Driver(run).press("2", "l")
    assert driver.model.output is not None
    assert read(driver)[-1] == "line 999999"
    assert read(driver)[0].startswith("line 99")
    assert sum(isinstance(effect, FetchOutput) for effect in driver.effects) == 1
    run.outputs["job_000001", "stdout"] += b"more\n" * 1_000_000
    driver.send(Tick(NOW + 1))
    assert read(driver)[-1] == "more"
    assert len(read(driver)) <= MOST_LINES
    assert sum(isinstance(effect, FetchOutput) for effect in driver.effects) == 3


def test_a_progress_line_is_shown_as_a_terminal_would():
    run = many(2)
    run.outputs["job_000001", "stdout"] = b" 1 %\r 2 %\r 3 %"
    driver = Driver(run).press("2", "l")
    assert driver.model.output is not None
    assert read(driver) == [" 3 %"]
    run.outputs["job_000001", "stdout"] += b"\r 4 %\r\n done\r\n"
    driver.send(Tick(NOW + 1))
    assert read(driver) == [" 4 %", " done"]


def test_the_other_stream_and_missing_output():
    run = many(2)
    run.outputs["job_000001", "stdout"] = b"out\n"
    driver = Driver(run).press("2", "l", "e")
    assert "There is no stderr of job_000001." in driver.text
    driver.press("e")
    assert "out" in driver.lines[2]


def test_scrolling_in_output_stops_following_until_the_end_is_reached():
    run = many(2)
    run.outputs["job_000001", "stdout"] = b"".join(b"line %d\n" % n for n in range(100))
    driver = Driver(run).press("2", "l", "up")
    assert driver.model.output is not None
    assert not driver.model.output.follow
    assert "line 98" in driver.text
    assert not any(line.startswith("line 99") for line in driver.lines)
    driver.press("home")
    assert "line 0 " in driver.text
    driver.press("pagedown", "pagedown", "pagedown", "pagedown", "pagedown", "pagedown")
    assert driver.model.output.follow


def test_iterations_of_a_job_are_listed():
    run = MemoryRun([JobLine("sweep", "EXECUTING", NOW, iterations={"SUCCEED": 3, "QUEUED": 1})])
    driver = Driver(run).press("2", "enter", "i")
    assert driver.model.jobs.job == "sweep"
    assert run.queries[-1].job == "sweep"
    driver.press("escape")
    assert driver.model.jobs.job == ""
    driver.press("i")
    assert run.queries[-1].job == "sweep"


def test_details_scroll_inside_their_lines():
    driver = Driver(many(4), Size(60, 12)).press("2", "enter", "up")
    assert driver.model.job is not None
    assert driver.model.job.scroll == 0
    driver.press(*["down"] * 200)
    assert 0 < driver.model.job.scroll < 30
    driver.press("home")
    assert driver.model.job.scroll == 0


def test_resizing_keeps_the_selection_on_the_screen():
    driver = Driver(many(500), Size(200, 50)).press("2", *["down"] * 40)
    driver.send(Resized(Size(80, 10)))
    jobs = driver.model.jobs
    assert jobs.cursor == 40
    assert jobs.first <= 40 < jobs.first + 5
    assert jobs.selected is not None
    assert jobs.selected.name in driver.text


def test_help_is_left_with_any_key():
    driver = Driver(many(4)).press("2", "?")
    assert "Everywhere" in driver.text
    driver.press("x")
    assert driver.model.view == "jobs"


def test_keys_suspend_redraw_and_quit():
    driver = Driver(many(4)).press("ctrl-z", "ctrl-l", "q")
    kinds = [type(effect) for effect in driver.effects]
    assert kinds == [Suspend, Redraw, Quit]
    assert Driver(many(4)).press("2", "/", "ctrl-c").effects[-1] == Quit()
